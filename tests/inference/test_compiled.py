"""What must hold of the compiled programs, whatever the numbers."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference import LATENT_METHODS, METHODS, make_inference
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import Batch
from novidgp.model.feature_map import FEATURES
from novidgp.prediction.predictive import _propagate

LAPACK = re.compile(r"custom_call_target=\"lapack_\w+\".*?operand_layout_constraints=\{\w+\[([\d,]+)\]")


@pytest.mark.parametrize("method", METHODS)
def test_no_lapack_call_is_batched(method):
    """Two batched LAPACK calls at once deadlock on two cores: each waits for the threads the other holds."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 3))
    extras = {"features": FEATURES, "latent_dim": int(method in LATENT_METHODS)}
    config = ModelConfig(num_layers=3, num_inducing=5, kernel_sharing="separate", **extras)
    batch = Batch(jnp.asarray(x, jnp.float32), jnp.asarray(x[:, :1], jnp.float32))
    inference = make_inference(method, len(x), 10)
    model = build_model(config, x, seed=0)
    state = jax.eval_shape(lambda key: inference.init(model, batch, key=key), jax.random.key(0))
    step = jax.jit(lambda state, batch, key: inference.step(state, batch, key=key))
    check_lapack(step.lower(state, batch, jax.random.key(0)))
    predict = jax.jit(lambda fitted, x, key: _propagate(fitted, x, 8, key))
    check_lapack(predict.lower(jax.eval_shape(inference.fitted, state), batch.x, jax.random.key(0)))


def check_lapack(lowered):
    found = LAPACK.findall(lowered.compile().as_text())
    assert found, "kernel matrices are factorised, so the program must hold LAPACK calls"
    assert all(np.prod([int(size) for size in shape.split(",")][:-2]) == 1 for shape in found)
