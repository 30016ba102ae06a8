"""The local last layer: what it does to the deep GP's mixture over paths.

Path k of the deep GP gives the Gaussian `N(m_k, c_k)` for y at a row, noise included. The mean of the `m_k`
is m, their variance S, and the mean of the `c_k` is C. The local GP gives a shift g and a total variance T.
The path becomes

    N(m + g + rho (m_k - m), tau_k (T - rho^2 S) c_k / C).

So each path keeps its own mean and its share of the variance T. The factor `rho` is one unless the paths
alone spread further than a share of T: a half, or nothing where rows left out say so, because a small error
has no sharp density beside paths that spread. The factors `tau_k` are those that the errors of rows left out
have beside what T states (`local.scales`). So few scales have no tails, and a neighbour may be a twin with
another target: the widest path in a hundred keeps at least the deep GP's own variance `c_k`, over and above
T. All predictions come from this mixture and agree with one another.
"""

from dataclasses import dataclass

import numpy as np

from novidgp.local.rows import ConditionedGP
from novidgp.local.scales import WIDE, path_scales
from novidgp.numerics.scaling import Standardiser

SPREADS = 0.5, 0.0
"""Shares of the total variance that the paths' means may have."""
_LEAST_SPREAD = 1e-30


@dataclass(frozen=True, eq=False)
class LocalTarget:
    """The local layer of one target."""

    conditioned: ConditionedGP
    scales: np.ndarray
    """Quantiles of the factors of the variances, fitted to the errors of rows left out (`local.scales`)."""
    most_spread: float = SPREADS[0]
    """The largest share of the total variance that the paths' means have."""

    def shift(self, inputs: np.ndarray, deep_variance: np.ndarray, found: np.ndarray):
        """Shift of the mean and total variance of y, `(m,)`, given the rows `found` `(m, k)`."""
        return self.conditioned.moments(inputs, deep_variance, found)


@dataclass(frozen=True, eq=False)
class LocalLayer:
    """The local layers of all targets; None where a target has none."""

    features: Standardiser
    """Scaling of the columns `[x, h]`."""
    neighbours: int
    targets: tuple[LocalTarget | None, ...]

    @property
    def num_rows(self) -> int:
        """How many training rows it holds."""
        return max(len(target.conditioned.rows) for target in self.targets if target is not None)

    def correct(
        self, mean: np.ndarray, variance: np.ndarray, columns: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The mixture over paths with the local layer: means and variances of y, `(k, n, t)`, from those of
        the deep GP, noise included, and from the layer's unscaled inputs `columns` `(n, d)`."""
        inputs = self.features.inputs(columns).astype(mean.dtype)
        mean, variance = mean.copy(), variance.copy()
        for number, target in enumerate(self.targets):
            if target is None:
                continue
            m, c = mean[..., number], variance[..., number]
            found = target.conditioned.nearest(inputs, self.neighbours)
            shift, total = target.shift(inputs, _path_mean(c) + _path_moments(m)[1], found)
            corrected = corrected_paths(m, c, shift, total, target.scales, target.most_spread)
            mean[..., number], variance[..., number] = corrected
        return mean, variance


def kept_spread(spread: np.ndarray, total: np.ndarray, most: float) -> np.ndarray:
    """The factor of the variance of the paths' means: one, unless it is more than its share of the total."""
    return most * total / np.maximum(np.maximum(spread, most * total), _LEAST_SPREAD)


def corrected_paths(
    mean: np.ndarray, variance: np.ndarray, shift, total, scales: np.ndarray, most_spread: float = SPREADS[0]
):
    """Means and variances of the paths, `(k, n)`, of the deep GP with its local layer."""
    centre, spread = _path_moments(mean)
    kept = kept_spread(spread, total, most_spread)
    mean = centre + shift + np.sqrt(kept) * (mean - centre)
    scales = path_scales(len(mean), scales)[:, None].astype(variance.dtype)
    local = scales * (total - kept * spread) * variance / _path_mean(variance)
    wide = np.argsort(-scales[:, 0])[: max(1, round(WIDE * len(mean)))]
    local[wide] = np.maximum(local[wide], variance[wide])
    return mean, local


def _path_mean(values: np.ndarray) -> np.ndarray:
    """The mean over paths, `(n,)` of `(k, n)`, added up path by path: NumPy's sums take another order where
    there is one row only, and a row's prediction must not depend on whether it is alone."""
    several = np.ascontiguousarray(values if values.shape[1] > 1 else np.repeat(values, 2, axis=1))
    total = np.add.reduce(several, axis=0, dtype=np.float64)[: values.shape[1]]
    return (total / len(values)).astype(values.dtype)


def _path_moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centre = _path_mean(values)
    return centre, _path_mean((values - centre) ** 2)
