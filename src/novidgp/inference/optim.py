"""Optimisers that the methods share.

Adam works on all parameters as one vector: a compiled step then has one update instead of one for every
array, which halves what the optimisers add to its compile time. An `Optimiser` is any optax transformation;
optax's own type of parameters does not admit modules.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from novidgp.model.dgp import Count

Optimiser = Any
Rate = float | Float[Array, ""]


def decay(steps: Count) -> Callable[[Any], Array]:
    """The schedule of every method: 1 for a quarter of the steps, then cosine decay to 0.

    `optax.cosine_decay_schedule` needs a number of steps that is known when the program is compiled.
    """
    hold = steps // 4

    def at(count):
        share = (count - hold) / jnp.maximum(steps - hold, 1)
        return 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip(share, 0.0, 1.0)))

    return at


def _adam_direction(steps: Count) -> Optimiser:
    """Adam's direction, with the schedule in its length."""
    scaling = optax.scale_by_schedule(decay(steps))
    return optax.flatten(optax.chain(optax.scale_by_adam(b1=0.9, b2=0.99), scaling))


def adam(learning_rate: Rate, steps: Count) -> Optimiser:
    """Adam with the schedule of every method: a constant rate for a quarter of the steps, then cosine
    decay."""
    return optax.chain(_adam_direction(steps), optax.scale(-learning_rate))


def adam_per_field(steps: Count, **rates: Rate) -> Optimiser:
    """Adam with one learning rate for each field of a module, by the field's name."""

    def scale(updates, state, params=None):
        del params
        return jax.tree_util.tree_map_with_path(lambda path, u: -rates[path[0].name] * u, updates), state

    scaling = optax.GradientTransformation(lambda params: optax.EmptyState(), scale)
    return optax.chain(_adam_direction(steps), scaling)


def descend(optimiser: Optimiser, gradient: Any, opt_state: Any, params: Any) -> tuple[Any, Any]:
    """One step downhill: `(params, opt_state)`."""
    updates, opt_state = optimiser.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def ascend(optimiser: Optimiser, gradient: Any, opt_state: Any, params: Any) -> tuple[Any, Any]:
    """One step uphill: `(params, opt_state)`. Adam's direction changes its sign with the gradient's."""
    updates, opt_state = optimiser.update(gradient, opt_state, params)
    return jax.tree.map(lambda p, u: p - u, params, updates), opt_state


def norm(gradient: Any) -> Float[Array, ""]:
    """The Euclidean norm of a gradient."""
    return jnp.linalg.norm(ravel_pytree(gradient)[0])
