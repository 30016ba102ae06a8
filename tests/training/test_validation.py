"""The validation score: the mixture's log density of the observed targets, in blocks of rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.model.dgp import Batch
from novidgp.numerics.trees import stacked
from novidgp.posteriors.fitted import Fitted
from novidgp.posteriors.gaussian import GaussianPosterior, gaussian_start
from novidgp.training import validation
from support.small import ROWS, small_batch, small_model

KEY = jax.random.key(0)
DATA = small_batch()


def start(seed=0, **settings):
    model = small_model(seed=seed, **settings)
    return Fitted(model, GaussianPosterior(*gaussian_start(model.inducing_start(), 0.1, 0.3)))


@jax.jit
def densities(fitted):
    """Of every row on every path, with the noise of the first block."""
    path_key, likelihood_key = jax.random.split(jax.random.split(KEY, 1)[0])
    moments = fitted.posterior.propagate(fitted.model, DATA.x, 20, key=path_key)
    return jnp.exp(fitted.model.likelihood.log_prob(DATA.y, *moments, key=likelihood_key))[..., 0]


@pytest.mark.parametrize("members", [1, 2])
def test_the_score_is_the_mixture_density_of_observed_targets(members):
    """Over the paths of all members. Float32 densities of order one leave 1e-4."""
    parts = [start(seed) for seed in range(members)]
    fitted = parts[-1]
    if members > 1:
        fitted = fitted._replace(ensemble=stacked(parts[:-1]))
    y = DATA.y.at[3].set(jnp.nan)
    score = validation.scorer(Batch(DATA.x, y), KEY)(fitted)
    mixture = np.mean([densities(part).mean(0) for part in parts], axis=0)
    np.testing.assert_allclose(score, -np.log(mixture)[np.arange(ROWS) != 3].mean(), rtol=1e-4)


def test_validation_in_blocks_counts_every_row_once(monkeypatch):
    """One layer has no path noise, so that blocks of seven give the score of the whole."""
    fitted = start(num_layers=1)
    whole = validation.scorer(DATA, KEY)(fitted)
    monkeypatch.setattr(validation, "_BLOCK_ROWS", 7)
    blocks = validation.scorer(DATA, KEY)(fitted)
    np.testing.assert_allclose(blocks, whole, rtol=1e-5)
