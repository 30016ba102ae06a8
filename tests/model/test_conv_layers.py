"""Convolutional layers against dense ones and against kernels of images summed by hand, in float64.

Everything is compared with NumPy and scikit-learn (`support.dense.reference`); the jitter of `K_ZZ` is 1e-8
of its diagonal and its condition number stays below 100, so that ten digits are left of any solve.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.model.conv_layers import ConvGPLayer, Located, PatchSumLayer
from novidgp.model.conv_start import _metric
from novidgp.model.dgp import DGP, Batch
from novidgp.model.kernels import Projected, stationary
from novidgp.model.likelihoods import Softmax
from novidgp.model.means import Linear, Zero
from novidgp.model.patches import Patches, mean_pool
from support.dense import JITTER, make_layer, reference

pytestmark = pytest.mark.usefixtures("x64")
ATOL = 1e-10
IMAGE = (5, 4, 2)
CUT = Patches(IMAGE, 3)
N, K, M, P = 3, 2, 4, 2


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def images(seed=0, *lead):
    return numbers(seed, *lead, N, np.prod(IMAGE))


def by_hand(x, cut):
    """Patches by loops over rows, columns, places and channels."""
    image = x.reshape(cut.image)
    (down, across), s = cut.grid, cut.stride
    return np.stack(
        [
            image[r * s : r * s + cut.size, c * s : c * s + cut.size].reshape(-1)
            for r, c in itertools.product(range(down), range(across))
        ]
    )


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (2, 1), (2, 2), (3, 2), (4, 1)])
def test_patches_are_those_of_a_loop(size, stride):
    cut, x = Patches(IMAGE, size, stride), images(1)
    expected = np.stack([by_hand(row, cut) for row in x])
    assert expected.shape == (N, cut.count, cut.width)
    np.testing.assert_array_equal(cut(x), expected)
    np.testing.assert_array_equal(cut(jnp.asarray(x)), expected)
    np.testing.assert_array_equal(cut(x[None]), expected[None])
    assert cut.positions().tolist() == [list(p) for p in np.ndindex(cut.grid)]


def test_a_patch_of_the_whole_image_is_a_dense_layer():
    dense = make_layer(0, inputs=40, outputs=3, points=M)
    x, v = jnp.asarray(images(2)), jnp.asarray(numbers(3, K, M, 3))
    for inputs in (x, jnp.stack([x, 2.0 * x])):
        whole = Patches((1, 1, 40), 1)
        layer = ConvGPLayer(dense.kernel, dense.inducing, dense.mean, 3, whole)
        for one, other in zip(layer.conditional(inputs, v), dense.conditional(inputs, v), strict=True):
            np.testing.assert_allclose(one, np.broadcast_to(other, one.shape), rtol=1e-13)
    square = Patches((2, 2, 10), 2)
    layer = ConvGPLayer(dense.kernel, dense.inducing, dense.mean, 3, square)
    np.testing.assert_allclose(layer.conditional(x, v).mean, dense.conditional(x, v).mean, rtol=1e-13)


def conv_layer(pool=1):
    dense = make_layer(4, inputs=CUT.width, outputs=P, points=M)
    return ConvGPLayer(dense.kernel, dense.inducing, dense.mean, P, CUT, pool), dense


def test_a_convolutional_layer_is_a_dense_one_at_every_patch():
    (layer, dense), x, v = conv_layer(), images(5), jnp.asarray(numbers(6, K, M, P))
    moments = layer.conditional(jnp.asarray(x), v)
    assert layer.image == (3, 2, P)
    assert moments.mean.shape == (K, N, 3 * 2 * P)
    for n in range(N):
        mean, variance = dense.conditional(jnp.asarray(by_hand(x[n], CUT)), v)
        np.testing.assert_allclose(moments.mean[:, n], mean.reshape(K, -1), atol=ATOL)
        spread = np.broadcast_to(variance[0], (CUT.count, P)).reshape(-1)
        np.testing.assert_allclose(moments.variance[0, n], spread, atol=ATOL)
    own = layer.conditional(jnp.stack([x, 3.0 * x]), v)
    np.testing.assert_allclose(own.mean[0], moments.mean[0], atol=ATOL)
    np.testing.assert_allclose(own.mean[1], layer.conditional(jnp.asarray(3.0 * x), v).mean[1], atol=ATOL)


def test_pooling_averages_means_and_the_variance_of_independent_noise():
    (plain, _), (pooled, _) = conv_layer(), conv_layer(pool=2)
    x, v = jnp.asarray(images(7)), jnp.asarray(numbers(8, K, M, P))
    one, other = plain.conditional(x, v), pooled.conditional(x, v)
    assert pooled.image == (1, 1, P)
    mean = np.asarray(one.mean).reshape(K, N, 3, 2, P)[:, :, :2].mean((2, 3))
    variance = np.asarray(one.variance).reshape(1, N, 3, 2, P)[:, :, :2].mean((2, 3)) / 4.0
    np.testing.assert_allclose(other.mean, mean, atol=1e-13)
    np.testing.assert_allclose(other.variance, variance, rtol=1e-12)
    np.testing.assert_array_equal(mean_pool(images(0), IMAGE, 1), images(0))


def test_a_convolutional_layer_takes_no_covariance():
    layer, _ = conv_layer()
    with pytest.raises(ValueError, match="conditioned on draws"):
        layer.conditional(jnp.asarray(images()), jnp.zeros((1, M, P)), jnp.ones((P, M, M)))


# --- the sum over patches ---------------------------------------------------------------------------

PATCH, PLACE = 2.5, 1.3
WEIGHT = np.random.default_rng(9).uniform(0.5, 1.5, CUT.count)


def parameter(value):
    return jnp.full((1, 1), value)


def sum_layer(reach=PLACE, *, location=True, places=None):
    rng = np.random.default_rng(10)
    points = 2.0 * rng.standard_normal((M, CUT.width))
    kernel = stationary("rbf", parameter(PATCH), jnp.array([1.7]))
    if location:
        places = rng.uniform(0, 2, (M, 2)) if places is None else places
        points = np.concatenate([points, places], axis=1)
        kernel = Located(kernel, stationary("matern32", parameter(reach), jnp.ones(1)))
    return PatchSumLayer(kernel, jnp.asarray(points)[None], Zero(P), P, jnp.asarray(WEIGHT), CUT)


def dense_sum(x, layer, reach):
    """Covariances of images with inducing patches and with themselves, by double sums over patches; `reach`
    None is no kernel of places."""
    z = np.asarray(layer.inducing[0])
    patch, place = reference("rbf"), reference("matern32")
    grid = np.array(list(np.ndindex(CUT.grid)), float)

    def near(a, b):
        return 1.0 if reach is None else place(a / reach, b / reach)

    w = WEIGHT / CUT.count
    k_zz = 1.7 * (patch(z[:, : CUT.width] / PATCH) * near(z[:, -2:], z[:, -2:]) + JITTER * np.eye(M))
    cross, own = np.zeros((N, M)), np.zeros(N)
    for n in range(N):
        cuts = by_hand(x[n], CUT) / PATCH
        for m in range(M):
            for p in range(CUT.count):
                value = patch(cuts[p : p + 1], z[m : m + 1, : CUT.width] / PATCH)[0, 0]
                spot = near(grid[p : p + 1], z[m : m + 1, -2:])
                cross[n, m] += 1.7 * w[p] * value * np.ravel(spot)[0]
        own[n] = 1.7 * w @ (patch(cuts) * near(grid, grid)) @ w
    return k_zz, cross, own


@pytest.mark.parametrize("location", [True, False])
def test_the_sum_over_patches_is_the_brute_force_conditional(location):
    layer, x, v = sum_layer(location=location), images(11), numbers(12, K, M, P)
    k_zz, cross, own = dense_sum(x, layer, PLACE if location else None)
    moments = layer.conditional(jnp.asarray(x), jnp.asarray(v))
    gain = np.linalg.solve(k_zz, cross.T).T
    mean = np.einsum("nm,mi,kip->knp", gain, np.linalg.cholesky(k_zz), v)
    np.testing.assert_allclose(moments.mean, mean, atol=ATOL)
    np.testing.assert_allclose(moments.variance[0, :, 0], own - np.sum(gain * cross, axis=1), atol=ATOL)
    scale = np.stack([np.tril(numbers(13 + p, M, M)) for p in range(P)])
    integrated = layer.conditional(jnp.asarray(x), jnp.asarray(v), jnp.asarray(scale))
    spread = np.einsum("nm,mi,pij->pnj", gain, np.linalg.cholesky(k_zz), scale)
    extra = np.moveaxis(np.sum(spread**2, axis=-1), 0, -1)
    np.testing.assert_allclose(integrated.variance[0] - moments.variance[0], extra, atol=ATOL)


def test_an_infinite_reach_of_places_is_the_plain_sum():
    x, v = jnp.asarray(images(14)), jnp.asarray(numbers(15, K, M, P))
    located = sum_layer(1e7).conditional(x, v)
    plain = sum_layer(location=False).conditional(x, v)
    np.testing.assert_allclose(located.mean, plain.mean, rtol=1e-9)
    np.testing.assert_allclose(located.variance, plain.variance, rtol=1e-9)


def test_no_reach_of_places_is_the_additive_kernel():
    """A function for every place: `cov(f(x), f(x')) = sum_p (w_p / P)^2 k(x_p, x'_p)`."""
    grid = np.array(list(np.ndindex(CUT.grid)), float)
    layer, x = sum_layer(1e-3, places=grid[[0, 2, 3, 5]]), images(16)
    matrix, share = layer.basis(jnp.asarray(x))
    weight = WEIGHT / CUT.count
    prior = np.asarray(share[0] + jnp.sum(matrix[0] ** 2, axis=-1))
    np.testing.assert_allclose(prior, np.full(N, np.sum(weight**2)), rtol=1e-10)
    z = np.asarray(layer.inducing[0, :, : CUT.width])
    for column, place in enumerate([0, 2, 3, 5]):
        cuts = np.stack([by_hand(row, CUT)[place] for row in x])
        value = weight[place] * reference("rbf")(cuts / PATCH, z[column : column + 1] / PATCH)[:, 0]
        # Inducing patches of different places are independent: K_ZZ is the identity, but for the jitter.
        np.testing.assert_allclose(matrix[0, :, column], value, rtol=1e-7)


@pytest.mark.parametrize("directions", [4, CUT.width])
def test_a_kernel_of_directions_sees_whitened_patches(directions):
    """Variances `v` of principal components become `v / (v + 0.1 mean v)`; a kernel of the projections is
    the plain kernel of patches that were projected before."""
    sample = numbers(30, 50, CUT.width) @ numbers(31, CUT.width, CUT.width)
    metric = _metric(sample, directions)
    values = np.linalg.eigvalsh(np.cov(sample, rowvar=False, bias=True))[::-1]
    expected = values / (values + 0.1 * values.mean())
    seen = metric(sample)
    np.testing.assert_allclose(
        np.cov(seen, rowvar=False, bias=True), np.diag(expected[:directions]), atol=ATOL
    )
    np.testing.assert_allclose(metric(metric.back(seen[:5] + 1.0)), seen[:5] + 1.0, atol=ATOL)
    if directions == CUT.width:
        np.testing.assert_allclose(metric.back(seen), sample, atol=1e-8)
    inner = stationary("rbf", parameter(PATCH), jnp.array([1.7]))
    kernel = Projected(jnp.asarray(metric.weight), inner)
    dense = reference("rbf")(seen[:5] / PATCH, seen[5:9] / PATCH)
    np.testing.assert_allclose(kernel.correlation(sample[None, :5], sample[None, 5:9])[0], dense, atol=ATOL)
    assert kernel.variance() == inner.variance()
    gradient = jax.grad(lambda k: k.correlation(sample[None, :5], sample[None, 5:9]).sum())(kernel)
    assert not gradient.weight.any()
    assert gradient.inner.log_lengthscale.any()


# --- the deep model ---------------------------------------------------------------------------------


def deep_model():
    rng = np.random.default_rng(17)
    small = Patches((5, 4, 2), 2)
    inner = Patches((4, 3, 3), 2)
    mean = Linear(jnp.asarray(rng.standard_normal((8, 3)) / 3.0), jnp.zeros(3), True)
    first = ConvGPLayer(
        stationary("rq", parameter(2.0), jnp.array([0.5])),
        jnp.asarray(rng.standard_normal((1, M, 8))),
        mean,
        3,
        small,
    )
    points = np.concatenate([rng.standard_normal((M, 12)), rng.uniform(0, 3, (M, 2))], axis=1)
    kernel = Located(
        stationary("rbf", parameter(3.0), jnp.array([2.0])),
        stationary("matern32", parameter(1.5), jnp.ones(1)),
    )
    last = PatchSumLayer(kernel, jnp.asarray(points[None]), Zero(3), 3, jnp.ones(6), inner)
    return DGP((first, last), Softmax())


def test_gradients_are_those_of_finite_differences():
    """Of the log joint in every parameter, along a random direction: in float64 with steps of 1e-6 the
    central difference has an error near 1e-9 of the value, and a wrong slice or sign would show at once."""
    model, x = deep_model(), jnp.asarray(images(18))
    batch = Batch(x, jnp.array([[0.0], [2.0], [1.0]]))
    v = tuple(jnp.asarray(numbers(19 + i, K, *shape)) for i, shape in enumerate(model.inducing_shapes()))

    @jax.jit
    def value(model, v, x):
        return jnp.sum(model.log_joint(v, batch._replace(x=x), N, key=jax.random.key(0)))

    point = (model, v, x)
    gradient = jax.jit(jax.grad(value, argnums=(0, 1, 2)))(*point)
    rng = np.random.default_rng(20)
    direction = jax.tree.map(lambda a: jnp.asarray(rng.standard_normal(a.shape)), point)
    slope = sum(
        float(jnp.sum(g * d))
        for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    )
    step = 1e-6
    ahead, behind = (
        value(*jax.tree.map(lambda a, d, s=sign: a + s * step * d, point, direction)) for sign in (1, -1)
    )
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * step), rtol=1e-6)
    assert all(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(gradient[1:]))


def test_patches_of_one_path_share_a_draw_of_v():
    """A posterior's covariance is drawn from once a path: a hidden layer without any other noise is then one
    function, and equal patches have equal values wherever they are."""
    model = deep_model()
    x = jnp.asarray(np.tile(numbers(21, 1, 1, 1, 2), (1, 5, 4, 1)).reshape(1, -1))
    layer = model.layers[0]
    scales = (jnp.broadcast_to(jnp.eye(M), (3, M, M)), jnp.broadcast_to(jnp.eye(M), (3, M, M)))
    v = tuple(jnp.zeros((2000, *shape)) for shape in model.inducing_shapes())
    h = model.last_layer_inputs(x, v, scales, key=jax.random.key(1)).reshape(2000, 12, 3)
    # Of the prior's variance (0.5) the part that V explains is common to all patches, the rest is not.
    explained = float(jnp.sum(layer.basis(x).matrix[0, 0] ** 2)) * 0.5
    common = np.mean(np.var(np.asarray(h).mean(axis=1), axis=0))
    noise = 0.5 - explained
    # Four standard errors of a variance from 2000 draws, averaged over three maps, are below 8 %.
    np.testing.assert_allclose(common, explained + noise / 12, rtol=0.08)
    np.testing.assert_allclose(np.var(np.asarray(h), axis=0).mean(), 0.5, rtol=0.08)


def test_patches_at_a_grid_of_places_are_pairs_of_patch_and_place():
    """The layer with the pairs written out, place by place, is the oracle."""
    patch, place = (stationary("rbf", jnp.full((1, width), 1.5), jnp.ones(1)) for width in (CUT.width, 2))
    points, places = numbers(1, M, CUT.width), np.array([[0.0, 0.0], [1.5, 0.5], [2.0, 1.0]])
    pairs = np.concatenate([np.tile(points, (3, 1)), np.repeat(places, M, axis=0)], axis=1)
    weight, mean = jnp.asarray(np.abs(numbers(2, CUT.count))), Zero(P)
    shared = PatchSumLayer(
        Located(patch, place), jnp.asarray(points)[None], mean, P, weight, CUT, jnp.asarray(places)
    )
    listed = PatchSumLayer(Located(patch, place), jnp.asarray(pairs)[None], mean, P, weight, CUT)
    assert shared.num_inducing == listed.num_inducing == 3 * M
    np.testing.assert_allclose(shared.correlation(), listed.correlation(), atol=ATOL)
    h, v = jnp.asarray(images(3, K)), jnp.asarray(numbers(4, K, 3 * M, P))
    for part, other in zip(shared.conditional(h, v), listed.conditional(h, v), strict=True):
        np.testing.assert_allclose(part, other, atol=1e-8)
