"""Mixtures: when snapshots are taken, that every start is the method by itself, and that predictions are
mixtures."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from novidgp import DGPClassifier, DGPRegressor, load_model
from novidgp.inference import DSVI, NOVI, Fitted, Inference, prepare, with_snapshots, with_starts
from novidgp.inference.ensembles import make_plan
from novidgp.model.build import ModelConfig, starting_models
from novidgp.model.dgp import Batch
from novidgp.numerics.scaling import identity
from novidgp.numerics.trees import stacked
from novidgp.posteriors import prepared
from novidgp.posteriors.draws import Delta
from novidgp.prediction.predictive import HostMoments, Predictive
from novidgp.training.validation import scorer
from support.small import ROWS, SMALL, assert_close, rows, small_batch, small_model

X, TARGETS = rows()
KEY = jax.random.key(0)
QUICK = SMALL | {"inference": "dsvi", "max_steps": 20}


# --- snapshots --------------------------------------------------------------------------------------------


def counting():
    """A method whose posterior is the number of its steps."""
    model = small_model(num_layers=1)
    return Inference(
        lambda model, batch, *, key: jnp.zeros(()),
        lambda state, batch, *, key: (state + 1, {"loss": state}),
        lambda state: Fitted(model, Delta((jnp.full((1, 1), state),))),
        lambda state, batch, *, key: {"steps": state},
    )


@pytest.mark.parametrize(
    ("planned", "done", "kept"),
    [
        (1000, 1000, [400, 600, 800]),
        (2000, 2000, [800, 1200, 1600]),
        (1000, 500, [400, 500, 500]),  # interrupted
        (500, 500, [300, 300, 400]),
        (100, 100, [100, 100, 100]),  # not settled: all are the last
    ],
)
def test_snapshots_are_of_the_steps_they_should_be(planned, done, kept):
    inference, model, batch = with_snapshots(counting(), planned), small_model(num_layers=1), small_batch()

    @jax.jit
    def count(steps):
        start = inference.init(model, batch, key=KEY)
        return jax.lax.fori_loop(0, steps, lambda _, s: inference.step(s, batch, key=KEY)[0], start)

    state = count(done)
    fitted = inference.fitted(state)
    assert np.ravel(fitted.posterior.point[0]) == done
    np.testing.assert_array_equal(np.ravel(fitted.ensemble.posterior.point[0]), kept)
    np.testing.assert_array_equal(np.ravel(fitted.members().posterior.point[0]), [*kept, done])
    assert inference.diagnose is not None
    assert inference.diagnose(state, small_batch(), key=KEY) == {"steps": done}


def several():
    """Three point estimates that differ in everything, and the mixture of them."""
    singles = []
    for seed, noise in enumerate((0.1, 0.5, 2.0)):
        model = small_model(seed=seed, noise=noise)
        draws = np.random.default_rng(seed).standard_normal
        point = tuple(jnp.asarray(draws((m, p)), jnp.float32) for m, p in model.inducing_shapes())
        singles.append(Fitted(model, Delta(point)))
    return singles, singles[-1]._replace(ensemble=stacked(singles[:-1]))


def predictive(fitted, paths, key):
    """As `predict` has it, with the key of the paths given."""
    likelihood, ready = prepared.prepare(fitted, paths, key=key)
    moments, _ = jax.jit(prepared.propagate)(ready, small_batch().x)
    return Predictive(likelihood, HostMoments(*map(np.asarray, moments)), identity(1), KEY, ROWS)


def test_predictions_are_the_mixture_of_the_members():
    """Moments and densities by hand from those of each member with its own noise: rounding alone differs.

    Draws are compared with them within 5 standard errors.
    """
    singles, mixture = several()
    keys = jax.random.split(KEY, len(singles))
    parts = [predictive(single, 40, key) for single, key in zip(singles, keys, strict=True)]
    whole = predictive(mixture, 120, KEY)
    means, variances = np.stack([p.mean() for p in parts]), np.stack([p.std() ** 2 for p in parts])
    np.testing.assert_allclose(whole.mean(), means.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(whole.std() ** 2, variances.mean(0) + means.var(0), rtol=1e-4)
    targets = TARGETS[:, :1]
    densities = np.stack([p.log_prob(targets) for p in parts])
    np.testing.assert_allclose(whole.log_prob(targets), logsumexp(densities, axis=0) - np.log(3), rtol=1e-4)
    draws = whole.sample(4000, key=jax.random.key(1))
    assert np.all(np.abs(draws.mean(0) - whole.mean()) < 5 * whole.std() / np.sqrt(4000))
    median = whole.quantile(np.array([0.5]))[:, 0]
    np.testing.assert_allclose(np.mean(draws < median, axis=0), 0.5, atol=5 * 0.5 / np.sqrt(4000))


def test_validation_scores_the_mixture():
    """Of one row, with the same noise for all members: the log of the mean density, but for rounding."""
    singles, mixture = several()
    one = Batch(*(a[:1] for a in small_batch()[:2]))
    score = scorer(one, KEY)
    alone = np.array([score(single) for single in singles])
    np.testing.assert_allclose(score(mixture), np.log(3) - logsumexp(-alone), rtol=1e-5)


def test_dsvi_can_keep_them_too_and_a_file_holds_them(tmp_path):
    options = QUICK | {"num_layers": 1, "max_steps": 340}
    plain = DGPRegressor(**options).fit(X, TARGETS[:, 0])
    model = DGPRegressor(**options, inference_options={"snapshots": True}).fit(X, TARGETS[:, 0])
    assert plain.ensemble_ is None
    losses = (fitted.history_["loss"][:100] for fitted in (model, plain))
    np.testing.assert_allclose(*losses, rtol=1e-3)  # two programs, whose rounding differs
    assert np.any(model.predict(X) != plain.predict(X))
    model.save(tmp_path / "model.novi")
    np.testing.assert_array_equal(load_model(tmp_path / "model.novi").predict(X), model.predict(X))


# --- starts -----------------------------------------------------------------------------------------------


def test_every_start_is_the_method_by_itself():
    """Model, posterior and loss, with the keys each start is given: rounding alone differs."""
    data = small_batch()
    models = [small_model(seed=seed) for seed in (0, 1)]
    keys = jax.random.split(KEY, 4)

    @functools.partial(jax.jit, static_argnums=0)
    def run(starts, model, keys):
        """What is fitted after a few steps, and the last loss."""
        inference = prepare(DSVI(), ROWS, 3, starts=starts)
        state = inference.init(model, data, key=keys[0])
        state, info = jax.lax.scan(lambda s, key: inference.step(s, data, key=key), state, keys[1:])
        return inference.fitted(state), info["loss"][-1]

    several, loss = run(2, stacked(models), keys)
    own_keys = jnp.stack([jax.random.split(key, 2) for key in keys], axis=1)
    alone = [run(1, *pair) for pair in zip(models, own_keys, strict=True)]
    close = {"rtol": 1e-4, "atol": 1e-5}
    assert_close(several.members(), stacked([fitted for fitted, _ in alone]), **close)
    assert_close(loss, np.mean([own_loss for _, own_loss in alone]), **close)


def test_the_diagnosis_of_several_starts_is_their_mean():
    inference = with_starts(counting())
    assert inference.diagnose is not None
    found = inference.diagnose(jnp.asarray([2.0, 4.0]), small_batch(), key=KEY)
    np.testing.assert_allclose(found["steps"], 3.0)


def test_a_plan_is_compared_by_value_and_knows_its_wrappers():
    kept = NOVI(snapshots=True)
    plan = make_plan(kept, ROWS, 1000, starts=2)
    assert plan == make_plan(kept, ROWS + 1, 2000, starts=2)
    assert hash(plan) == hash(make_plan(kept, ROWS + 1, 2000, starts=2))
    assert plan.snapshots
    assert not make_plan(NOVI(), ROWS, 1000).snapshots
    assert plan != make_plan(NOVI(snapshots=True, num_samples=3), ROWS, 1000, starts=2)


def test_starts_differ_and_the_first_is_that_of_a_single_one():
    config = ModelConfig(num_inducing=5)
    single, several = (starting_models(config, X, key=KEY, starts=starts) for starts in (1, 3))
    inducing = np.asarray(several.layers[0].inducing)
    assert len(inducing) == 3
    np.testing.assert_array_equal(inducing[0], single.layers[0].inducing)
    assert np.abs(inducing[1] - inducing[0]).max() > 0.3
    assert np.abs(inducing[2] - inducing[1]).max() > 0.3


@functools.cache
def two_novi_starts():
    """NOVI keeps three snapshots of each."""
    return novi_starts().fit(X, TARGETS[:, 0], chunk=3)


def novi_starts(**options):
    return DGPRegressor(**SMALL, starts=2, max_steps=6, inference_options={"snapshots": True}, **options)


def test_files_hold_all_starts_and_snapshots(tmp_path):
    model = two_novi_starts()
    assert len(model.ensemble_.model.layers[0].inducing) == 7
    model.save(tmp_path / "model.novi")
    np.testing.assert_array_equal(load_model(tmp_path / "model.novi").predict(X), model.predict(X))


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    """The trainer's promise holds with a leading axis of starts: bit for bit."""
    cut = novi_starts(checkpoint=tmp_path / "run")
    stop = [lambda progress: progress.step == 3]
    assert cut.fit(X, TARGETS[:, 0], callbacks=stop, chunk=3).n_iter_ == 3
    whole = two_novi_starts()
    np.testing.assert_array_equal(cut.fit(X, TARGETS[:, 0], chunk=3).predict(X), whole.predict(X))


def test_a_classifier_has_them_too():
    cheap = QUICK | {"inference": "ml", "num_layers": 1, "max_steps": 2}
    model = DGPClassifier(starts=2, **cheap).fit(X, (TARGETS[:, 0] > 0).astype(int))
    assert np.allclose(model.predict_proba(X).sum(1), 1)
    assert model.ensemble_ is not None


@pytest.mark.parametrize("starts", [0, 1.5, None])
def test_refuses_what_is_no_number_of_starts(starts):
    with pytest.raises((TypeError, ValueError), match="starts"):
        DGPRegressor(starts=starts).fit(X, TARGETS[:, 0])
