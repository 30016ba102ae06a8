"""The contract between a method and the rest of the house.

A method is three pure functions. `init` makes a state, `step` advances it on one minibatch, `fitted` reads
the model and the posterior out of it. States are pytrees of arrays, so that scanning, checkpoints, seeds in
parallel and tests need nothing more.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from novidgp.model.dgp import DGP, Batch
from novidgp.posteriors.base import Posterior

State = Any
Info = dict[str, jax.Array]


class Fitted(NamedTuple):
    """What prediction needs, and all that is saved: the model and a posterior over its inducing outputs.

    Where a method keeps snapshots or has several starts, predictions are a mixture, with equal weights.
    """

    model: DGP
    posterior: Posterior
    others: "Fitted | None" = None
    """The other members of the mixture, on a leading axis."""

    def members(self) -> "Fitted":
        """All models of the mixture on a leading axis, the last one last."""
        last = stacked([self._replace(others=None)])
        return last if self.others is None else jax.tree.map(lambda *a: jnp.concatenate(a), self.others, last)


def stacked(trees: Sequence[Any]) -> Any:
    """Equal pytrees as one, on a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


class Inference(NamedTuple):
    """A method for inferring a DGP's posterior and hyper-parameters.

    `init(model, batch, *, key) -> state`; `step(state, batch, *, key) -> (state, info)`, where `info` maps
    names to scalars and holds at least `"loss"`; `fitted(state) -> Fitted`.
    """

    init: Callable[..., State]
    step: Callable[..., tuple[State, Info]]
    fitted: Callable[[State], Fitted]


def adam(learning_rate: float, steps: int) -> Any:
    """Adam with a flat start and a cosine end: the schedule of every method here.

    An optax transformation; not typed as one, because optax's type of parameters knows no modules.
    """
    hold = steps // 4
    schedule = optax.join_schedules(
        [
            optax.constant_schedule(learning_rate),
            optax.cosine_decay_schedule(learning_rate, max(steps - hold, 1)),
        ],
        [hold],
    )
    return optax.adam(schedule, b1=0.9, b2=0.99)


def by_part(**optimisers: Any) -> Any:
    """An optimiser for each part of a module, by the name of its field."""
    transforms: Any = optimisers
    return optax.multi_transform(
        transforms, lambda tree: jax.tree_util.tree_map_with_path(lambda path, _: path[0].name, tree)
    )


def descend(optimiser: Any, gradient, opt_state, params) -> tuple[Any, Any]:
    """One step downhill: `(params, opt_state)`."""
    updates, opt_state = optimiser.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def ascend(optimiser: Any, gradient, opt_state, params) -> tuple[Any, Any]:
    """One step uphill: `(params, opt_state)`."""
    return descend(optimiser, jax.tree.map(lambda g: -g, gradient), opt_state, params)


__all__ = ["Batch", "Fitted", "Inference", "Info", "State", "adam", "ascend", "by_part", "descend", "stacked"]
