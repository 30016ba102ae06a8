"""Features of images without labels and without a network: distances to whitened k-means patches.

The method of Coates, Lee and Ng (2011). Patches of the training images are normalised in contrast, whitened
and clustered. Every patch of an image is then described by how much nearer than average it is to each centre
(the triangle activation), summed over the four quadrants of the image. Principal components of these sums
are the features, and with labels also linear scores of the classes (`scores.py`).
"""

import itertools
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from novidgp.checks import check_flag, check_integer
from novidgp.features.images import check_images
from novidgp.features.scores import ridge_scores
from novidgp.numerics.compilation import use_compilation_cache
from novidgp.numerics.forks import refuse_fork

_CONTRAST = 2.5e-3
"""Added to a patch's variance, relative to that of all pixels: 10 grey levels squared on photographs."""
_WHITENING = 0.1
"""Added to the eigenvalues of normalised patches, which are one on average."""
_SAMPLE = 10_000
"""Images whose activations principal components are learned from."""
_BLOCK = 25
"""Images of one call of the compiled program."""


Numbers = Array | np.ndarray


class Encoder(NamedTuple):
    """What describes a patch: its whitening, and the centres in whitened coordinates."""

    contrast: Float[Numbers, ""]
    mean: Float[Numbers, " l"]
    whitening: Float[Numbers, "l l"]
    centres: Float[Numbers, "k l"]


class Projection(NamedTuple):
    """The pooled activations' mean, and the map to principal components."""

    mean: Float[Numbers, " q"]
    components: Float[Numbers, "q d"]


def image_patches(images: Float[Array, "n h w c"], size: int, stride: int) -> Float[Array, "n y x l"]:
    """All patches of the images, by `size^2` strided slices."""
    rows, columns = ((length - size) // stride + 1 for length in images.shape[1:3])
    ends = (rows - 1) * stride + 1, (columns - 1) * stride + 1
    slices = [
        images[:, i : i + ends[0] : stride, j : j + ends[1] : stride]
        for i in range(size)
        for j in range(size)
    ]
    return jnp.concatenate(slices, axis=-1)


def normalise(patches: Float[Array, "*n l"], contrast: Float[Numbers, ""]) -> Float[Array, "*n l"]:
    """Patches of mean zero and, but for flat ones, variance one."""
    centred = patches - jnp.mean(patches, axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + contrast)


def triangle(white: Float[Array, "n l"], centres: Float[Numbers, "k l"]) -> Float[Array, "n k"]:
    """How much nearer than the average centre each centre is; zero for those that are farther."""
    squares = jnp.sum(white**2, axis=-1)[:, None] + jnp.sum(centres**2, axis=-1)
    distance = jnp.sqrt(jnp.maximum(squares - 2.0 * white @ centres.T, 0.0))
    return jax.nn.relu(jnp.mean(distance, axis=-1, keepdims=True) - distance)


def pooled_activations(
    encoder: Encoder, images: Float[Array, "n h w c"], size: int, stride: int, pools: int
) -> Float[Array, "n q"]:
    """Triangle activations of all patches, summed over `pools x pools` parts of the image.

    One image at a time: the distances of its patches to all centres then stay in the processor's cache, and
    three quarters of the time are gone.
    """

    def parts(length: int) -> list[slice]:
        edges = [length * i // pools for i in range(pools + 1)]
        return [slice(*pair) for pair in itertools.pairwise(edges)]

    def pooled(image: Float[Array, "h w c"]) -> Float[Array, " q"]:
        patches = image_patches(image[None], size, stride)
        _, rows, columns, length = patches.shape
        white = (normalise(patches.reshape(-1, length), encoder.contrast) - encoder.mean) @ encoder.whitening
        active = triangle(white, encoder.centres).reshape(rows, columns, -1)
        sums = [jnp.sum(active[y, x], axis=(0, 1)) for y in parts(rows) for x in parts(columns)]
        return jnp.concatenate(sums)

    return jax.lax.map(pooled, images)


_pooled = jax.jit(pooled_activations, static_argnums=(2, 3, 4))


@jax.jit
def _project(projection: Projection, pooled: Float[Array, "n q"]) -> Float[Array, "n d"]:
    return (pooled - projection.mean) @ projection.components


class PatchFeatures(TransformerMixin, BaseEstimator):
    """Whitened k-means patches as features of images `(n, height, width[, channels])`.

    The features are principal components turned by a random rotation: all columns then have about the same
    spread, so that scaling each to one, as the estimators do, does not blow up the small components.

    Parameters
    ----------
    num_centres : int, default=400
        K-means centres. More are better and slower.
    size : int, default=6
        Height and width of a patch in pixels.
    stride : int, default=1
        Pixels from one patch to the next.
    pools : int, default=2
        Activations are summed over `pools x pools` parts of the image.
    components : int, default=256
        Principal components to keep, at most as many as there are activations or images.
    num_patches : int, default=100_000
        Random patches that centres and whitening are learned from.
    class_scores : bool, default=False
        Whether the labels are used too: one feature more for every class, its score by ridge regression on
        all activations. They say more than principal components, which leave out what varies little. In
        `fit_transform`, and so in an estimator's fit, a training image has the scores of regressions that
        have not seen it.
    random_state : int, RandomState or None, default=0
        Seed of patches, centres, rotation and folds.

    Attributes
    ----------
    encoder_, projection_ : tuples of arrays
        All that was learned: the file of a model keeps them.
    image_shape_ : tuple of int
        `(height, width, channels)` of the training images.
    """

    def __init__(
        self,
        *,
        num_centres: int = 400,
        size: int = 6,
        stride: int = 1,
        pools: int = 2,
        components: int = 256,
        num_patches: int = 100_000,
        class_scores: bool = False,
        random_state: Any = 0,
    ):
        self.num_centres = num_centres
        self.size = size
        self.stride = stride
        self.pools = pools
        self.components = components
        self.num_patches = num_patches
        self.class_scores = class_scores
        self.random_state = random_state

    @property
    def cross_fits(self) -> bool:
        """Whether training rows have other features in `fit_transform` than in `transform`."""
        return bool(self.class_scores)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn patches and components from images, and class scores if they are asked for."""
        self._learn(X, y)
        return self

    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> np.ndarray:
        """Learn, and the features of the training images."""
        learned = self._learn(X, y)
        return self.transform(X) if learned is None else learned

    def _learn(self, X: Any, y: Any) -> np.ndarray | None:
        """The features of the training images where these are others than `transform` gives."""
        check_flag("class_scores", self.class_scores)
        for name in ("num_centres", "size", "stride", "pools", "components", "num_patches"):
            check_integer(name, getattr(self, name))
        images = check_images(X)
        self._check_size(images)
        refuse_fork()
        use_compilation_cache()
        rng = check_random_state(self.random_state)
        self.image_shape_ = images.shape[1:]
        self.encoder_ = self._learn_patches(images, rng)
        if not self.class_scores:
            sample = (
                images if len(images) <= _SAMPLE else images[rng.choice(len(images), _SAMPLE, replace=False)]
            )
            self.projection_ = self._learn_components(self._activations(sample, None), rng)
            return None
        targets = _indicators(images, y)
        pooled = self._activations(images, None, np.float16)
        kept = rng.permutation(len(pooled))[:_SAMPLE]
        found = self._learn_components(pooled[kept].astype(np.float32), rng)
        scores = ridge_scores(pooled, targets, rng)
        found = found._replace(mean=scores.mean)
        self.projection_ = Projection(scores.mean, np.concatenate([scores.weight, found.components], axis=1))
        return np.concatenate([scores.held_out, _projected(pooled, found)], axis=1)

    def transform(self, X: Any) -> np.ndarray:
        """The features `(n, components)`."""
        check_is_fitted(self)
        images = check_images(X, shape=self.image_shape_)
        refuse_fork()
        use_compilation_cache()
        return self._activations(images, self.projection_)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, by name: for a model file."""
        check_is_fitted(self)
        pooled = {f"pooled_{name}": array for name, array in self.projection_._asdict().items()}
        named = self.encoder_._asdict() | pooled | {"image_shape": self.image_shape_}
        return {name: np.asarray(array) for name, array in named.items()}

    def with_arrays(self, arrays: dict[str, np.ndarray]) -> Self:
        """This transformer, fitted by what `to_arrays` gave."""
        self.encoder_ = Encoder(*(arrays[name] for name in Encoder._fields))
        self.projection_ = Projection(*(arrays[f"pooled_{name}"] for name in Projection._fields))
        self.image_shape_ = tuple(int(length) for length in arrays["image_shape"])
        return self

    def _check_size(self, images: np.ndarray) -> None:
        height, width = images.shape[1:3]
        least = self.size + (self.pools - 1) * self.stride
        if min(height, width) < least:
            raise ValueError(
                f"X has images of {height} x {width} pixels; patches of size={self.size} in "
                f"pools={self.pools} x {self.pools} parts need at least {least}. Lower size or pools."
            )

    def _learn_patches(self, images: np.ndarray, rng: np.random.RandomState) -> Encoder:
        count, height, width = images.shape[:3]
        total = int(self.num_patches)
        rows = rng.randint(count, size=total)
        top, left = (rng.randint(length - self.size + 1, size=total) for length in (height, width))
        offsets = np.arange(self.size)
        cut = images[
            rows[:, None, None], (top[:, None] + offsets)[:, :, None], (left[:, None] + offsets)[:, None, :]
        ]
        patches = cut.reshape(total, -1).astype(np.float64)
        contrast = _CONTRAST * np.var(patches)
        if contrast == 0:
            raise ValueError("X holds images of one colour only; there are no patches to learn.")
        unit = np.asarray(normalise(jnp.asarray(patches, jnp.float32), jnp.float32(contrast)), np.float64)
        mean = unit.mean(0)
        values, vectors = np.linalg.eigh(np.cov(unit, rowvar=False))
        whitening = (vectors / np.sqrt(np.maximum(values, 0.0) + _WHITENING)) @ vectors.T
        white = ((unit - mean) @ whitening).astype(np.float32)
        clusters = min(int(self.num_centres), len(np.unique(white[:10_000], axis=0)))
        kmeans: Any = MiniBatchKMeans
        kmeans = kmeans(clusters, batch_size=8192, n_init=1, max_iter=20, random_state=rng.randint(2**31 - 1))
        centres = kmeans.fit(white).cluster_centers_
        parts = (contrast, mean, whitening, centres)
        return Encoder(*(np.asarray(part, np.float32) for part in parts))

    def _learn_components(self, pooled: np.ndarray, rng: np.random.RandomState) -> Projection:
        """Principal components of standardised activations of some images, rotated."""
        mean, spread = pooled.mean(0), pooled.std(0) + 1e-6
        kept = min(int(self.components), *pooled.shape)
        solver = "randomized" if kept < 0.5 * min(pooled.shape) else "full"
        pca: Any = PCA(kept, svd_solver=solver, random_state=rng.randint(2**31 - 1))
        pca.fit((pooled - mean) / spread)
        rotation = np.linalg.qr(rng.standard_normal((kept, kept)))[0]
        components = (pca.components_.T @ rotation) / spread[:, None]
        return Projection(mean.astype(np.float32), components.astype(np.float32))

    def _activations(
        self, images: np.ndarray, projection: Projection | None, dtype: Any = np.float32
    ) -> np.ndarray:
        """Pooled activations, or with a `projection` the features, a block of images at a time."""
        sizes = int(self.size), int(self.stride), int(self.pools)
        parts = []
        for start in range(0, len(images), _BLOCK):
            block = np.asarray(images[start : start + _BLOCK], np.float32)
            padded = np.pad(block, ((0, _BLOCK - len(block)), (0, 0), (0, 0), (0, 0)))
            pooled = _pooled(self.encoder_, padded, *sizes)
            if projection is not None:
                pooled = _project(projection, pooled)
            parts.append(np.asarray(pooled)[: len(block)].astype(dtype, copy=False))
        return np.concatenate(parts)


def _projected(pooled: np.ndarray, projection: Projection) -> np.ndarray:
    """Features of activations of any float type."""
    blocks = (pooled[i : i + _SAMPLE].astype(np.float32) for i in range(0, len(pooled), _SAMPLE))
    return np.concatenate([np.asarray(_project(projection, block)) for block in blocks])


def _indicators(images: np.ndarray, y: Any) -> np.ndarray:
    """A column of zeros and ones for every class."""
    if y is None:
        raise ValueError("class_scores=True needs labels: fit(X, y).")
    labels = column_or_1d(y)
    check_consistent_length(images, labels)
    check_classification_targets(labels)
    return (labels[:, None] == np.unique(labels)).astype(np.float32)
