"""Several starts: each is the method by itself, and predictions are a mixture over them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp import DGPClassifier, DGPRegressor, load_model
from novidgp.inference import make_inference
from novidgp.inference.base import stacked
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import Batch

pytestmark = pytest.mark.usefixtures("quick_compilation")

ROWS = np.random.default_rng(0).standard_normal((40, 2))
TARGETS = np.sin(2 * ROWS[:, 0]) + 0.1 * ROWS[:, 1]
SMALL = {
    "inference": "dsvi",
    "num_inducing": 5,
    "max_steps": 20,
    "num_predict_samples": 8,
    "random_state": 0,
}


def run(inference, model, data, keys):
    """What is fitted after a few steps, and the last loss."""
    state, info = inference.init(model, data, key=keys[0]), {}
    for key in keys[1:]:
        state, info = inference.step(state, data, key=key)
    return inference.fitted(state), info["loss"]


def test_every_start_is_the_method_by_itself():
    """Model, posterior and loss, with the keys each start is given: rounding alone differs."""
    data = Batch(jnp.asarray(ROWS, jnp.float32), jnp.asarray(TARGETS[:, None], jnp.float32))
    models = [build_model(ModelConfig(num_inducing=5), ROWS, seed=seed) for seed in (0, 1)]
    keys = jax.random.split(jax.random.key(0), 4)
    several, loss = run(make_inference("dsvi", 40, 3, starts=2), stacked(models), data, keys)
    own_keys = jnp.stack([jax.random.split(key, 2) for key in keys], axis=1)
    alone = [
        run(make_inference("dsvi", 40, 3), *pair) for pair in zip(models, [data] * 2, own_keys, strict=True)
    ]
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, several.members(), stacked([fitted for fitted, _ in alone]))
    close(loss, np.mean([own_loss for _, own_loss in alone]))


def test_starts_differ_and_the_first_is_that_of_a_single_one():
    models = []
    for starts in (1, 3):
        fit = DGPRegressor(starts=starts, **SMALL | {"max_steps": 1}).fit(ROWS, TARGETS)
        models.append(fit._fitted().members().model)
    single, several = (np.asarray(model.layers[0].inducing) for model in models)
    assert len(single) == 1
    assert len(several) == 3
    np.testing.assert_allclose(several[0], single[0], atol=0.05)  # one step at a rate of 0.02, other noise
    assert np.abs(several[1] - several[0]).max() > 0.3
    assert np.abs(several[2] - several[1]).max() > 0.3


@pytest.mark.parametrize("inference", ["novi", "sghmc"])
def test_files_hold_all_starts_and_snapshots(inference, tmp_path):
    options = {"snapshots": True} if inference == "novi" else None
    settings = SMALL | {"inference": inference, "inference_options": options, "starts": 2}
    model = DGPRegressor(**settings).fit(ROWS, TARGETS)
    assert len(model.others_.model.layers[0].inducing) == (7 if inference == "novi" else 1)
    model.save(tmp_path / "model.novi")
    np.testing.assert_array_equal(load_model(tmp_path / "model.novi").predict(ROWS), model.predict(ROWS))


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    """The trainer's promise holds with a leading axis of starts: bit for bit."""
    settings = SMALL | {"starts": 2, "inference": "novi", "max_steps": 200}
    whole = DGPRegressor(**settings).fit(ROWS, TARGETS)
    cut = DGPRegressor(**settings, checkpoint=tmp_path / "run")
    cut._train_options = {"callbacks": (lambda progress: progress.step == 100,)}
    assert cut.fit(ROWS, TARGETS).n_iter_ == 100
    cut._train_options = {}
    np.testing.assert_array_equal(cut.fit(ROWS, TARGETS).predict(ROWS), whole.predict(ROWS))


def test_a_classifier_has_them_too():
    labels = (TARGETS > 0).astype(int)
    model = DGPClassifier(starts=2, **SMALL).fit(ROWS, labels)
    assert np.allclose(model.predict_proba(ROWS).sum(1), 1)
    assert model.others_ is not None


@pytest.mark.parametrize("starts", [0, 1.5, None])
def test_refuses_what_is_no_number_of_starts(starts):
    with pytest.raises((TypeError, ValueError), match="starts"):
        DGPRegressor(starts=starts).fit(ROWS, TARGETS)
