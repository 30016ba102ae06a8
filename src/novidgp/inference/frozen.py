"""Inference with the hyper-parameters held fixed: the posterior over inducing outputs alone."""

import dataclasses
from typing import ClassVar, final

import equinox as eqx

from novidgp.inference.base import Inference, Method, State
from novidgp.model.dgp import DGP


def model_of(state: State) -> DGP:
    """The model in a method's state."""
    for holder in ("players", "fitted"):
        state = getattr(state, holder, state)
    return state.model


def with_frozen_model(inference: Inference) -> Inference:
    """`inference` of V alone: every step puts the hyper-parameters back to where they were."""

    def step(state, batch, *, key):
        after, info = inference.step(state, batch, key=key)
        return eqx.tree_at(model_of, after, model_of(state)), info

    return inference._replace(step=step)


@final
@dataclasses.dataclass(frozen=True)
class Frozen(Method):
    """Another method (without snapshots) with the hyper-parameters held fixed."""

    name: ClassVar[str] = "frozen"
    method: Method

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        return with_frozen_model(self.method.algorithm(num_data, steps, step_scale=step_scale))
