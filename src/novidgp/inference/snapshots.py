"""Snapshots: a method that predicts with where it has been as well as with where it is.

Every method here estimates the hyper-parameters, and an estimate knows nothing of its error: on small data
the bound goes on rising long after test densities have begun to fall. Models on the way fit almost as
well and disagree where the data do not decide, so their mixture is a cheap stand-in for a posterior over
hyper-parameters. It costs memory, and no step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from novidgp.inference.base import Fitted, Inference, State, stacked

SHARES = (0.3, 0.5, 0.7, 0.9)
"""When, as shares of the steps, a snapshot is taken; the end is the fifth member of the mixture."""
SETTLED = 300
"""The first step at which one may be: what has not settled yet would only blur."""


class Trail(NamedTuple):
    """A method's state, what it has left behind (on a leading axis), and its steps so far."""

    state: State
    earlier: Fitted
    count: jax.Array


def with_snapshots(inference: Inference, steps: int) -> Inference:
    """`inference`, with its snapshots as further members of what it fits.

    A snapshot whose time has not come follows the current state: whenever a run ends, all are models to
    predict with.
    """
    times = np.maximum(np.round(np.multiply(SHARES, steps)), SETTLED)

    def init(model, batch, *, key):
        state = inference.init(model, batch, key=key)
        return Trail(state, stacked([inference.fitted(state)] * len(times)), jnp.zeros((), jnp.int32))

    def step(trail, batch, *, key):
        state, info = inference.step(trail.state, batch, key=key)
        count = trail.count + 1

        def follow(old, new):
            return jnp.where(jnp.expand_dims(count <= times, range(1, old.ndim)), new, old)

        return Trail(state, jax.tree.map(follow, trail.earlier, inference.fitted(state)), count), info

    def fitted(trail):
        return inference.fitted(trail.state)._replace(earlier=trail.earlier)

    return Inference(init, step, fitted)
