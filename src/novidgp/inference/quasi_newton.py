"""L-BFGS, one evaluation at a time.

A training step evaluates the bound and its gradient once. So the line search is spread over steps: `trial` is
where to look next, `judge` takes what was found there, and either accepts it and turns, or comes closer. The
objective must be the same function in every step: one batch, one draw of noise.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

MEMORY = 20
_ARMIJO = 1e-4
"""The share of the linear prediction by which the value must fall."""
_SHORTER = (0.1, 0.5)
"""The least and the most of its length that a rejected move keeps."""

Vector = Float[Array, " n"]
Scalar = Float[Array, ""]


class Search(NamedTuple):
    """The best point's value and gradient, the move from it that is being tried, and the curvature seen."""

    value: Scalar
    gradient: Vector
    direction: Vector
    length: Scalar
    moves: Float[Array, "h n"]
    turns: Float[Array, "h n"]
    count: Int[Array, ""]
    """Evaluations."""


def begin(point: Vector) -> Search:
    """The search before any evaluation: the first trial is the point itself, and it is accepted."""
    zero, past = jnp.zeros_like(point), jnp.zeros((MEMORY, point.size), point.dtype)
    value = jnp.asarray(jnp.finfo(point.dtype).max, point.dtype)
    return Search(value, zero, zero, jnp.ones_like(value), past, past, jnp.zeros((), jnp.int32))


def trial(search: Search, point: Vector) -> Vector:
    """Where to evaluate next; `point` is the best one."""
    return point + search.length * search.direction


def judge(search: Search, value: Scalar, gradient: Vector) -> tuple[Search, Bool[Array, ""]]:
    """The search after an evaluation at its trial, and whether the trial is the best point now."""
    slope = search.direction @ search.gradient
    predicted = search.length * slope
    finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
    accepted = finite & ~(value > search.value + _ARMIJO * predicted)

    move, turn = search.length * search.direction, gradient - search.gradient
    curved = accepted & (move @ turn > 1e-10 * jnp.sqrt((move @ move) * (turn @ turn)))

    def remember(past, new):
        return jnp.where(curved, jnp.concatenate([past[1:], new[None]]), past)

    moves, turns = remember(search.moves, move), remember(search.turns, turn)
    direction = -_inverse_hessian_product(moves, turns, gradient)
    unscaled = ~jnp.any(moves[-1] != 0)
    length = jnp.where(unscaled, 1.0 / jnp.linalg.norm(gradient), 1.0)

    # The parabola through value, slope and the value found; where that is not finite, the shortest move.
    parabola = -0.5 * predicted / (value - search.value - predicted)
    shorter = search.length * jnp.clip(jnp.where(finite, parabola, 0.0), *_SHORTER)
    kept = search._replace(length=shorter)
    moved = Search(value, gradient, direction, length.astype(value.dtype), moves, turns, search.count)
    chosen = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), moved, kept)
    return chosen._replace(count=search.count + 1), accepted


def _inverse_hessian_product(
    moves: Float[Array, "h n"], turns: Float[Array, "h n"], vector: Vector
) -> Vector:
    """The two-loop recursion. Pairs that are all zero have no effect."""
    products = jnp.sum(moves * turns, axis=1)
    rates = jnp.where(products > 0, 1.0 / jnp.where(products > 0, products, 1.0), 0.0)

    def back(vector, pair):
        move, turn, rate = pair
        weight = rate * (move @ vector)
        return vector - weight * turn, weight

    vector, weights = jax.lax.scan(back, vector, (moves, turns, rates), reverse=True)
    square = turns[-1] @ turns[-1]
    vector = jnp.where(square > 0, products[-1] / jnp.where(square > 0, square, 1.0), 1.0) * vector

    def forth(vector, pair):
        move, turn, rate, weight = pair
        return vector + (weight - rate * (turn @ vector)) * move, None

    return jax.lax.scan(forth, vector, (moves, turns, rates, weights))[0]
