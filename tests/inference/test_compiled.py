"""What must hold of the compiled programs, whatever the numbers.

LAPACK calls are chosen when a program is lowered, so its StableHLO text shows them; nothing is compiled.
"""

import re

import jax
import jax.numpy as jnp
import pytest

from novidgp.inference import METHODS, make_method, prepare
from novidgp.local.class_layer import _corrected_block, label_loss
from novidgp.local.conditional import Neighbourhoods
from novidgp.local.gp import starting_gp
from novidgp.local.rows import _predict
from novidgp.local.training import error_loss
from novidgp.model.feature_map import FEATURE_MAP
from novidgp.posteriors.prepared import _draw
from support.small import ROWS, small_batch, small_model

LAPACK = re.compile(r"custom_call @lapack_\w+\(.*\) -> .*")
MATRIX = re.compile(r"tensor<((?:\d+x)+)f\d+>")


def batched_calls(lowered) -> list[str]:
    """The shapes of LAPACK operands with a batch axis longer than one."""
    calls = LAPACK.findall(lowered.as_text())
    assert calls, "kernel matrices are factorised, so the program must hold LAPACK calls"
    shapes = [shape for call in calls for shape in MATRIX.findall(call.rsplit(" : ", 1)[1])]
    assert shapes
    return [shape for shape in shapes if any(int(size) > 1 for size in shape.split("x")[:-3])]


@pytest.mark.parametrize("method", METHODS)
def test_no_lapack_call_is_batched(method):
    """Two batched LAPACK calls at once deadlock on two cores: each waits for the threads the other holds."""
    extras = {"features": FEATURE_MAP, "latent_dim": int(METHODS[method].uses_local_variable)}
    model = small_model(num_layers=3, kernel_sharing="separate", **extras)
    batch, key = small_batch(), jax.random.key(0)
    inference = prepare(make_method(method), ROWS, 10)
    state = jax.eval_shape(lambda key: inference.init(model, batch, key=key), key)
    step = jax.jit(lambda state, batch, key: inference.step(state, batch, key=key))
    assert batched_calls(step.lower(state, batch, key)) == []
    fitted = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(inference.fitted, state))
    assert batched_calls(_draw.lower(fitted, 8, key)) == []


@pytest.mark.usefixtures("x64")
def test_no_lapack_call_of_the_local_layer_is_batched():
    """Neither in training, where blocks of rows are sent off together, nor in prediction."""
    gp = starting_gp(2, 1.0, 1.0, "float32")
    rows = jnp.ones((6, 4))
    hoods, one = Neighbourhoods(jnp.ones((6, 4, 2)), rows, rows, rows), jnp.ones(6)
    assert batched_calls(error_loss.lower(gp, hoods, one, one, one)) == []
    assert batched_calls(_predict.lower(gp, hoods, one)) == []
    hoods, p = hoods._replace(residuals=jnp.ones((6, 4, 3))), jnp.ones((6, 3))
    assert batched_calls(label_loss.lower(gp, hoods, p, p, one)) == []
    assert batched_calls(_corrected_block.lower(gp, hoods, p)) == []


def test_a_batched_call_would_be_seen():
    matrices = jnp.stack([jnp.eye(5)] * 3)
    assert batched_calls(jax.jit(jnp.linalg.cholesky).lower(matrices)) == ["3x5x5x", "3x5x5x"]
    assert batched_calls(jax.jit(jnp.linalg.cholesky).lower(matrices[:1])) == []
