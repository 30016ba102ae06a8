"""Every method through the same checks, whichever `METHODS` holds: a new one enters this table by itself.

Sizes are tiny: what is checked is the contract, not the quality.
"""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from typer.testing import CliRunner

from novidgp import DGPRegressor
from novidgp.cli import app
from novidgp.estimators import arrays as estimator_module
from novidgp.inference import METHODS, make_method, prepare
from novidgp.model.build import ModelConfig
from novidgp.model.dgp import Batch
from support.small import ROWS, SMALL, rows, small_model

STEPS = 6
START = ModelConfig().noise
"""Where the noise of a regression starts."""
MODELS = {
    "two-layers": {},
    "three-layers-separate-float64": {"num_layers": 3, "kernel_sharing": "separate", "dtype": "float64"},
    "unwhitened-two-targets": {"whiten": False, "num_targets": 2},
    "one-layer-three-classes": {"num_layers": 1, "likelihood": "softmax", "num_classes": 3},
}
every_method = pytest.mark.parametrize("method", METHODS)


def form(tree):
    """Structure, shapes and dtypes of a pytree, and which types are weak."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]


# --- the contract, traced but not run ---------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("variant", MODELS)
def test_init_step_and_fitted_keep_to_their_shapes(method, variant):
    """A step returns a state of the form it was given (or it could not be scanned), scalars with a loss among
    them, and a posterior whose draws and paths have the model's shapes; nothing leaves the model's dtype."""
    settings = {"dtype": "float32", "num_targets": 1} | MODELS[variant]
    dtype, (x, y) = settings["dtype"], rows()
    with jax.enable_x64(dtype == "float64"):
        model = small_model(**settings, latent_dim=int(METHODS[method].uses_local_variable))
        batch = Batch(jnp.asarray(x, dtype), jnp.asarray(y[:, : settings["num_targets"]] > 0, dtype))
        inference, key = prepare(make_method(method), ROWS, STEPS), jax.random.key(0)

        state = jax.eval_shape(lambda key: inference.init(model, batch, key=key), key)
        after, info = jax.eval_shape(lambda s, key: inference.step(s, batch, key=key), state, key)
        assert form(after)[0] == form(state)[0]
        assert [f[:2] for f in form(after)[1]] == [f[:2] for f in form(state)[1]]
        assert not any(weak for *_, weak in form(after)[1])
        assert "loss" in info
        if inference.diagnose is not None:
            measured = jax.eval_shape(lambda s, key: inference.diagnose(s, batch, key=key), state, key)
            assert measured
            info = info | measured
        assert all(value.shape == () for value in info.values())
        floating = {leaf.dtype for leaf in jax.tree.leaves((after, info)) if leaf.dtype.kind == "f"}
        assert floating == {jnp.dtype(dtype)}

        fitted = jax.eval_shape(inference.fitted, state)
        assert form(fitted.model) == form(jax.eval_shape(lambda: model))
        draws = jax.eval_shape(lambda p, key: p.sample(7, key=key), fitted.posterior, key)
        assert tuple(draw.shape for draw in draws) == tuple((7, *s) for s in model.inducing_shapes())
        moments = jax.eval_shape(
            lambda f, key: f.posterior.propagate(f.model, batch.x, 7, key=key), fitted, key
        )
        width = model.inducing_shapes()[-1][1]
        assert moments.mean.shape == (7, ROWS, width)
        assert jnp.broadcast_shapes(moments.variance.shape, moments.mean.shape) == moments.mean.shape


# --- fits -------------------------------------------------------------------------------------------------


def fit(method, *, stop=False, **options):
    """A fit by one method in chunks of two steps, stopped after the first of them or not."""
    estimator = DGPRegressor(inference=method, **SMALL, max_steps=STEPS, **options)
    return estimator.fit(rows()[0], targets(), chunk=2, callbacks=[lambda progress: stop])


def targets():
    """Two of them, one value of which is missing."""
    y = rows()[1]
    y[3, 0] = np.nan
    return y


@functools.cache
def fitted(method):
    """One fit for all the tests below."""
    return fit(method)


@every_method
def test_a_fit_is_finite_and_moves_the_model(method):
    model = fitted(method)
    assert model.fit_status_ == "finished"
    assert len(model.history_["loss"]) == STEPS
    assert all(np.isfinite(values).all() for values in model.history_.values())
    mean, std = model.predict(rows()[0], return_std=True)
    assert mean.shape == std.shape == (ROWS, 2)
    assert np.isfinite(mean).all()
    assert np.all(std > 0)
    assert model.method_ == METHODS[method]()
    np.testing.assert_allclose(START, 0.5, rtol=1e-6)
    assert np.all(model.model_.likelihood.log_scale != np.float32(np.log(START)))


@every_method
def test_a_resumed_fit_repeats_an_uninterrupted_one(method, tmp_path):
    """Three fits of one seed, so that this is also: same seed, same result."""
    path = tmp_path / "run.ckpt"
    stopped = fit(method, stop=True, checkpoint=path)
    assert (stopped.fit_status_, stopped.n_iter_) == ("early-stopped", 2)
    resumed = fit(method, checkpoint=path)
    assert resumed.n_iter_ == STEPS
    whole = fitted(method)
    jax.tree.map(np.testing.assert_array_equal, resumed.model_, whole.model_)
    jax.tree.map(np.testing.assert_array_equal, resumed.posterior_, whole.posterior_)
    np.testing.assert_array_equal(resumed.history_["loss"], whole.history_["loss"])


@every_method
def test_a_classifier_in_double_precision_and_unwhitened_coordinates(method):
    """Start, two steps and prediction as one program: to compile several would take longer."""
    x, y = rows()
    settings = {"num_layers": 1, "latent_dim": int(METHODS[method].uses_local_variable)}

    @jax.jit
    def run(model, batch, key):
        inference = prepare(make_method(method), ROWS, STEPS)
        state = inference.init(model, batch, key=key)
        keys = jax.random.split(key, 2)
        state, info = jax.lax.scan(lambda state, k: inference.step(state, batch, key=k), state, keys)
        model, posterior, _ = inference.fitted(state)
        probability, _ = model.likelihood.moments(*posterior.propagate(model, batch.x, 4, key=key))
        return state, info, jnp.mean(probability, axis=0)

    with jax.enable_x64(True):
        model = small_model("float64", **settings, likelihood="bernoulli", whiten=False)
        batch = Batch(jnp.asarray(x), jnp.asarray(y[:, :1] > 0, jnp.float64))
        state, info, probability = jax.tree.map(np.asarray, run(model, batch, jax.random.key(0)))
    leaves = [leaf for leaf in jax.tree.leaves((state, info)) if leaf.dtype.kind == "f"]
    assert all(np.isfinite(leaf).all() for leaf in leaves)
    assert {leaf.dtype for leaf in (*leaves, probability)} == {np.dtype("float64")}
    assert probability.shape == (ROWS, 1)
    assert np.all((probability > 0) & (probability < 1))
    assert np.std(probability) > 0


@every_method
def test_the_command_line_trains_with_it(method, tmp_path, monkeypatch):
    """As far as the trainer, which is a stub here; tests/cli has real fits."""
    seen = []

    def trainer(model, method, data, **options):
        seen.append(method)
        raise ValueError("reached the trainer")

    monkeypatch.setattr(estimator_module, "fit", trainer)
    table = tmp_path / "table.csv"
    pd.DataFrame(rows()[0], columns=["a", "b"]).assign(y=rows()[1][:, 0]).to_csv(table, index=False)
    options = f"--target y --inference {method} --inducing 5 -o {tmp_path / 'model.novidgp'}".split()
    result = CliRunner().invoke(app, ["fit", str(table), *options])
    assert "reached the trainer" in result.output
    assert seen == [METHODS[method]()]


def test_the_paper_preset_is_the_method_of_that_name():
    model = fit("novi", preset="paper")
    assert model.method_ == METHODS["novi-paper"]()
    np.testing.assert_array_equal(model.predict(rows()[0]), fitted("novi-paper").predict(rows()[0]))


def test_diagnosis_is_recorded_between_chunks_and_changes_nothing():
    model, plain = fit("novi", diagnose=True), fitted("novi")
    divergence = model.history_["fisher_divergence"]
    assert divergence.shape == (STEPS // 2,)
    assert np.all(np.isfinite(divergence) & (divergence > 0))
    np.testing.assert_allclose(model.history_["rsd"], divergence / 4, rtol=1e-6)
    assert "rsd" not in plain.history_
    np.testing.assert_array_equal(model.history_["loss"], plain.history_["loss"])
    assert "rsd" not in fit("dsvi", diagnose=True).history_  # nothing to measure


def test_a_grid_search_chooses_the_method():
    """By the default score, on one split; the winner is fitted to all rows and predicts."""
    x, y = rows()
    estimator = DGPRegressor(num_layers=1, max_steps=2, **SMALL)
    grid = GridSearchCV(estimator, {"inference": ["dsvi", "ml"]}, cv=ShuffleSplit(1, random_state=0))
    grid.fit(x, y[:, 0])
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all()
    assert grid.best_estimator_.inference == grid.best_params_["inference"]
    assert np.isfinite(grid.predict(x)).all()


ELSEWHERE = """
import sys, pathlib, numpy as np, novidgp
folder = pathlib.Path(sys.argv[1])
for path in folder.glob("*.novidgp"):
    np.save(path.with_suffix(".npy"), novidgp.load_model(path).predict(np.load(folder / "x.npy")))
"""


def test_every_saved_model_predicts_the_same_in_a_new_process(tmp_path):
    x = rows()[0]
    np.save(tmp_path / "x.npy", x)
    for method in METHODS:
        fitted(method).save(tmp_path / f"{method}.novidgp")
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    for method in METHODS:
        np.testing.assert_array_equal(np.load(tmp_path / f"{method}.npy"), fitted(method).predict(x))
