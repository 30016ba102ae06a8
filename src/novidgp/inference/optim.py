"""Optimisers that the methods share.

Optimisers are annotated as `Optimiser`, which is any optax transformation: optax's own type of parameters does
not admit modules.
"""

from typing import Any

import jax
import optax

Optimiser = Any


def adam(learning_rate: float, steps: int) -> Optimiser:
    """Adam, constant for a quarter of the steps and with cosine decay after it: the schedule of every method."""
    hold = steps // 4
    schedule = optax.join_schedules(
        [
            optax.constant_schedule(learning_rate),
            optax.cosine_decay_schedule(learning_rate, max(steps - hold, 1)),
        ],
        [hold],
    )
    return optax.adam(schedule, b1=0.9, b2=0.99)


def optimiser_per_field(**optimisers: Optimiser) -> Optimiser:
    """One optimiser for each field of a module, by the field's name."""
    transforms: Any = optimisers
    return optax.multi_transform(
        transforms, lambda tree: jax.tree_util.tree_map_with_path(lambda path, _: path[0].name, tree)
    )


def descend(optimiser: Optimiser, gradient: Any, opt_state: Any, params: Any) -> tuple[Any, Any]:
    """One step downhill: `(params, opt_state)`."""
    updates, opt_state = optimiser.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def ascend(optimiser: Optimiser, gradient: Any, opt_state: Any, params: Any) -> tuple[Any, Any]:
    """One step uphill: `(params, opt_state)`."""
    return descend(optimiser, jax.tree.map(lambda g: -g, gradient), opt_state, params)
