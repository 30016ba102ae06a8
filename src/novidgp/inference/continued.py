"""Runs that go on from a fitted model instead of starting anew.

The step is the method's own; only the start differs. Optimisers and critics start afresh, as they do in any
run. A method whose posterior holds draws (SGHMC) goes on from the model alone.
"""

import dataclasses
from typing import Any, ClassVar, final

import jax

from novidgp.inference.base import State, Wrapping
from novidgp.posteriors.base import Posterior
from novidgp.posteriors.draws import Empirical


@final
@dataclasses.dataclass(frozen=True)
class Continued(Wrapping):
    """Another method, whose runs start from a `Fitted` where others start from a model."""

    name: ClassVar[str] = "continued"

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        inference = self.method.algorithm(num_data, steps, step_scale=step_scale)

        def init(model: Any, batch, *, key):
            state = inference.init(model.model, batch, key=key)
            return _with_posterior(state, inference.fitted(state).posterior, model.posterior)

        return inference._replace(init=init)


def _with_posterior(state: State, fresh: Posterior, wanted: Posterior) -> State:
    """A state with the posterior `wanted` where it has the arrays of `fresh`."""
    if isinstance(fresh, Empirical):
        return state
    places = {id(old): new for old, new in zip(*map(jax.tree.leaves, (fresh, wanted)), strict=True)}
    return jax.tree.map(lambda leaf: places.get(id(leaf), leaf), state)
