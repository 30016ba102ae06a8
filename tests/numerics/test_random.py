"""Random numbers: fast normal draws are normal and independent, fast keys too, and named streams all differ.

Keys are fixed, so the tests are deterministic. Tolerances are five standard errors of the statistic under
independence (chance 6e-7 each), widened where the largest of many is taken.
"""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from novidgp.numerics import random
from novidgp.numerics.random import Streams, fast_key, folded, normal, seed_key

N = 1_000_000
STREAMS = 10


@jax.jit
def stream(key):
    return normal(key, (N,), jnp.float32)


@pytest.fixture(scope="module")
def draws():
    """Ten million draws, from all ways in which keys are made: seeds, splits, and the same of fast keys."""
    root = jax.random.key(99)
    keys = [jax.random.key(seed) for seed in range(3)] + list(jax.random.split(root, 2))
    keys += [fast_key(jax.random.key(seed)) for seed in range(3, 5)] + list(
        jax.random.split(fast_key(root), 3)
    )
    return np.stack([np.asarray(stream(key)) for key in keys])


def test_never_infinite_in_ten_million_draws(draws):
    assert draws.size == 10_000_000
    assert np.isfinite(draws).all()
    # 23 bits: the outermost cell's centre is at probability 2^-24, 5.3 standard deviations out.
    assert 4.9 < np.abs(draws).max() < 5.4


def test_extreme_bits_stay_finite(monkeypatch):
    monkeypatch.setattr(random, "_scramble", lambda bits: jnp.array([0, 2**32 - 1], jnp.uint32))
    extremes = normal(jax.random.key(0), (2,), jnp.float32)
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


# --- fast keys --------------------------------------------------------------------------------------

STEPS = 100_000


def test_the_noise_of_successive_steps_is_normal_and_uncorrelated():
    """As training draws it: a key per step by `fold_in`, split between purposes, a few draws each."""

    @jax.jit
    def draw(step):
        keys = jax.random.split(jax.random.fold_in(fast_key(jax.random.key(5)), step), 3)
        return jnp.concatenate([normal(key, (4,), jnp.float32) for key in keys])

    x = np.asarray(jax.vmap(draw)(jnp.arange(STEPS)), float)
    assert scipy.stats.kstest(x.ravel(), "norm").pvalue > 1e-5
    for values in (x, (x**2 - 1) / np.sqrt(2)):
        for lag in (0, 1, 2, 3, 64):
            products = values[: STEPS - lag].T @ values[lag:] / (STEPS - lag)
            products -= np.eye(12) if lag == 0 else 0.0
            off = products[~np.eye(12, dtype=bool)] if lag == 0 else products
            # The largest of 1,416 in all: 6.5 standard errors keep the chance of any at 1e-7.
            assert np.abs(off).max() < 6.5 / np.sqrt(STEPS - lag)


def test_uniform_bits_of_fast_keys_are_even():
    """Every bit of 100,000 words and of 100,000 keys' first words is set half of the time."""
    key = fast_key(jax.random.key(6))
    words = jax.random.bits(key, (STEPS,), jnp.uint32)
    first = jax.vmap(lambda i: jax.random.bits(jax.random.fold_in(key, i), (), jnp.uint32))(jnp.arange(STEPS))
    for sample in (words, first):
        share = np.mean(np.asarray(sample)[:, None] >> np.arange(32, dtype=np.uint32) & 1, axis=0)
        # The largest of 32: 5.5 standard errors, each half of 1 / sqrt(n).
        assert np.abs(share - 0.5).max() < 5.5 * 0.5 / np.sqrt(STEPS)


def test_children_of_a_fast_key_all_differ():
    key = fast_key(jax.random.key(7))
    split = jax.random.key_data(jax.random.split(key, 1000))
    folded = jax.random.key_data(jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(1000)))
    both = np.concatenate([split, folded, jax.random.key_data(key)[None]])
    assert len(np.unique(both, axis=0)) == 2001


# --- named streams ----------------------------------------------------------------------------------

SOURCES = Path(random.__file__).resolve().parents[1]


def stream_names():
    """All names that the library asks streams for, as `(method, name)`."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="key" | "numpy" | "integer" as kind),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    found.add((kind, name))
    return found


def key_words(key):
    return tuple(np.ravel(jax.random.key_data(key)).tolist())


def test_keys_of_streams_differ_from_each_other_and_from_splits_of_the_root():
    names = sorted({name for _, name in stream_names()})
    assert {"model", "training", "validation"} <= set(names)
    root = jax.random.key(11)
    streams = Streams(root)
    words = {key_words(streams.key(name, index)) for name in names for index in range(5)}
    assert len(words) == 5 * len(names)
    splits = jax.random.split(root, 64)  # shorter splits are its beginning
    folded = jax.vmap(lambda index: jax.random.fold_in(root, index))(jnp.arange(64))
    assert words.isdisjoint({key_words(root), *map(key_words, splits), *map(key_words, folded)})


def test_numpy_streams_differ_from_each_other_and_from_generators_of_the_seed():
    names = sorted({name for _, name in stream_names()})
    streams = Streams(jax.random.key(11))
    firsts = [streams.numpy(name, index).integers(2**63) for name in names for index in range(20)]
    firsts += [np.random.default_rng([11, index]).integers(2**63) for index in range(20)]
    assert len(set(firsts)) == len(names) * 20 + 20


def test_a_name_is_used_by_one_kind_of_numpy_stream():
    """`integer` draws from `numpy` of the same name."""
    kinds = stream_names()
    assert not {n for k, n in kinds if k == "numpy"} & {n for k, n in kinds if k == "integer"}


def test_the_root_decides_and_streams_repeat():
    first, again, other = (Streams(jax.random.key(seed)) for seed in (1, 1, 2))
    assert key_words(first.key("model")) == key_words(again.key("model")) != key_words(other.key("model"))
    assert first.integer("predictions") == again.integer("predictions") != other.integer("predictions")
    assert 0 <= first.integer("predictions") < 2**31
    assert first.numpy("layers").random() == again.numpy("layers").random() != other.numpy("layers").random()


def test_streams_can_be_made_while_tracing():
    root = jax.random.key(3)
    traced = jax.jit(lambda: jax.random.key_data(Streams(root).key("model")))()
    np.testing.assert_array_equal(traced, jax.random.key_data(Streams(root).key("model")))


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**32 - 1])
def test_keys_made_on_the_host_are_those_of_jax(seed):
    expected = jax.random.key(np.uint32(seed))
    assert np.array_equal(jax.random.key_data(seed_key(seed)), jax.random.key_data(expected))
    for number in (0, 1, 7, 2**32 - 1):
        there, here = jax.random.fold_in(expected, np.uint32(number)), folded(seed_key(seed), number)
        assert np.array_equal(jax.random.key_data(here), jax.random.key_data(there))
    for number, part in enumerate(jax.random.split(expected)):
        assert np.array_equal(jax.random.key_data(folded(expected, number)), jax.random.key_data(part))
