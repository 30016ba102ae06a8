"""R-hat and effective sample size against closed forms for AR(1) chains, and against blackjax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size as blackjax_ess
from blackjax.diagnostics import potential_scale_reduction

from novidgp.cli.fit import mixing
from novidgp.inference.mixing import effective_sample_size, rank_normalise, split_chains, split_rhat, summary
from novidgp.posteriors.draws import Delta, Empirical


def autoregression(correlation, chains, length, *shape, seed=0):
    """Stationary chains `x_t = rho x_(t-1) + noise` of unit variance."""
    rng = np.random.default_rng(seed)
    x = np.empty((chains, length, *shape))
    x[:, 0] = rng.standard_normal((chains, *shape))
    for t in range(1, length):
        noise = np.sqrt(1 - correlation**2) * rng.standard_normal((chains, *shape))
        x[:, t] = correlation * x[:, t - 1] + noise
    return x


@pytest.mark.parametrize("rank", [False, True])
@pytest.mark.parametrize("correlation", [-0.3, 0.0, 0.5, 0.9])
def test_effective_sample_size_of_an_autoregression(correlation, rank):
    """`n (1 - rho) / (1 + rho)`. Eight chains of 2,000 draws: one estimate scatters by 2 % (rho = 0) to
    9 % (rho = 0.9), the mean over 20 elements by 2 % at most; Geyer's truncation biases by 1.5 %."""
    x = autoregression(correlation, 8, 2_000, 20)
    truth = 16_000 * (1 - correlation) / (1 + correlation)
    sizes = effective_sample_size(x, rank=rank)
    assert sizes.shape == (20,)
    np.testing.assert_allclose(sizes, truth, rtol=0.3)
    np.testing.assert_allclose(sizes.mean(), truth, rtol=0.06)


def test_both_agree_with_blackjax():
    """blackjax does not split chains, so it gets them split; its R-hat is the same formula, its effective
    sample size the same Geyer sequence up to how it ends."""
    x = autoregression(0.7, 4, 400, 5) + 0.1 * np.arange(4)[:, None, None]
    halves = jnp.asarray(split_chains(x), jnp.float32)
    theirs = jax.jit(lambda halves: (potential_scale_reduction(halves), blackjax_ess(halves)))(halves)
    np.testing.assert_allclose(split_rhat(x, rank=False), theirs[0], rtol=1e-4)
    np.testing.assert_allclose(effective_sample_size(x, rank=False), theirs[1], rtol=0.05)


def test_rhat_is_one_for_chains_that_agree_and_not_for_others():
    x = autoregression(0.0, 2, 20_000)
    np.testing.assert_allclose(split_rhat(x), 1.0, atol=2e-3)
    apart = x + np.array([[-1.0], [1.0]])
    # Half-chain means -1, -1, 1, 1 have variance 4/3.
    np.testing.assert_allclose(split_rhat(apart, rank=False), np.sqrt(1 + 4 / 3), rtol=0.02)
    drifting = x + np.linspace(-2, 2, 20_000)
    assert split_rhat(drifting) > 1.3


def test_ranks_make_heavy_tails_harmless():
    x = np.random.default_rng(0).standard_cauchy((4, 1_000, 3))
    scores = rank_normalise(x)
    assert np.all(np.abs(scores) < 5)
    np.testing.assert_array_equal(np.argsort(scores[..., 0].ravel()), np.argsort(x[..., 0].ravel()))
    np.testing.assert_allclose(rank_normalise(np.cbrt(x)), scores)  # a monotone map changes no rank
    np.testing.assert_allclose(split_rhat(x), 1.0, atol=0.02)


def test_constants_and_short_chains():
    x = np.ones((2, 10, 3))
    assert np.isnan(split_rhat(x)).all()
    assert np.isnan(effective_sample_size(x)).all()
    with pytest.raises(ValueError, match=r"\(2, 3\) must be"):
        split_rhat(np.ones((2, 3)))


def chains(*layers):
    return Empirical(tuple(jnp.asarray(draws) for draws in layers))


def test_a_posterior_of_draws_is_summarised_by_layer():
    good, bad = autoregression(0.0, 4, 200, 6, 2), autoregression(0.0, 4, 200, 6, 1)
    bad = bad + np.arange(4)[:, None, None, None]
    first, last = summary(chains(good, bad))
    assert first.draws == last.draws == 800
    assert first.rhat_median < 1.02 < 1.3 < last.rhat_median <= last.rhat_max
    assert first.ess_median > 600
    assert last.ess_min <= last.ess_median < 50
    still = summary(chains(np.zeros((2, 8, 3, 1))))[0]
    assert (still.rhat_max, still.ess_min) == (np.inf, 0.0)
    with pytest.raises(TypeError, match="Delta keeps no draws"):
        summary(Delta((jnp.zeros((2, 1)),)))


def test_the_fit_command_reports_mixing_of_chains_only():
    lines = mixing(chains(autoregression(0.0, 4, 50, 6, 2), autoregression(0.0, 4, 50, 6, 1)))
    assert [line[:20] for line in lines] == ["layer 1: 200 draws, ", "layer 2: 200 draws, "]
    assert mixing(Delta((jnp.zeros((2, 1)),))) == []
