"""Snapshots: when they are taken, and that predictions are a mixture over them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from novidgp import DGPRegressor, load_model
from novidgp.dgp import Batch
from novidgp.inference.base import Fitted, Inference, stacked
from novidgp.inference.snapshots import with_snapshots
from novidgp.initialise import ModelConfig, build_model
from novidgp.posteriors import Delta
from novidgp.predictive import predictives
from novidgp.preprocessing import identity
from novidgp.train import _scorer

ROWS = np.random.default_rng(0).standard_normal((7, 2))
TARGETS = np.random.default_rng(1).standard_normal((7, 1))


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
    np.testing.assert_array_equal(fitted.earlier.model, kept)
    np.testing.assert_array_equal(fitted.members().posterior[:, 0], [*kept, done])


def several():
    """Three point estimates that differ in everything, and the mixture of them."""
    singles = []
    for seed, noise in enumerate((0.1, 0.5, 2.0)):
        model = build_model(ModelConfig(num_inducing=4, noise=noise), ROWS, seed=seed)
        draws = np.random.default_rng(seed).standard_normal
        point = tuple(jnp.asarray(draws((m, p)), jnp.float32) for m, p in model.inducing_shapes())
        singles.append(Fitted(model, Delta(point)))
    return singles, singles[-1]._replace(earlier=stacked(singles[:-1]))


def only_block(fitted, paths):
    scaling = identity(2), identity(1)
    ((rows, block),) = predictives(fitted, ROWS, scaling, paths, key=jax.random.key(0))
    return block, rows


def test_predictions_are_the_mixture_of_the_members():
    """Moments and densities by hand from the members'; each member has 400 paths here and 400 there, with
    other noise, hence the tolerance: a few of the largest standard errors, .02."""
    singles, mixture = several()
    blocks = [only_block(single, 400)[0] for single in singles]
    block, rows = only_block(mixture, 1200)
    assert len(block.latent.mean) == 1200
    means = np.stack([b.mean()[: rows.stop] for b in blocks])
    variances = np.stack([b.std()[: rows.stop] ** 2 for b in blocks])
    np.testing.assert_allclose(block.mean()[: rows.stop], means.mean(0), atol=0.1)
    np.testing.assert_allclose(block.std()[: rows.stop] ** 2, variances.mean(0) + means.var(0), rtol=0.1)
    densities = np.stack([b.log_prob(TARGETS)[: rows.stop] for b in blocks])
    expected = logsumexp(densities, axis=0) - np.log(3)
    np.testing.assert_allclose(block.log_prob(TARGETS)[: rows.stop], expected, atol=0.1)
    draws = block.sample(4000, path_key=jax.random.key(1), key=jax.random.key(2))[:, : rows.stop]
    np.testing.assert_allclose(draws.mean(0), block.mean()[: rows.stop], atol=0.15)
    np.testing.assert_allclose(draws.std(0), block.std()[: rows.stop], rtol=0.1)
    median = block.quantile(np.array([0.5]))[: rows.stop, 0]
    np.testing.assert_allclose(np.mean(draws < median, axis=0), 0.5, atol=0.05)


def test_validation_scores_the_mixture():
    singles, mixture = several()
    held = Batch(*(jnp.asarray(a, jnp.float32) for a in (ROWS, TARGETS)))
    score = _scorer(held, jax.random.key(0))
    alone = [score(single) for single in singles]
    assert score(mixture) <= np.mean(alone)  # Jensen
    same = singles[0]._replace(earlier=stacked([singles[0]] * 3))
    np.testing.assert_allclose(score(same), alone[0], rtol=1e-5)


def test_dsvi_can_keep_them_too_and_a_file_holds_them(tmp_path):
    options = {"inference": "dsvi", "num_inducing": 4, "max_steps": 340, "random_state": 0}
    plain = DGPRegressor(**options).fit(ROWS, TARGETS[:, 0])
    model = DGPRegressor(**options, inference_options={"snapshots": True}).fit(ROWS, TARGETS[:, 0])
    assert plain.snapshots_ is None
    close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4)  # another program, 340 steps
    jax.tree.map(close, model.model_, plain.model_)
    assert np.any(model.predict(ROWS) != plain.predict(ROWS))
    model.save(tmp_path / "model.novi")
    np.testing.assert_array_equal(load_model(tmp_path / "model.novi").predict(ROWS), model.predict(ROWS))
