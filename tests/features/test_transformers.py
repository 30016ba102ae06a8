"""Transformers in front of a model: what is taken, what is refused, and what is computed once."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from novidgp.features.fingerprints import fingerprint, name_of
from novidgp.features.transformers import (
    _CACHE,
    _Cache,
    feature_rows,
    fitted_transformer,
    is_fitted,
    is_transformer,
)

ROWS = np.random.default_rng(0).standard_normal((12, 4))


@pytest.fixture(autouse=True)
def _empty_cache():
    _CACHE.clear()


class Counting:
    """A transformer that is no scikit-learn estimator, and counts its calls."""

    calls = 0

    def __init__(self, factor=2.0):
        self.factor = factor

    def transform(self, X):
        type(self).calls += 1
        return self.factor * np.asarray(X).reshape(len(X), -1)


def flat(X):
    return X.reshape(len(X), -1)


def test_objects_with_transform_and_functions_are_transformers_but_classes_are_not():
    assert all(is_transformer(value) for value in (PCA(2), Counting(), flat, lambda X: X))
    assert not any(is_transformer(value) for value in (PCA, Counting, None, "mlp", {"width": 3}, 3))


def test_an_unfitted_transformer_is_fitted_as_a_copy_and_a_fitted_one_is_used_as_it_is():
    given = PCA(2)
    fitted = fitted_transformer(given, ROWS, None)
    assert not is_fitted(given)
    np.testing.assert_array_equal(fitted.components_, PCA(2).fit(ROWS).components_)
    assert fitted_transformer(fitted, 2 * ROWS, None) is fitted
    for other in (Counting(), flat):
        assert fitted_transformer(other, ROWS, None) is other


def test_equal_data_and_transformers_are_computed_once():
    Counting.calls = 0
    first = feature_rows(Counting(), ROWS)
    again = feature_rows(Counting(), ROWS.copy())
    assert Counting.calls == 1
    np.testing.assert_array_equal(first, 2 * ROWS)
    assert again is first
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 1.0
    feature_rows(Counting(3.0), ROWS)
    feature_rows(Counting(), ROWS + 1e-9)
    feature_rows(Counting(), ROWS.astype(np.float32))
    assert Counting.calls == 4


def test_the_fit_of_a_transformer_is_done_once_too():
    first = fitted_transformer(PCA(2), ROWS, None)
    assert fitted_transformer(PCA(2), ROWS, None) is first
    assert fitted_transformer(PCA(3), ROWS, None) is not first
    assert fitted_transformer(PCA(2), ROWS[1:], None) is not first


def test_the_cache_forgets_the_oldest_beyond_its_limit():
    cache, made = _Cache(250), []
    for name in "abca":
        cache.get((name,), lambda name=name: made.append(name) or np.zeros(100, np.uint8))
    assert made == ["a", "b", "c", "a"]  # a went when c came
    cache.get(("c",), lambda: pytest.fail("c is still there"))


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda X: X[:, 0], ValueError, r"shape \(12,\)"),
        (lambda X: X[:, :0], ValueError, r"shape \(12, 0\)"),
        (lambda X: X.reshape(12, 2, 2), ValueError, "Flatten or pool"),
        (lambda X: X[1:], ValueError, "11 rows for 12"),
        (lambda X: np.where(X > 2, np.nan, X), ValueError, r"NaN or infinity in \d+ of 12 rows"),
        (lambda X: X.astype(str), TypeError, "needs numbers"),
        (scipy.sparse.csr_matrix, TypeError, "sparse matrix"),
    ],
)
def test_output_that_is_no_matrix_of_finite_numbers_is_refused(function, error, message):
    rows = ROWS.copy()
    rows[3, 1] = 5.0
    with pytest.raises(error, match=message):
        feature_rows(lambda X: function(X), rows)


def test_a_fingerprint_is_of_state_and_code_and_of_nothing_else():
    fitted = make_pipeline(StandardScaler(), PCA(2)).fit(ROWS)
    assert fingerprint(fitted) == fingerprint(make_pipeline(StandardScaler(), PCA(2)).fit(ROWS))
    assert fingerprint(fitted) != fingerprint(make_pipeline(StandardScaler(), PCA(2)).fit(ROWS[1:]))
    assert fingerprint(PCA(2)) != fingerprint(PCA(3))

    def scaled(by):
        return lambda X: by * X

    assert fingerprint(scaled(2)) == fingerprint(scaled(2))
    assert fingerprint(scaled(2)) != fingerprint(scaled(3))
    assert name_of(PCA(2)).endswith("PCA")
    assert name_of(flat).endswith("flat")


def test_the_library_version_that_scikit_learn_pickles_is_no_part_of_a_fingerprint(monkeypatch):
    before = fingerprint(make_pipeline(PCA(2)).fit(ROWS))
    monkeypatch.setattr("sklearn.base.__version__", "0.0")
    assert fingerprint(make_pipeline(PCA(2)).fit(ROWS)) == before


def test_what_has_no_fingerprint_is_computed_every_time():
    def wrapper():
        lock = __import__("threading").Lock()  # cannot be pickled
        return lambda X: (lock, Counting().transform(X))[1]

    Counting.calls = 0
    function = wrapper()
    assert fingerprint(function) is None
    feature_rows(function, ROWS)
    feature_rows(function, ROWS)
    assert Counting.calls == 2
