"""The six likelihoods against SciPy's densities, dense integration over the latent, and Monte Carlo.

Dense integration is the trapezoidal rule on 4001 points over twelve standard deviations: for integrands this
smooth it is exact to rounding. Where the library uses 20-node Gauss-Hermite quadrature, the tolerance is that
rule's error at the latent spread used here, as stated.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from novidgp.model.likelihoods import LIKELIHOODS, Softmax

T, N, CLASSES = 2, 5, 3
NOISE = 0.6
DF = 5.0
SCALARS = ("gaussian", "student-t", "bernoulli", "poisson")
DISCRETE = {"bernoulli": np.arange(2.0), "poisson": np.arange(60.0)}
KEY = 0
# Error of 20 nodes for f ~ N(., v <= 0.4), three times what NumPy's own rule shows at these points: 2e-7
# for exp(-exp f); 3e-6 for the t density, whose poles lie scale * sqrt(df) = 1.3 off the real line, two
# latent standard deviations. Closed forms, and log Phi, are exact to rounding. A wrong node, weight or
# scale would show at 1e-2.
QUADRATURE = {"gaussian": 1e-12, "student-t": 1e-5, "bernoulli": 1e-12, "poisson": 6e-7}


def latents(name, seed=0):
    rng = np.random.default_rng(seed)
    width = LIKELIHOODS[name].num_functions(T, CLASSES)
    return 0.7 * rng.standard_normal((N, width)), rng.uniform(0.05, 0.4, (N, width))


def targets(name, seed=1):
    rng = np.random.default_rng(seed)
    if name in DISCRETE:
        return rng.integers(0, 2 if name == "bernoulli" else 6, (N, T)).astype(float)
    return 1.5 * rng.standard_normal((N, T))


def make(name, dtype="float64", targets=T):
    return LIKELIHOODS[name].start(targets, noise=NOISE, count_rate=1.0, dtype=dtype)


def density(name, y, f):
    """SciPy's log p(y | f)."""
    return {
        "gaussian": lambda: scipy.stats.norm.logpdf(y, f, NOISE),
        "student-t": lambda: scipy.stats.t.logpdf(y, DF, f, NOISE),
        "bernoulli": lambda: scipy.stats.norm.logcdf((2 * y - 1) * f),
        "poisson": lambda: scipy.stats.poisson.logpmf(y, np.exp(f)),
    }[name]()


def grid(mean, variance):
    """Points over N(mean, variance) on a leading axis, and the weights of an integral against it."""
    t = np.linspace(-12, 12, 4001).reshape(-1, *([1] * mean.ndim))
    return mean + np.sqrt(variance) * t, scipy.stats.norm.pdf(t) * (t[1] - t[0])


@jax.jit
def sample(likelihood, f, key):
    return likelihood.sample(f, key=key)


def evaluate(likelihood, y, mean, variance):
    key = jax.random.key(KEY)
    return jax.jit(
        lambda y, m, v: (
            likelihood.expected_log_prob(y, m, v, key=key),
            likelihood.log_prob(y, m, v, key=key),
            likelihood.moments(m, v),
        )
    )(y, mean, variance)


@pytest.mark.parametrize("name", SCALARS)
def test_expectations_agree_with_dense_integration(name, x64):
    (mean, variance), y = latents(name), targets(name)
    expected, log_prob, (y_mean, y_variance) = evaluate(make(name), y, mean, variance)
    f, weights = grid(mean, variance)
    values = density(name, y, f)
    tol = QUADRATURE[name]
    np.testing.assert_allclose(expected, np.sum(weights * values, 0), rtol=0, atol=tol)
    np.testing.assert_allclose(log_prob, np.log(np.sum(weights * np.exp(values), 0)), rtol=0, atol=tol)

    conditional = {
        "gaussian": lambda: (f, NOISE**2),
        "student-t": lambda: (f, scipy.stats.t.var(DF, scale=NOISE)),
        "bernoulli": lambda: (scipy.stats.norm.cdf(f), scipy.stats.norm.cdf(f) * scipy.stats.norm.sf(f)),
        "poisson": lambda: (np.exp(f), np.exp(f)),
    }[name]()
    first = np.sum(weights * conditional[0], 0)
    second = np.sum(weights * (conditional[0] ** 2 + conditional[1]), 0) - first**2
    # Moments are closed forms for all four: only the integration's rounding is left.
    np.testing.assert_allclose(y_mean, first, rtol=1e-10)
    np.testing.assert_allclose(y_variance, second, rtol=1e-10)


def test_heteroscedastic_agrees_with_dense_integration(x64):
    (mean, variance), y = latents("heteroscedastic"), targets("gaussian")
    expected, log_prob, (y_mean, y_variance) = evaluate(make("heteroscedastic"), y, mean, variance)
    f_mean, f_var, g_mean, g_var = mean[:, :T], variance[:, :T], mean[:, T:], variance[:, T:]
    g, weights = grid(g_mean + np.log(NOISE), g_var)
    closed = scipy.stats.norm.logpdf(y, f_mean, np.exp(g)) - 0.5 * f_var * np.exp(-2 * g)
    np.testing.assert_allclose(expected, np.sum(weights * closed, 0), rtol=1e-10)
    spread = np.sqrt(f_var + np.exp(2 * g))
    truth = np.log(np.sum(weights * scipy.stats.norm.pdf(y, f_mean, spread), 0))
    # 20 nodes over a log noise of spread 0.6 leave 8e-6 in NumPy's own rule too: f_var + exp(2 g) has
    # zeros in the complex plane, pi / 2 off the real line.
    np.testing.assert_allclose(log_prob, truth, rtol=0, atol=2e-5)
    np.testing.assert_allclose(y_mean, f_mean, rtol=0, atol=0)
    np.testing.assert_allclose(y_variance, f_var + np.sum(weights * np.exp(2 * g), 0), rtol=1e-10)


def test_softmax_agrees_with_dense_integration(x64):
    """Three independent latents by a product rule of 40 nodes each; the library's mean of 8 antithetic draws
    is repeated 4,000 times and must agree within five of its own standard errors."""
    repeats = 4_000
    (mean, variance), y = latents("softmax"), np.array([[0.0], [1.0], [2.0], [1.0], [0.0]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    mesh = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 1, 3)
    weights = np.prod(np.stack(np.meshgrid(weights, weights, weights, indexing="ij"), -1).reshape(-1, 3), 1)
    weights = (weights / weights.sum())[:, None]
    f = mean + np.sqrt(variance) * mesh
    log_p = f - scipy.special.logsumexp(f, axis=-1, keepdims=True)
    chosen = np.take_along_axis(log_p, np.broadcast_to(y.astype(int), (len(f), N, 1)), -1)[..., 0]
    many = (np.broadcast_to(a, (repeats, *a.shape)) for a in (mean, variance))
    expected, log_prob, (probability, spread) = evaluate(Softmax(), y, *many)
    assert expected.shape == log_prob.shape == (repeats, N, 1)

    def check(draws, truth):
        error = np.abs(np.mean(draws, 0) - truth)
        assert np.all(error < 5 * np.std(draws, 0) / np.sqrt(repeats))

    check(np.asarray(expected)[..., 0], np.sum(weights * chosen, 0))
    # The log of a mean is biased, the mean itself is not.
    check(np.exp(log_prob)[..., 0], np.sum(weights * np.exp(chosen), 0))
    check(np.asarray(probability), np.einsum("g,gnc->nc", weights[:, 0], np.exp(log_p)))
    np.testing.assert_allclose(np.sum(probability, -1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(spread, probability * (1 - probability), rtol=1e-12)


# --- densities are normalised -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian", "student-t", "heteroscedastic"])
def test_continuous_predictive_densities_integrate_to_one(name, x64):
    mean, variance = (a[0] for a in latents(name))
    # y = sinh(t): even steps in t reach 1e8, beyond which a t of 5 degrees of freedom has 1e-40 of its mass.
    t = np.linspace(-20, 20, 4001)
    y, jacobian = np.sinh(t), np.cosh(t)
    log_prob = jax.jit(lambda y: make(name).log_prob(y, mean[None], variance[None], key=jax.random.key(KEY)))
    density_y = np.exp(log_prob(np.stack([y] * T, 1)))
    total = np.sum(density_y * jacobian[:, None], 0) * (t[1] - t[0])
    # Steps of 0.01 against a density no narrower than 0.3 (heteroscedastic): the trapezoidal rule converges
    # geometrically; a mixture over quadrature nodes is normalised node by node.
    np.testing.assert_allclose(total, 1.0, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["bernoulli", "poisson", "softmax"])
def test_discrete_predictive_probabilities_sum_to_one(name, x64):
    mean, variance = (a[0] for a in latents(name))
    values = DISCRETE.get(name, np.arange(float(CLASSES)))
    columns = 1 if name == "softmax" else T
    y = np.repeat(values[:, None, None], columns, 2)
    many = (np.broadcast_to(a, (1, len(a))) for a in (mean, variance))
    log_prob = jax.vmap(
        lambda label, m, v: make(name).log_prob(label, m, v, key=jax.random.key(KEY)), (0, None, None)
    )
    total = np.sum(np.exp(jax.jit(log_prob)(y, *many)), 0)
    # Poisson: rates stay below exp(0.9 + 8 * 0.63) only in tails of weight 1e-13; counts from 60 weigh 1e-9.
    np.testing.assert_allclose(total, 1.0, rtol=0, atol=1e-7 if name == "poisson" else 1e-12)


# --- samples ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["gaussian", "student-t", "heteroscedastic", "bernoulli", "poisson", "softmax"]
)
def test_samples_follow_the_density(name):
    """20,000 draws at one latent: Kolmogorov-Smirnov for densities, chi-square for counts; a p-value below
    1e-5 would happen once in 100,000 seeds, and the seed is fixed."""
    count, dtype = 20_000, "float32"
    row = latents(name)[0][0]
    f = jnp.broadcast_to(jnp.asarray(row, dtype), (count, 1, len(row)))
    draws = np.asarray(sample(make(name, dtype), f, jax.random.key(1)))
    assert draws.shape == (count, 1, 1 if name == "softmax" else T)
    assert draws.dtype == dtype
    if name == "softmax":
        p = np.exp(row) / np.exp(row).sum()
        assert (
            scipy.stats.chisquare(np.bincount(draws[:, 0, 0].astype(int), minlength=3), count * p).pvalue
            > 1e-5
        )
        return
    for t in range(T):
        y, latent = draws[:, 0, t], row[t]
        if name in DISCRETE:
            p = np.exp(density(name, DISCRETE[name], latent))
            kept = count * p > 5
            counts = np.bincount(y.astype(int), minlength=len(p))[: len(p)]
            observed = np.append(counts[kept], count - counts[kept].sum())
            wanted = np.append(p[kept], 1 - p[kept].sum()) * count
            live = wanted > 1e-6
            assert scipy.stats.chisquare(observed[live], wanted[live], sum_check=False).pvalue > 1e-5
            assert counts[p < 1e-12].sum() == 0
        else:
            law = {
                "gaussian": scipy.stats.norm(latent, NOISE),
                "student-t": scipy.stats.t(DF, latent, NOISE),
                "heteroscedastic": scipy.stats.norm(latent, NOISE * np.exp(row[t - T])),
            }[name]
            assert scipy.stats.kstest(y, law.cdf).pvalue > 1e-5


@pytest.mark.parametrize("name", [*SCALARS, "heteroscedastic"])
def test_moments_are_those_of_samples(name):
    """Draw f, then y: mean and variance within five standard errors, from the draws' own second and fourth
    moments (a t of 5 degrees of freedom has a fourth)."""
    count = 20_000
    likelihood = make(name, "float32")
    mean, variance = (jnp.asarray(a[:1], jnp.float32) for a in latents(name))
    latent_key, sample_key = jax.random.split(jax.random.key(2))
    f = mean + jnp.sqrt(variance) * jax.random.normal(latent_key, (count, *mean.shape))
    y = np.asarray(sample(likelihood, f, sample_key), float)
    y_mean, y_variance = (np.asarray(a) for a in likelihood.moments(mean, variance))
    square = (y - y_mean) ** 2
    assert np.all(np.abs(y.mean(0) - y_mean) < 5 * y.std(0) / np.sqrt(count))
    assert np.all(np.abs(square.mean(0) - y_variance) < 5 * square.std(0) / np.sqrt(count))


# --- bounds and extremes ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_jensen_and_broadcast_variance(name, x64):
    """`E log p <= log E p` for the same draws or nodes, and a variance shared by all outputs broadcasts."""
    mean, variance = latents(name)
    y = np.zeros((N, 1)) if name == "softmax" else targets(name)
    shared, key = variance[:, :1], jax.random.key(KEY)

    @jax.jit
    def scores(m, v):
        functions = (make(name).expected_log_prob, make(name).log_prob)
        return [[f(y, m, w, key=key) for f in functions] for w in (v, jnp.broadcast_to(v, m.shape))]

    narrow, full = scores(mean, shared)
    assert np.all(narrow[0] <= narrow[1] + 1e-12)
    np.testing.assert_allclose(narrow, full, rtol=1e-12)  # the same arithmetic


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_extreme_latents_keep_values_and_gradients_finite_in_float32(name):
    width = LIKELIHOODS[name].num_functions(1, CLASSES)
    likelihood = make(name, "float32", targets=1)
    extreme = 10.0 if name == "heteroscedastic" else 50.0  # the log noise is a latent there
    mean = jnp.asarray(np.stack([np.full(width, s * extreme) for s in (-1.0, 1.0)]), jnp.float32)
    y = jnp.zeros((2, 1)) if name != "bernoulli" else jnp.array([[1.0], [0.0]])

    def total(m, v):
        key = jax.random.key(0)
        return jnp.sum(likelihood.expected_log_prob(y, m, v, key=key) + likelihood.log_prob(y, m, v, key=key))

    value, gradient = jax.jit(jax.value_and_grad(total, (0, 1)))(mean, jnp.full_like(mean, 0.5))
    assert np.isfinite(value)
    assert all(np.isfinite(g).all() for g in gradient)


@pytest.mark.parametrize(("name", "width"), [("bernoulli", 1), ("softmax", 3)])
def test_function_values_are_found_from_class_probabilities(x64, name, width):
    """Where one class is all but sure the probit comes from the other one, which has more digits."""
    likelihood = LIKELIHOODS[name].start(1, noise=1.0, count_rate=1.0, dtype=float)
    f = np.concatenate([np.random.default_rng(0).standard_normal((6, width)), np.full((1, width), 7.0)])
    f = f - f.mean(axis=1, keepdims=True) if width > 1 else f
    p = np.asarray(likelihood.probabilities(f))
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)
    assert np.array_equal(p.argmax(1), f.argmax(1) if width > 1 else f[:, 0] > 0.0)
    again = likelihood.functions(p)
    np.testing.assert_allclose(again - again.mean(1, keepdims=True) * (width > 1), f, atol=1e-9)
