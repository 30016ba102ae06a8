"""From rows to their predictive distribution.

All rows see the same path noise (common random numbers): a row's prediction does not depend on which other
rows are asked for, nor on their order. Rows go through in blocks of one fixed size, so that another row count
compiles nothing. A fitted model is prepared once (`posteriors.prepared`), and asked as often as one likes.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from novidgp.local.class_layer import ClassLayer
from novidgp.local.features import local_inputs
from novidgp.local.layer import LocalLayer
from novidgp.model.dgp import DGP
from novidgp.model.likelihoods import Likelihood
from novidgp.numerics.blocks import over_blocks
from novidgp.numerics.compilation import WIDE_VECTORS
from novidgp.numerics.forks import refuse_fork
from novidgp.numerics.random import folded
from novidgp.numerics.scaling import Standardiser, identity
from novidgp.posteriors.fitted import Fitted
from novidgp.posteriors.prepared import Prepared, prepare, propagate
from novidgp.posteriors.wide import WideLayer, widened
from novidgp.prediction.predictive import HostMoments, Predictive

_LARGEST_BLOCK = 32
"""Of 16 to 128 rows the fastest, for one row and for many."""
_BLOCK_FLOATS = 2**24
_propagate = jax.jit(propagate, compiler_options=WIDE_VECTORS)
"""With XLA's newer emitters: it compiles half as long again as with `COMPILER_OPTIONS` and runs three times
as fast, because the older ones do not vectorise the kernel there."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """A fitted model that is ready to be asked."""

    prepared: Prepared
    likelihood: Likelihood
    """With the path axis."""
    key: PRNGKeyArray
    """Of draws."""
    dtype: str
    block_size: int
    own_paths: bool

    def __call__(
        self,
        x: np.ndarray,
        *,
        inputs: Standardiser | None = None,
        targets: Standardiser | None = None,
        local: LocalLayer | ClassLayer | None = None,
    ) -> Predictive:
        """The predictive distribution at rows `x`, as `predict` tells."""
        refuse_fork()
        x = np.asarray(x)
        if len(x) == 0:
            raise ValueError("x has no rows; pass at least one.")
        scaled = x if inputs is None else inputs.inputs(x)
        with np.errstate(over="ignore"):  # refused below, in words
            rows = scaled.astype(self.dtype)
        parts = over_blocks(
            lambda numbers: _propagate(self.prepared, rows[numbers]), len(x), self.block_size, self.dtype
        )
        mean, variance = (
            np.concatenate(part, axis=1)[:, : len(x)] for part in zip(*(m for m, _ in parts), strict=True)
        )
        _refuse_infinite(mean, variance, x)
        hidden = None if parts[0][1] is None else np.concatenate([h for _, h in parts])[: len(x)]
        columns = local_inputs(scaled, hidden)
        target = identity(1) if targets is None else targets
        predictive = Predictive(
            self.likelihood,
            HostMoments(mean, variance),
            target,
            self.key,
            self.block_size,
            self.own_paths,
            columns,
        )
        return predictive if local is None else predictive.corrected(local)


def make_predictor(
    fitted: Fitted, *, num_paths: int, key: PRNGKeyArray, wide: WideLayer | None = None
) -> Predictor:
    """The predictor of `num_paths` posterior paths, as drawn by `key`; a `wide` layer stands in for the last
    one."""
    refuse_fork()
    path_key, draw_key = folded(key, 0), folded(key, 1)
    likelihood, prepared = prepare(fitted, num_paths, key=path_key)
    model = fitted.model
    if wide is not None:
        prepared = prepared._replace(wide=jax.device_put(wide))
        model = eqx.tree_at(lambda m: m.layers[-1], model, widened(model.layers[-1], wide.points))
    size = block_size(model, num_paths if wide is None else 1)
    own_paths = model.local_variable is not None
    return Predictor(prepared, likelihood, draw_key, fitted.model.dtype.name, size, own_paths)


def predict(
    fitted: Fitted,
    x: np.ndarray,
    *,
    num_paths: int = 100,
    key: PRNGKeyArray,
    inputs: Standardiser | None = None,
    targets: Standardiser | None = None,
    local: LocalLayer | ClassLayer | None = None,
) -> Predictive:
    """The predictive distribution at rows `x`, from `num_paths` posterior paths.

    `inputs` and `targets` lead from the user's units to the model's. Without them `x` and the predictions are
    in the model's own units. A `local` layer corrects every path. Rows whose moments are not finite are
    refused: nothing that is computed from them would mean anything. To ask one model often, keep its
    `Predictor`.
    """
    predictor = make_predictor(fitted, num_paths=num_paths, key=key)
    return predictor(x, inputs=inputs, targets=targets, local=local)


def _refuse_infinite(mean: np.ndarray, variance: np.ndarray, x: np.ndarray) -> None:
    if np.isfinite(mean.sum() + variance.sum()):
        return
    finite = np.all(np.isfinite(mean) & np.isfinite(variance), axis=(0, 2))
    if finite.all():
        return
    row = np.array2string(x[np.argmin(finite)], threshold=6, edgeitems=2, precision=4)
    raise ValueError(
        f"The model has no finite prediction for {np.sum(~finite):,} of {len(x):,} rows, the first with the "
        f"inputs {row}. They are too far from the training rows, or the model's parameters are out of range: "
        f"check those inputs, and whether the training diverged."
    )


def block_size(model: DGP, num_paths: int) -> int:
    """Rows per block: a power of two for which the largest array of any layer stays near 64 MB."""
    fits = max(_BLOCK_FLOATS // (num_paths * model.row_size), 8)
    return min(_LARGEST_BLOCK, 2 ** (fits.bit_length() - 1))
