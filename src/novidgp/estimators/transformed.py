"""What an estimator's model sees of its inputs: these themselves, or a transformer's features of them."""

from typing import Any

from novidgp.estimators.warm import goes_on
from novidgp.features.transformers import feature_rows, fitted_rows, is_transformer


def fit_transformer(estimator: Any, X: Any, y: Any) -> Any:
    """The training inputs as the model sees them; the transformer is `features_` then, or None. It stays as
    it is where the fit goes on from another."""
    given = estimator.features
    if goes_on(estimator):
        return transformed(estimator, X)
    if not is_transformer(given):
        estimator.features_ = None
        return X
    estimator.features_, rows = fitted_rows(given, X, y)
    return rows


def transformed(estimator: Any, X: Any) -> Any:
    """Inputs as the model of a fitted estimator sees them."""
    return X if estimator.features_ is None else feature_rows(estimator.features_, X)
