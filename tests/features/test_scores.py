"""Cross-fitted scores against scikit-learn's ridge regression."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge

from novidgp import DGPClassifier, load_model
from novidgp.features import PatchFeatures
from novidgp.features.scores import _PENALTIES, FOLDS, ridge_scores


def test_every_row_has_the_score_of_a_regression_without_its_fold():
    rng = np.random.default_rng(0)
    rows = 3.0 + rng.standard_normal((60, 5)) * [1, 2, 3, 4, 5]
    targets = rows @ rng.standard_normal((5, 2)) + 0.3 * rng.standard_normal((60, 2))
    found = ridge_scores(rows, targets, np.random.RandomState(1))
    fold = np.random.RandomState(1).permutation(60) % FOLDS
    standard, centred = (rows - rows.mean(0)) / rows.std(0), targets - targets.mean(0)

    def fitted(chosen, penalty):
        return Ridge(alpha=penalty * chosen.sum(), fit_intercept=False).fit(standard[chosen], centred[chosen])

    errors = [np.mean((fitted(fold != 0, p).predict(standard) - centred)[fold == 0] ** 2) for p in _PENALTIES]
    penalty = _PENALTIES[int(np.argmin(errors))]
    for index in range(FOLDS):
        expected = fitted(fold != index, penalty).predict(standard[fold == index])
        np.testing.assert_allclose(found.held_out[fold == index], expected, rtol=1e-3, atol=1e-3)
    everything = fitted(np.ones(60, bool), penalty).predict(standard)
    np.testing.assert_allclose((rows - found.mean) @ found.weight, everything, rtol=1e-3, atol=1e-3)


SMALL = {"num_centres": 12, "size": 3, "components": 4, "num_patches": 500, "class_scores": True}


def test_patch_features_have_a_score_for_every_class_before_the_components():
    digits = load_digits()
    images, labels = digits.images[:600:2], digits.target[:600:2]
    features = PatchFeatures(**SMALL)
    seen = features.fit_transform(images, labels)
    after = features.transform(images)
    assert seen.shape == after.shape == (300, 14)
    np.testing.assert_allclose(seen[:, 10:], after[:, 10:], rtol=0.01, atol=0.01 * after.std())
    right = [(scores[:, :10].argmax(1) == labels).mean() for scores in (seen, after)]
    assert 0.6 < right[0] < right[1]  # those of rows it was fitted to are too good
    new = features.transform(digits.images[1:600:2])[:, :10].argmax(1)
    assert (new == digits.target[1:600:2]).mean() == pytest.approx(right[0], abs=0.1)
    with pytest.raises(ValueError, match="needs labels"):
        PatchFeatures(**SMALL).fit(images)


def test_an_estimator_is_fitted_to_the_scores_of_regressions_without_the_row(tmp_path):
    digits = load_digits()
    images, labels = digits.images[:100], digits.target[:100]
    settings = {"num_layers": 1, "num_inducing": 5, "inference": "ml", "max_steps": 2, "random_state": 0}
    model = DGPClassifier(features=PatchFeatures(**SMALL), **settings).fit(images, labels)
    seen = PatchFeatures(**SMALL).fit_transform(images, labels)
    np.testing.assert_allclose(model.input_scaling_.shift, seen.mean(0), rtol=1e-4, atol=1e-4)
    model.save(tmp_path / "model.novidgp")
    again = load_model(tmp_path / "model.novidgp")
    np.testing.assert_array_equal(again.predict_proba(images), model.predict_proba(images))
