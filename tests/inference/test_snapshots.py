"""Snapshots: when they are taken, and that predictions are a mixture over them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from novidgp import DGPRegressor, load_model
from novidgp.inference.base import Fitted, Inference, stacked
from novidgp.inference.ensembles import with_snapshots
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import Batch
from novidgp.numerics.scaling import identity
from novidgp.posteriors.base import Delta
from novidgp.prediction.predictive import Predictive, _propagate
from novidgp.training.loop import _scorer

ROWS = np.random.default_rng(0).standard_normal((7, 2))
TARGETS = np.random.default_rng(1).standard_normal((7, 1))
KEY = jax.random.key(0)


def counting():
    """A method whose model is the number of its steps."""
    return Inference(
        lambda model, batch, *, key: jnp.zeros(()),
        lambda state, batch, *, key: (state + 1, {"loss": state}),
        lambda state: Fitted(state, state[None]),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("planned", "done", "kept"),
    [
        (1000, 1000, [400, 600, 800]),
        (2000, 2000, [800, 1200, 1600]),
        (1000, 500, [400, 500, 500]),  # interrupted
        (500, 500, [300, 300, 400]),
        (100, 100, [100, 100, 100]),  # not settled: all are the last
    ],
)
def test_snapshots_are_of_the_steps_they_should_be(planned, done, kept):
    inference = with_snapshots(counting(), planned)
    trail = inference.init(None, None, key=None)
    trail = jax.lax.fori_loop(0, done, lambda _, s: inference.step(s, None, key=None)[0], trail)
    fitted = inference.fitted(trail)
    assert fitted.model == done
    np.testing.assert_array_equal(fitted.others.model, kept)
    np.testing.assert_array_equal(fitted.members().posterior[:, 0], [*kept, done])


def several():
    """Three point estimates that differ in everything, and the mixture of them."""
    singles = []
    for seed, noise in enumerate((0.1, 0.5, 2.0)):
        model = build_model(ModelConfig(num_inducing=4, noise=noise), ROWS, seed=seed)
        draws = np.random.default_rng(seed).standard_normal
        point = tuple(jnp.asarray(draws((m, p)), jnp.float32) for m, p in model.inducing_shapes())
        singles.append(Fitted(model, Delta(point)))
    return singles, singles[-1]._replace(others=stacked(singles[:-1]))


def predictive(fitted, paths, key):
    return Predictive(*_propagate(fitted, jnp.asarray(ROWS, jnp.float32), paths, key), identity(1), KEY)


def test_predictions_are_the_mixture_of_the_members():
    """Moments and densities by hand from those of each member with its own noise: rounding alone differs.

    Draws are compared with them within 5 standard errors.
    """
    singles, mixture = several()
    keys = jax.random.split(KEY, len(singles))
    parts = [predictive(single, 40, key) for single, key in zip(singles, keys, strict=True)]
    whole = predictive(mixture, 120, KEY)
    means, variances = np.stack([p.mean() for p in parts]), np.stack([p.std() ** 2 for p in parts])
    np.testing.assert_allclose(whole.mean(), means.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(whole.std() ** 2, variances.mean(0) + means.var(0), rtol=1e-4)
    densities = np.stack([p.log_prob(TARGETS) for p in parts])
    np.testing.assert_allclose(whole.log_prob(TARGETS), logsumexp(densities, axis=0) - np.log(3), rtol=1e-4)
    draws = whole.sample(4000, path_key=jax.random.key(1), key=jax.random.key(2))
    assert np.all(np.abs(draws.mean(0) - whole.mean()) < 5 * whole.std() / np.sqrt(4000))
    median = whole.quantile(np.array([0.5]))[:, 0]
    np.testing.assert_allclose(np.mean(draws < median, axis=0), 0.5, atol=5 * 0.5 / np.sqrt(4000))


def test_validation_scores_the_mixture():
    """Of one row, with the same noise for all members: the log of the mean density, but for rounding."""
    singles, mixture = several()
    score = _scorer(Batch(*(jnp.asarray(a[:1], jnp.float32) for a in (ROWS, TARGETS))), KEY)
    alone = np.array([score(single) for single in singles])
    np.testing.assert_allclose(score(mixture), np.log(3) - logsumexp(-alone), rtol=1e-5)


def test_dsvi_can_keep_them_too_and_a_file_holds_them(tmp_path):
    options = {"inference": "dsvi", "num_inducing": 4, "max_steps": 340, "random_state": 0}
    plain = DGPRegressor(**options).fit(ROWS, TARGETS[:, 0])
    model = DGPRegressor(**options, inference_options={"snapshots": True}).fit(ROWS, TARGETS[:, 0])
    assert plain.others_ is None
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)  # another program, 340 steps
    jax.tree.map(close, model.model_, plain.model_)
    assert np.any(model.predict(ROWS) != plain.predict(ROWS))
    model.save(tmp_path / "model.novi")
    np.testing.assert_array_equal(load_model(tmp_path / "model.novi").predict(ROWS), model.predict(ROWS))
