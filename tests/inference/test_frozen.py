"""Inference with the model held fixed."""

import jax
import pytest

from novidgp.inference import METHODS, Frozen, MaximumLikelihood
from novidgp.inference.frozen import model_of
from support.small import ROWS, small_batch, small_model


@pytest.mark.parametrize("name", METHODS)
def test_a_step_hands_the_model_through_and_moves_the_rest(name):
    """Read from the traced step: the model's outputs *are* its inputs, and the posterior's are not."""
    model, batch, key = small_model(), small_batch(), jax.random.key(0)
    inference = Frozen(METHODS[name]()).algorithm(ROWS, 10)
    state = jax.eval_shape(lambda key: inference.init(model, batch, key=key), key)
    leaves, structure = jax.tree.flatten(state)

    def step(*leaves):
        return jax.tree.leaves(inference.step(jax.tree.unflatten(structure, leaves), batch, key=key)[0])

    jaxpr = jax.make_jaxpr(step)(*leaves).jaxpr
    held = [a is b for a, b in zip(jaxpr.invars, jaxpr.outvars, strict=True)]
    held = jax.tree.unflatten(structure, held)
    assert all(jax.tree.leaves(model_of(held)))
    assert not any(jax.tree.leaves(posterior_of(held)))


def posterior_of(state):
    """What a method infers about V, wherever its state has it."""
    for holder in ("players", "fitted"):
        state = getattr(state, holder, state)
    return next(
        getattr(state, name) for name in ("generator", "posterior", "position") if hasattr(state, name)
    )


def test_a_frozen_method_is_compared_by_value():
    assert Frozen(MaximumLikelihood(3)) == Frozen(MaximumLikelihood(3)) != Frozen(MaximumLikelihood(4))
    assert not Frozen(METHODS["novi"]()).keeps_snapshots(10)
