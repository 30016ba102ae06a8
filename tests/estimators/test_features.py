"""Transformers as `features=` of the estimators: images in, files without code, grid search and clone."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, ShuffleSplit

from novidgp import DGPClassifier, DGPRegressor, load_model
from novidgp.features import PatchFeatures
from novidgp.features.transformers import _CACHE
from novidgp.storage import ModelFileError
from support.small import SMALL, rows

QUICK = SMALL | {"inference": "dsvi", "num_layers": 1, "max_steps": 2, "local": False}


def pairs(images):
    """Two features of images `(n, 2, 3, 1)`; their columns are the rows of tests/support/small.py."""
    return images.reshape(len(images), -1)[:, :2]


def as_images(x):
    return np.concatenate([x, np.ones((len(x), 4))], axis=1).reshape(-1, 2, 3, 1)


@pytest.fixture(scope="module")
def model():
    """Fitted with a function of images, which is the model of its output."""
    x, y = rows()
    return DGPRegressor(features=pairs, **QUICK).fit(as_images(x), y[:, 0])


def test_a_model_of_features_is_the_model_of_the_transformers_output(model):
    x, y = rows()
    plain = DGPRegressor(**QUICK).fit(x, y[:, 0])
    for first, second in zip(
        model.predict(as_images(x), return_std=True), plain.predict(x, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(model.log_density(as_images(x), y[:, 0]), plain.log_density(x, y[:, 0]))
    np.testing.assert_array_equal(model.predictive(as_images(x)).mean(), plain.predictive(x).mean())
    assert model.n_features_in_ == 2
    assert model.features_ is pairs
    assert plain.features_ is None


def test_a_summary_names_the_transformer(model, capsys):
    model.summary()
    assert "pairs" in capsys.readouterr().out


def test_a_file_asks_for_the_transformer_again(model, tmp_path):
    x = as_images(rows()[0])
    path = tmp_path / "model.novidgp"
    model.save(path)
    with pytest.raises(
        ModelFileError, match=r"pairs, which is code.*load_model\(path, features=transformer\)"
    ):
        load_model(path)
    with pytest.raises(ModelFileError, match="not the transformer that the model was fitted with"):
        load_model(path, features=as_images)
    with pytest.raises(ModelFileError, match="is no transformer"):
        load_model(path, features="mlp")
    again = load_model(path, features=pairs)
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert again.features is pairs
    again.save(path)  # and once more
    np.testing.assert_array_equal(load_model(path, features=pairs).predict(x), model.predict(x))


def test_a_file_without_transformer_refuses_one(tmp_path):
    x, y = rows()
    DGPRegressor(**QUICK).fit(x, y[:, 0]).save(tmp_path / "plain.novidgp")
    with pytest.raises(ModelFileError, match="without features="):
        load_model(tmp_path / "plain.novidgp", features=pairs)


def test_a_scikit_learn_transformer_is_fitted_to_the_training_rows_and_asked_for_fitted(tmp_path):
    x, y = rows()
    wide = np.concatenate([x, x @ [[1.0], [2.0]]], axis=1)
    given = PCA(2)
    model = DGPRegressor(features=given, **QUICK).fit(wide, y[:, 0])
    assert not hasattr(given, "components_")
    np.testing.assert_allclose(model.features_.components_, PCA(2).fit(wide).components_)
    copy = clone(model)
    assert copy.get_params()["features__n_components"] == 2
    assert not hasattr(copy, "features_")
    path = tmp_path / "pca.novidgp"
    model.save(path)
    with pytest.raises(ModelFileError, match=r"is not fitted.*features_"):
        load_model(path, features=PCA(2))
    with pytest.raises(ModelFileError, match="what it learned differ"):
        load_model(path, features=PCA(2).fit(wide[1:]))
    np.testing.assert_array_equal(
        load_model(path, features=PCA(2).fit(wide)).predict(wide), model.predict(wide)
    )


def test_patches_are_inside_the_file(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 6, 6)).astype(np.uint8)
    transformer = PatchFeatures(num_centres=4, size=3, components=2, num_patches=100)
    model = DGPClassifier(features=transformer, **QUICK).fit(images, rng.integers(0, 2, 20))
    model.save(tmp_path / "patches.novidgp")
    again = load_model(tmp_path / "patches.novidgp")
    np.testing.assert_array_equal(again.predict_proba(images), model.predict_proba(images))
    assert again.features.get_params() == transformer.get_params()


def test_a_grid_search_computes_features_once_for_each_split():
    calls = []

    class Slow:
        def transform(self, X):
            calls.append(len(X))
            return pairs(X)

        def fingerprint(self):
            return "slow"

    _CACHE.clear()
    x, y = rows()
    grid = GridSearchCV(
        DGPRegressor(features=Slow(), **QUICK), {"max_steps": [1, 2]}, cv=ShuffleSplit(1, random_state=0)
    )
    grid.fit(as_images(x), y[:, 0])
    assert sorted(calls) == [2, 18, 20]


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        (PCA, TypeError, r"features=PCA is a class; pass an object, PCA\(\.\.\.\)"),
        (3, TypeError, r"an object with transform\(X\), got 3"),
        ("resnet", ValueError, "resnet"),
        (lambda X: X[:, 0], ValueError, "needs a row of numbers for every row of X"),
    ],
)
def test_what_makes_no_features_is_refused_before_anything_is_compiled(features, error, message):
    x, y = rows()
    with pytest.raises(error, match=message):
        DGPRegressor(features=features, **QUICK).fit(x, y[:, 0])
