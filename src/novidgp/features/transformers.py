"""Any transformer in front of a model: an object with `transform(X)`, or a function of X.

Its output is the model's input, so it is computed once for the same data: a grid search over the model's
parameters finds it in memory.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from novidgp.features.fingerprints import fingerprint, name_of

_CACHE_BYTES = 2**30
"""Memory for features of earlier calls. The oldest go first."""


def is_transformer(value: Any) -> bool:
    """Whether a value turns inputs into features: an object with `transform`, or a function."""
    return not isinstance(value, type) and (hasattr(value, "transform") or callable(value))


def is_fitted(transformer: Any) -> bool:
    """Whether a transformer can be used as it is: it was fitted, or there is nothing to fit."""
    if not hasattr(transformer, "fit"):
        return True
    try:
        check_is_fitted(transformer)
    except NotFittedError:
        return False
    except TypeError:  # no scikit-learn estimator: it says nothing of its state
        return True
    return True


def fitted_transformer(transformer: Any, X: Any, y: Any) -> Any:
    """The transformer itself if it can be used as it is, else a copy that is fitted to `X` and `y`."""
    if is_fitted(transformer):
        return transformer
    return _CACHE.get((transformer, X, y), lambda: cast(Any, clone(transformer)).fit(X, y))


def fitted_rows(transformer: Any, X: Any, y: Any) -> tuple[Any, np.ndarray]:
    """The transformer fitted to `X` and `y`, and the training rows' features.

    One that says so (`cross_fits`) has other features for rows that it was fitted to, in `fit_transform`:
    those that it would have without having seen them.
    """
    if is_fitted(transformer) or not getattr(transformer, "cross_fits", False):
        fitted = fitted_transformer(transformer, X, y)
        return fitted, feature_rows(fitted, X)

    def compute() -> tuple[Any, np.ndarray]:
        copy = cast(Any, clone(transformer))
        return copy, _check_rows(copy.fit_transform(X, y), X, name_of(copy))

    return _CACHE.get((transformer, X, y), compute)


def feature_rows(transformer: Any, X: Any) -> np.ndarray:
    """The features `(n, d)` of inputs of any shape, as a transformer gives them, checked; not to be
    written to."""

    def compute() -> np.ndarray:
        function = transformer.transform if hasattr(transformer, "transform") else transformer
        return _check_rows(function(X), X, name_of(transformer))

    return _CACHE.get((transformer, X), compute)


def _check_rows(output: Any, X: Any, name: str) -> np.ndarray:
    """Refuse what is no matrix of finite numbers with a row for every row of X."""
    if hasattr(output, "toarray"):
        raise TypeError(
            f"features={name} gives a sparse matrix; the model needs a dense one. Put a decomposition after "
            "it: make_pipeline(transformer, TruncatedSVD(50))."
        )
    rows = np.asarray(output)
    count = X.shape[0] if hasattr(X, "shape") else len(X)
    if rows.dtype.kind not in "buif":
        raise TypeError(f"features={name} gives values of type {rows.dtype}; the model needs numbers.")
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise ValueError(
            f"features={name} gives an array of shape {rows.shape}; the model needs a row of numbers for "
            "every row of X. Flatten or pool: features.reshape(len(features), -1)."
        )
    if len(rows) != count:
        raise ValueError(f"features={name} gives {len(rows)} rows for {count} rows of X.")
    if not np.isfinite(rows).all():
        bad = int((~np.isfinite(rows)).any(axis=1).sum())
        raise ValueError(
            f"features={name} gives NaN or infinity in {bad} of {count} rows; mend the transformer or drop "
            "these rows."
        )
    rows = rows.view()
    rows.flags.writeable = False
    return rows


class _Cache:
    """Results by the fingerprints of what they were made from, within a limit of memory."""

    def __init__(self, limit: int):
        self._limit = limit
        self._results: OrderedDict[tuple[str, ...], Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, sources: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """The result for `sources`, from memory or computed. Sources without fingerprint are not kept."""
        prints = [fingerprint(source) for source in sources]
        key = tuple(text for text in prints if text is not None)
        if len(key) < len(sources):
            return compute()
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        result = compute()
        with self._lock:
            self._results[key] = result
            while sum(map(_size, self._results.values())) > self._limit:
                self._results.popitem(last=False)
        return result

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._results.clear()


def _size(result: Any) -> int:
    """Bytes of features, or of a fitted transformer's arrays, or of both."""
    if isinstance(result, tuple):
        return sum(map(_size, result))
    if isinstance(result, np.ndarray):
        return result.nbytes
    return sum(value.nbytes for value in vars(result).values() if isinstance(value, np.ndarray))


_CACHE = _Cache(_CACHE_BYTES)
