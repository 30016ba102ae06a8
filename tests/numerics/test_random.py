"""The fast normal generator is standard normal, and independent along and between streams.

Keys are fixed, so the tests are deterministic. Tolerances are five standard errors of the statistic under
independence (chance 6e-7 each), widened where the largest of many is taken.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from novidgp.numerics.random import normal

N = 1_000_000
STREAMS = 10


@jax.jit
def stream(key):
    return normal(key, (N,), jnp.float32)


@pytest.fixture(scope="module")
def draws():
    """Ten million draws: seeds 0 to 4, and five keys split from one: both ways in which keys are made."""
    keys = [jax.random.key(seed) for seed in range(5)] + list(jax.random.split(jax.random.key(99), 5))
    return np.stack([np.asarray(stream(key)) for key in keys])


def test_never_infinite_in_ten_million_draws(draws):
    assert draws.size == 10_000_000
    assert np.isfinite(draws).all()
    # 23 bits: the outermost cell's centre is at probability 2^-24, 5.3 standard deviations out.
    assert 4.9 < np.abs(draws).max() < 5.4


def test_extreme_bits_stay_finite():
    uniform = jnp.array([2.0**-24, 1 - 2.0**-24], jnp.float32)
    extremes = np.sqrt(2.0) * jax.lax.erf_inv(2.0 * uniform - 1.0)
    np.testing.assert_allclose(extremes, scipy.stats.norm.ppf([2.0**-24, 1 - 2.0**-24]), rtol=1e-4)


def test_moments(draws):
    n = draws.size
    x = draws.astype(float).ravel()
    square = x * x
    # Standard errors of the first four raw moments of N(0, 1): sqrt of (1, 2, 15, 96) / n. Cutting the
    # tails at 5.3 takes 1e-4 off the fourth, a thirtieth of its standard error.
    assert abs(x.mean()) < 5 * np.sqrt(1 / n)
    assert abs(square.mean() - 1) < 5 * np.sqrt(2 / n)
    assert abs((square * x).mean()) < 5 * np.sqrt(15 / n)
    assert abs((square * square).mean() - 3) < 5 * np.sqrt(96 / n)


@pytest.mark.parametrize("index", [0, 7])
def test_distribution_function(draws, index):
    # Kolmogorov-Smirnov at n = 1e6; the grid of 2^-23 adds 1e-7 to a statistic of size 1e-3.
    assert scipy.stats.kstest(draws[index], "norm").pvalue > 1e-5


def test_tails_have_their_share(draws):
    for threshold in (2.0, 3.0, 4.0):
        p = 2 * scipy.stats.norm.sf(threshold)
        share = np.mean(np.abs(draws) > threshold)
        assert abs(share - p) < 5 * np.sqrt(p / draws.size)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8, 10, 100, 256, 1024, 65536])
def test_successive_counters_are_uncorrelated(draws, lag):
    x = draws[0].astype(float)
    a, b = x[:-lag], x[lag:]
    limit = 5 / np.sqrt(len(a))
    assert abs(np.mean(a * b)) < limit
    assert abs(np.mean((a * a - 1) * (b * b - 1)) / 2) < limit  # the squares: hidden dependence of size


def test_successive_pairs_fill_the_plane_evenly(draws):
    cells = np.minimum((scipy.stats.norm.cdf(draws[1].astype(float)) * 16).astype(int), 15)
    counts = np.bincount(cells[:-1:2] * 16 + cells[1::2], minlength=256)
    p = scipy.stats.chisquare(counts).pvalue
    assert 1e-5 < p < 1 - 1e-5  # disjoint pairs, so the counts are multinomial; too even is as bad


def test_keys_are_uncorrelated(draws):
    for x in (draws, draws.astype(np.float32) ** 2):
        correlation = np.corrcoef(x)[np.triu_indices(STREAMS, 1)]
        # The largest of 45: 5.5 standard errors keep the chance of any at 2e-6.
        assert np.abs(correlation).max() < 5.5 / np.sqrt(N)


def test_one_stream_is_no_shift_of_another(draws):
    n = 2**18
    spectra = np.fft.rfft(draws[:4, :n].astype(float))
    for i in range(4):
        for j in range(i + 1):
            correlation = np.fft.irfft(spectra[i] * np.conj(spectra[j]), n) / n
            if i == j:
                correlation[0] = 0.0
            # The largest of 2.6e5 lags and ten pairs: 2 * 2.6e6 * Phi(-7) = 7e-6.
            assert np.abs(correlation).max() < 7 / np.sqrt(n)


def test_streams_share_values_only_by_chance(draws):
    equal = np.sum(draws[0] == draws[1])
    # Cells of 2^-23: 0.12 coincidences are expected in a million; ten have a Poisson chance of 1e-16.
    assert equal < 10


def test_shape_is_only_a_reshaping_and_the_key_decides():
    key = jax.random.key(3)
    flat = normal(key, (24,), jnp.float32)
    np.testing.assert_array_equal(normal(key, (2, 3, 4), jnp.float32), flat.reshape(2, 3, 4))
    assert flat.dtype == jnp.float32
    assert not np.array_equal(flat, normal(jax.random.key(4), (24,), jnp.float32))
    assert normal(key, (), jnp.float32).shape == ()


def test_double_precision_comes_from_jax(x64):
    key = jax.random.key(3)
    draws = normal(key, (5,), jnp.float64)
    assert draws.dtype == jnp.float64
    np.testing.assert_array_equal(draws, jax.random.normal(key, (5,), jnp.float64))
