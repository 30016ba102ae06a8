"""The estimators keep scikit-learn's contract, and do what their documentation says."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from novidgp import DGPClassifier, DGPRegressor, Predictive

SMALL = {
    "inference": "dsvi",
    "num_layers": 1,
    "num_inducing": 5,
    "max_steps": 60,
    "num_predict_samples": 8,
    "inference_options": {"learning_rate": 0.05},
}
CHEAPEST = {
    "inference": "ml",
    "num_layers": 1,
    "num_inducing": 5,
    "max_steps": 30,
    "num_predict_samples": 2,
    "inference_options": {"learning_rate": 0.1, "num_paths": 1},
}
"""The method that compiles soonest."""
DEFAULT = {"num_layers": 1, "num_inducing": 5, "max_steps": 60, "num_predict_samples": 8}
"""The default method. scikit-learn asks for an R^2 above 0.5 on its regression; 30 seeds have 0.626, with a
standard deviation of 0.023."""
OF_THE_METHOD = (
    "check_fit_idempotent",
    "check_estimators_pickle",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_regressors_train",
    "check_classifiers_train",
    "check_fit2d_1feature",
)
"""What depends on the method: its seeds, the state that is kept, how rows are predicted, and whether it
learns."""


def not_held(estimator):
    """scikit-learn asks for predictions that are equal to 1e-7 after training. In float64 those of a
    regressor and of a binary classifier are: test_weights.py."""
    several_classes = isinstance(estimator, DGPClassifier)
    reason = "the softmax draws noise for every row" if several_classes else "2e-6 in float32 after 30 steps"
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@pytest.fixture(scope="module")
def fitted(curve):
    return DGPRegressor(**SMALL | {"num_layers": 2, "num_inducing": 10}, random_state=0).fit(*curve)


@parametrize_with_checks(
    [DGPRegressor(**CHEAPEST), DGPClassifier(**CHEAPEST)], expected_failed_checks=not_held
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def checks_of_the_method():
    for kind in (DGPRegressor, DGPClassifier):
        for estimator, check in estimator_checks_generator(kind(**DEFAULT)):
            name = check.func.__name__
            if name in OF_THE_METHOD and check.keywords in ({}, {"readonly_memmap": False}):
                yield pytest.param(estimator, check, id=f"{kind.__name__}-{name}")


@pytest.mark.parametrize(("estimator", "check"), list(checks_of_the_method()))
def test_scikit_learn_contract_of_the_default_method(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([DGPRegressor(**DEFAULT), DGPClassifier(**DEFAULT)], expected_failed_checks=not_held)
def test_the_whole_scikit_learn_contract_of_the_default_method(estimator, check):
    check(estimator)


def test_the_chosen_checks_are_all_there():
    """scikit-learn may rename a check, and it would be left out in silence."""
    names = [str(parameters.id) for parameters in checks_of_the_method()]
    assert {name.split("-")[1] for name in names} == set(OF_THE_METHOD)


def test_rows_are_predicted_alone(fitted, curve):
    """Common random numbers: neither the neighbours, nor the order, nor the block of a row matter."""
    X = np.concatenate([curve[0]] * 10)  # more than one block
    mean, std = fitted.predict(X, return_std=True)
    order = np.random.default_rng(1).permutation(len(X))
    np.testing.assert_allclose(fitted.predict(X[order]), mean[order], rtol=1e-6)
    np.testing.assert_allclose(fitted.predict(X[257:259], return_std=True)[1], std[257:259], rtol=1e-6)


def test_predictions_are_in_the_users_units(fitted, curve):
    X, y = curve
    mean, std = fitted.predict(X, return_std=True)
    assert fitted.score(X, y) > 0.9
    assert abs(mean.mean() - 100) < 5
    assert np.all((std > 0.1) & (std < 20))
    low, middle, high = fitted.predict_quantiles(X, [0.05, 0.5, 0.95]).T
    assert np.all((low < middle) & (middle < high))
    np.testing.assert_allclose(fitted.predict_quantiles(X, 0.5), middle, rtol=1e-6)


def test_scaling_the_targets_shifts_the_log_density_by_the_jacobian(curve):
    X, y = curve
    one = DGPRegressor(**SMALL, random_state=0).fit(X, y)
    thousand = DGPRegressor(**SMALL, random_state=0).fit(X, 1024.0 * y)  # a power of two: same rounding
    np.testing.assert_allclose(
        thousand.log_density(X, 1024.0 * y), one.log_density(X, y) - np.log(1024.0), atol=1e-4
    )


def test_one_predictive_distribution_has_all_of_it(fitted, curve):
    """What the methods of the estimator return, from one propagation."""
    X, y = curve
    predictive = fitted.predictive(X)
    assert isinstance(predictive, Predictive)
    assert len(predictive) == len(X)
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_array_equal(predictive.mean()[:, 0], mean)
    np.testing.assert_array_equal(predictive.std()[:, 0], std)
    np.testing.assert_array_equal(
        predictive.quantile([0.1, 0.9])[..., 0], fitted.predict_quantiles(X, [0.1, 0.9])
    )
    np.testing.assert_array_equal(predictive.log_prob(y), fitted.log_density(X, y))


def test_callbacks_see_the_run_and_stop_it(curve):
    seen = []

    def stop(progress):
        seen.append((progress.step, progress.steps, set(progress.info)))
        return progress.step >= 40

    model = DGPRegressor(**SMALL, random_state=0).fit(*curve, callbacks=[stop], chunk=20)
    assert [step for step, *_ in seen] == [20, 40]
    assert all(steps == 60 and "loss" in info for _, steps, info in seen)
    assert (model.n_iter_, model.fit_status_) == (40, "early-stopped")
    labels = curve[1] > 100
    short = DGPClassifier(**SMALL, random_state=0).fit(curve[0], labels, callbacks=[lambda _: True], chunk=20)
    assert short.n_iter_ == 20


def test_samples_have_the_predictive_moments(fitted, curve):
    """4000 draws: the mean within 5 standard errors, the spread within 10 %."""
    X = curve[0][:5]
    draws = fitted.sample_y(X, 4000, random_state=3)
    mean, std = fitted.predict(X, return_std=True)
    assert draws.shape == (5, 4000)
    assert np.all(np.abs(draws.mean(1) - mean) < 5 * std / np.sqrt(4000))
    np.testing.assert_allclose(draws.std(1), std, rtol=0.1)
    np.testing.assert_array_equal(draws, fitted.sample_y(X, 4000, random_state=3))


def test_several_targets_with_missing_values(curve):
    X, y = curve
    Y = np.stack([y, 1e6 * X[:, 1]], axis=1)
    Y[::3, 0] = np.nan
    Y[1::3, 1] = np.nan
    Y[5] = np.nan
    model = DGPRegressor(**SMALL, random_state=0).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == Y.shape
    assert model.predict_quantiles(X, [0.1, 0.9]).shape == (60, 2, 2)
    assert model.sample_y(X, 3).shape == (60, 2, 3)
    density = model.log_density(X, Y)
    assert np.all(np.isfinite(density))
    assert density[5] == 0.0  # nothing observed, nothing to score
    observed = np.isfinite(Y[:, 1])
    assert np.corrcoef(mean[observed, 1], Y[observed, 1])[0, 1] > 0.95


@pytest.mark.parametrize("likelihood", ["student-t", "heteroscedastic", "poisson"])
def test_other_likelihoods(curve, likelihood):
    X, y = curve
    y = np.round((y - y.min()) / 5) if likelihood == "poisson" else y
    model = DGPRegressor(**SMALL, likelihood=likelihood, random_state=0).fit(X, y)
    quantiles = model.predict_quantiles(X, [0.1, 0.5, 0.9])
    assert np.all(np.diff(quantiles, axis=1) >= 0)
    assert np.all(np.isfinite(model.log_density(X, y)))
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.5
    if likelihood == "poisson":
        assert np.all(quantiles == np.round(quantiles))
        assert np.all(quantiles >= 0)


def test_three_text_classes(curve):
    X, y = curve
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [90, 110])]
    model = DGPClassifier(**SMALL, random_state=0).fit(X, labels)
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(1), 1.0, atol=1e-12)
    assert list(model.classes_) == ["high", "low", "middle"]
    assert model.score(X, labels) > 0.7
    chosen = proba[np.arange(60), np.searchsorted(model.classes_, labels)]
    np.testing.assert_allclose(model.log_density(X, labels), np.log(chosen))


def test_float64_is_no_global_switch(curve):
    import jax.numpy as jnp

    model = DGPRegressor(**SMALL, dtype="float64", random_state=0).fit(*curve)
    assert model.model_.layers[0].inducing.dtype == np.float64
    assert jnp.ones(1).dtype == np.float32
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(curve[0]), model.predict(curve[0]))


def test_pipeline_grid_search_and_cross_validation(curve):
    X, y = curve
    pipeline = make_pipeline(MinMaxScaler(), DGPRegressor(**SMALL | {"max_steps": 20}, random_state=0))
    grid = GridSearchCV(
        pipeline,
        {
            "dgpregressor__kernel": ["rq", "rbf+matern12"],
            "dgpregressor__inference_options": [{"learning_rate": 0.1}],
        },
        cv=2,
    )
    grid.fit(X, y)
    assert np.isfinite(grid.best_score_)
    scores = cross_val_score(clone(grid.best_estimator_), X, y, cv=2)
    assert np.all(np.isfinite(scores))


def test_minibatches_and_held_out_rows(curve):
    X, y = curve
    model = DGPRegressor(**SMALL, batch_size=16, validation_fraction=0.2, patience=2, random_state=0).fit(
        X, y
    )
    assert np.all(np.isfinite(model.history_["validation_nll"]))
    assert len(model.history_["loss"]) == model.n_iter_ == SMALL["max_steps"]
    assert model.fit_status_ == "finished"


def test_importing_the_package_is_light():
    code = (
        "import sys, novidgp; print([m for m in ('jax', 'numpy', 'pandas', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
