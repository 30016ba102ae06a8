"""Prepared prediction against the posterior's own propagation of one row, in double precision.

Both are the same arithmetic in another order: the basis is rotated, products and sums are taken together. The
jitter is 1e-8, so that kernel matrices of condition 1e8 leave eight digits at worst.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.model.build import ModelConfig, build_model
from novidgp.model.feature_map import FEATURE_MAP
from novidgp.numerics.compilation import COMPILER_OPTIONS
from novidgp.numerics.nets import NetworkShape
from novidgp.numerics.random import fast_key
from novidgp.numerics.trees import stacked
from novidgp.posteriors.draws import Empirical
from novidgp.posteriors.fitted import Fitted
from novidgp.posteriors.gaussian import GaussianPosterior, gaussian_start
from novidgp.posteriors.generators import smooth_generator
from novidgp.posteriors.prepared import hidden_features, prepare, propagate
from support.small import small_model

pytestmark = pytest.mark.usefixtures("x64")
jit = functools.partial(jax.jit, compiler_options=COMPILER_OPTIONS)
PATHS = 7
KEY = jax.random.key(3)
X = np.random.default_rng(1).normal(size=(5, 2))


def start(model):
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.normal(size=shape)) for shape in model.inducing_shapes())


def gaussian(model):
    """One scale above the prior's and one below, so that the weights of the rotation have both signs."""
    mean, diagonal, lower = gaussian_start(start(model), 1.5, 0.3)
    rng = np.random.default_rng(1)
    return GaussianPosterior(
        mean, diagonal, tuple(0.2 * jnp.asarray(rng.normal(size=t.shape)) for t in lower)
    )


def generator(model):
    stds = {"initial_hidden_std": 0.4, "initial_final_std": 0.2}
    shape = NetworkShape(width=8, depth=1, activation="tanh")
    return smooth_generator(start(model), shape, noise_dim=3, **stds, key=jax.random.key(8))


def chains(model):
    return Empirical(tuple(jnp.stack([jnp.stack([v, -v, 2.0 * v])] * 2) for v in start(model)))


def image_model(**settings):
    layers = (
        {"kind": "conv", "size": 3, "stride": 1, "maps": 2, "pool": 1},
        {"kind": "sum", "size": 2, "stride": 1, "location": True},
    )
    config = ModelConfig(num_inducing=5, dtype="float64", image=(6, 5, 1), layers=layers, num_classes=3)
    config = config._replace(likelihood="softmax", **settings)
    images = np.random.default_rng(2).normal(size=(12, 30))
    return build_model(config, images, key=jax.random.key(0)), images[:4]


CASES = {
    "gaussian": ({}, gaussian),
    "generator": ({}, generator),
    "chains": ({}, chains),
    "one-layer": ({"num_layers": 1}, gaussian),
    "three-layers-separate": (
        {"num_layers": 3, "kernel": "rbf+matern32", "kernel_sharing": "separate"},
        gaussian,
    ),
    "shared-kernel": ({"num_targets": 2, "kernel_sharing": "shared", "hidden_dim": 3}, gaussian),
    "unwhitened": ({"whiten": False}, gaussian),
    "local-variable": ({"latent_dim": 1}, generator),
    "feature-map": ({"features": FEATURE_MAP}, gaussian),
}


def one_by_one(fitted, x, paths=PATHS, key=KEY):
    """Moments of every row alone, from the posterior's own propagation."""
    propagated = jit(lambda row: fitted.posterior.propagate(fitted.model, row, paths, key=key))
    parts = [propagated(row[None]) for row in x]
    return [np.concatenate([np.broadcast_to(p[i], p.mean.shape) for p in parts], axis=1) for i in (0, 1)]


def at(fitted, x, paths=PATHS, key=KEY):
    return jit(propagate)(prepare(fitted, paths, key=key)[1], jnp.asarray(x))


def mean_path(model, x, v):
    """The last layer's inputs where every hidden layer follows its mean and a local variable is zero."""
    h = x if model.feature_map is None else model.feature_map(x)
    if model.local_variable is not None:
        h = model.local_variable.append(h, jnp.zeros((1, len(x), model.local_variable.width), x.dtype))
    for layer, inducing in zip(model.layers[:-1], v[:-1], strict=True):
        h = layer.conditional(h, inducing).mean
    return h.reshape(len(x), -1)


@pytest.mark.parametrize("case", CASES)
def test_prepared_paths_are_those_of_the_posterior(case):
    """And the hidden features follow the layers' means, at the mean of the draws that stand for the
    posterior's."""
    settings, posterior = CASES[case]
    model = small_model("float64", **settings)
    fitted = Fitted(model, posterior(model))
    moments, features = at(fitted, X)
    for found, expected in zip(moments, one_by_one(fitted, X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    if len(model.layers) == 1:
        assert features is None
        return
    draws = model.white(fitted.posterior.sample(256, key=fast_key(jax.random.key(0))))
    centre = tuple(jnp.mean(v, axis=0, keepdims=True) for v in draws)
    expected = jit(lambda x: mean_path(model, x, centre))(jnp.asarray(X))
    np.testing.assert_allclose(features, expected, rtol=1e-7, atol=1e-9)
    alone = jit(hidden_features)(prepare(fitted, PATHS, key=KEY)[1], jnp.asarray(X))
    np.testing.assert_allclose(alone, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("posterior", [gaussian, chains], ids=["gaussian", "chains"])
def test_convolutional_layers_too(posterior):
    model, images = image_model()
    fitted = Fitted(model, posterior(model))
    moments, _ = at(fitted, images)
    for found, expected in zip(moments, one_by_one(fitted, images), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_members_have_paths_and_noise_of_their_own():
    """Seven paths through three members are three each, with the keys of a split."""
    singles = []
    for seed in range(3):
        model = small_model("float64", seed=seed)
        singles.append(Fitted(model, gaussian(model)))
    mixture = singles[-1]._replace(ensemble=stacked(singles[:-1]))
    moments, _ = at(mixture, X)
    parts = [
        one_by_one(single, X, 3, key) for single, key in zip(singles, jax.random.split(KEY, 3), strict=True)
    ]
    for found, expected in zip(moments, map(np.concatenate, zip(*parts, strict=True)), strict=True):
        assert len(found) == 9
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_single_precision_is_no_worse_for_being_prepared():
    """Errors against double precision of the same posterior, with and without: within a factor of two.

    A smooth kernel with close inducing points, where single precision has little to spare."""
    settings = {"num_inducing": 15, "kernel": "rbf", "lengthscale": 1.5}
    with jax.enable_x64(False):
        model = small_model(**settings)
        single = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), gaussian(model))
        fitted = Fitted(model, single)
        prepared = [np.asarray(m, float) for m in at(fitted, X.astype(np.float32))[0]]
        direct = one_by_one(fitted, X.astype(np.float32))
        noise = functools.partial(np.asarray, dtype=np.float64)
    exact = one_by_one(jax.tree.map(noise, fitted), X.astype(np.float32).astype(float))
    for found, plain, expected in zip(prepared, direct, exact, strict=True):
        assert np.abs(found - expected).max() < 2.0 * np.abs(plain - expected).max() + 1e-4
