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

SHARES = (0.4, 0.6, 0.8)
"""When, as shares of the steps, a snapshot is taken; the end is the last member of the mixture."""
SETTLED = 300
"""The first step at which one may be: what has not settled yet would only blur."""


class Trail(NamedTuple):
    """A method's state, its snapshots on a leading axis (not taken yet: the start), and its steps so far."""

    state: State
    taken: Fitted
    count: jax.Array


def with_snapshots(inference: Inference, steps: int) -> Inference:
    """`inference`, with its snapshots as further members of what it fits.

    In place of a snapshot whose time has not come stands the current state: whenever a run ends, all members
    are models to predict with.
    """
    times = np.maximum(np.round(np.multiply(SHARES, steps)), SETTLED).astype(np.int32)

    def replaced(taken, where, fitted):
        """The snapshots, but for those that `where` says the one that is fitted now."""
        return jax.tree.map(
            lambda old, new: jnp.where(jnp.expand_dims(where, range(1, old.ndim)), new, old), taken, fitted
        )

    def init(model, batch, *, key):
        state = inference.init(model, batch, key=key)
        return Trail(state, stacked([inference.fitted(state)] * len(times)), jnp.zeros((), jnp.int32))

    def step(trail, batch, *, key):
        state, info = inference.step(trail.state, batch, key=key)
        due = trail.count + 1 == times
        taken = jax.lax.cond(
            jnp.any(due), lambda: replaced(trail.taken, due, inference.fitted(state)), lambda: trail.taken
        )
        return Trail(state, taken, trail.count + 1), info

    def fitted(trail):
        last = inference.fitted(trail.state)
        return last._replace(others=replaced(trail.taken, trail.count < times, last))

    return Inference(init, step, fitted)


def with_starts(inference: Inference) -> Inference:
    """`inference` for a model whose arrays have a leading axis of starts (`base.stacked` makes one).

    A step advances all starts on the same batch, one after another, each with noise of its own; its info is
    the mean of theirs. What they fit is one mixture.
    """

    def each(function, trees, key):
        keys = jax.random.split(key, len(jax.tree.leaves(trees)[0]))
        return jax.lax.map(lambda pair: function(pair[0], key=pair[1]), (trees, keys))

    def init(models, batch, *, key):
        return each(lambda model, key: inference.init(model, batch, key=key), models, key)

    def step(states, batch, *, key):
        states, infos = each(lambda state, key: inference.step(state, batch, key=key), states, key)
        return states, jax.tree.map(lambda values: jnp.mean(values, axis=0), infos)

    def fitted(states):
        grid = jax.lax.map(lambda state: inference.fitted(state).members(), states)
        members = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), grid)
        model, posterior, _ = jax.tree.map(lambda a: a[-1], members)
        return Fitted(model, posterior, jax.tree.map(lambda a: a[:-1], members))

    return Inference(init, step, fitted)
