"""Convolutional GP layers: GPs of patches of images.

A *convolutional layer* has one GP g of patches, and is its values at all patches, image in, image out, with
a feature map for every output of g (Blomqvist et al. 2019). A last layer is the weighted mean of its values,

    f(x) = 1/P sum_p w_p g(x_p),   cov(f(x), g(z)) = 1/P sum_p w_p k(x_p, z),

with inducing patches z (van der Wilk et al. 2017). There the kernel may also compare places,
`k(x_p, x_p') k_loc(p, p')`: the translation-insensitive kernel of Dutordoir et al. (2020). With an infinite
lengthscale of k_loc it is the plain mean; with one of zero every place has a function of its own.

Patches of one image share one draw of V in a convolutional layer. To integrate V out patch by patch would
lose what they have in common, and cost a product with an m x m matrix for every map and patch. What the
inducing patches leave unexplained is independent noise at every patch.
"""

import math
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from novidgp.model.kernels import Kernel
from novidgp.model.layers import Basis, Layer, Moments, basis_at, moments_at, unexplained
from novidgp.model.means import MeanFunction
from novidgp.model.patches import ImageShape, Patches, mean_pool


@final
class Located(Kernel):
    """`k(x, x') k_loc(p, p')` of patches with their places: the last two columns are row and column."""

    patch: Kernel
    place: Kernel
    """Its variance is not used: the patches' kernel has it."""

    def correlation(self, x, z):
        """The product of both correlations."""
        return self.patch.correlation(x[..., :-2], z[..., :-2]) * self.place.correlation(
            x[..., -2:], z[..., -2:]
        )

    def variance(self):
        """That of the patches' kernel."""
        return self.patch.variance()


@final
class ConvGPLayer(Layer):
    """The values of a GP at all patches of an image: an image with `outputs` channels, mean-pooled."""

    kernel: Kernel
    inducing: Float[Array, "1 m d"]
    mean: MeanFunction
    outputs: int = eqx.field(static=True)
    patches: Patches = eqx.field(static=True)
    pool: int = eqx.field(static=True, default=1)

    draws_inducing: ClassVar[bool] = True

    @property
    def row_size(self) -> int:
        return self.patches.count * max(self.num_inducing, self.patches.width)

    @property
    def image(self) -> ImageShape:
        """Height, width and channels of the layer's output."""
        height, width = self.patches.grid
        return height // self.pool, width // self.pool, self.outputs

    @property
    def width(self) -> int:
        return math.prod(self.image)

    def basis(self, h, projection=None):
        """At all patches, one after another."""
        return basis_at(self, self._rows(h), projection)

    def conditional(self, h, v, scale=None, noise=None, *, basis=None):
        """Images `(*k, n, H W C)`; V is a draw, so that there is no scale."""
        if scale is not None or noise is not None:
            raise ValueError(
                "a convolutional layer is conditioned on draws of V; it takes no scale or noise."
            )
        rows = self._rows(h)
        moments = moments_at(self, rows, basis_at(self, rows) if basis is None else basis, v, None, None)
        mean, variance = (self._images(part, h.shape[-2]) for part in moments)
        return Moments(mean, variance / self.pool**2)

    def _rows(self, h: Float[Array, "*k n hwc"]) -> Float[Array, "*k np d"]:
        """All patches of all images of a sample."""
        patches = self.patches(h)
        return patches.reshape(*h.shape[:-2], -1, patches.shape[-1])

    def _images(self, values: Float[Array, "k np c"], rows: int) -> Float[Array, "k n hwc"]:
        """Values at patches as images with all maps, pooled."""
        values = jnp.broadcast_to(values, (*values.shape[:-1], self.outputs))
        return mean_pool(values.reshape(len(values), rows, -1), (*self.patches.grid, self.outputs), self.pool)


@final
class PatchSumLayer(Layer):
    """The weighted mean of a GP over all patches of an image: a last layer."""

    kernel: Kernel
    """Of patches, or `Located`; inducing patches then have their places in two more columns."""
    inducing: Float[Array, "1 m d"]
    mean: MeanFunction
    outputs: int = eqx.field(static=True)
    weight: Float[Array, " P"]
    patches: Patches = eqx.field(static=True)
    places: Float[Array, "g 2"] | None = None
    """Every inducing patch is at each of these places, where they are given, and has no columns for its own:
    distances of patches are then computed once for all places. The order is place by place."""

    @property
    def num_inducing(self) -> int:
        return self.inducing.shape[1] * (1 if self.places is None else len(self.places))

    @property
    def row_size(self) -> int:
        return self.patches.count * max(self.inducing.shape[1], self.patches.width, self.patches.count)

    def correlation(self):
        if self.places is None:
            return super().correlation()
        patch, place = self._parts()
        assert place is not None
        patches = patch.correlation(self.inducing, self.inducing)[0]
        return jnp.kron(place.correlation(self.places[None], self.places[None])[0], patches)[None]

    def cross(self, h: Float[Array, "*k n hwc"]) -> Float[Array, "1 *k n m"]:
        """Covariances of the functions at `h` with the inducing outputs, in units of the kernel's variance:
        means over the patches of every image."""
        x = self.patches(h.reshape(-1, h.shape[-1]))
        patch, place = self._parts()
        points, across = self.inducing, (self.weight / self.patches.count)[:, None]
        if place is not None:
            at = self.inducing[0, :, -2:] if self.places is None else self.places
            points = self.inducing[..., :-2] if self.places is None else self.inducing
            across = across * place.correlation(self._grid(x.dtype), at[None])[0]
        values = patch.correlation(x.reshape(1, -1, x.shape[-1]), points).reshape(*x.shape[:2], -1)
        if self.places is None:
            means = jnp.sum(values * across, axis=1)
        else:
            means = jnp.einsum("npm,pg->ngm", values, across)
        return means.reshape(1, *h.shape[:-1], self.num_inducing)

    def basis(self, h, projection=None):
        """`A = K_hz R^T` of images; their prior variance is a mean over pairs of patches."""
        x = self.patches(h.reshape(-1, h.shape[-1]))
        patch, place = self._parts()
        weight = self.weight / self.patches.count
        within = weight[:, None] * weight
        if place is not None:
            grid = self._grid(x.dtype)
            within = within * place.correlation(grid, grid)[0]
        projected, shares = self.projection() if projection is None else projection
        matrix = self.cross(h).reshape(1, len(x), -1) @ projected
        prior = jnp.sum(patch.correlation(x, x) * within, axis=(1, 2))
        share = unexplained(prior[None], matrix, shares)
        return Basis(*(part.reshape(len(part), *h.shape[:-1], *part.shape[2:]) for part in (matrix, share)))

    def _parts(self) -> tuple[Kernel, Kernel | None]:
        """The kernels of patches and of places."""
        if isinstance(self.kernel, Located):
            return self.kernel.patch, self.kernel.place
        return self.kernel, None

    def _grid(self, dtype: Any) -> Float[Array, "1 P 2"]:
        return jnp.asarray(self.patches.positions(), dtype)[None]

    def conditional(self, h, v, scale=None, noise=None, *, basis=None):
        return moments_at(self, h, self.basis(h) if basis is None else basis, v, scale, noise)
