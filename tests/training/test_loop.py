"""The training loop: what a run records, what it compiles, how it recovers and stops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference import NOVI, Inference
from novidgp.model.dgp import Batch
from novidgp.numerics.random import Streams, fast_key
from novidgp.posteriors.fitted import Fitted
from novidgp.training import job, loop
from novidgp.training.batches import Minibatches, pad_rows
from support.small import small_batch, small_model
from support.training import DATA, DESCENT, METHOD, MODEL, ROWS, Scaled, assert_same, fit, toy


@pytest.fixture
def programs(monkeypatch):
    """How many programs the loop has compiled. The guard that forgets them all is off."""
    monkeypatch.setattr(loop, "release_programs", lambda: None)
    return lambda: (job._init._cache_size(), job._run_chunk._cache_size())


# --- a plain run ------------------------------------------------------------------------------------


def test_a_run_improves_the_model_and_records_every_step():
    result = fit()
    assert result.status == "finished"
    assert result.steps == 30
    assert result.notes == ()
    assert result.history["loss"].shape == result.history["gradient_norm"].shape == (30,)
    assert list(result.history["chunk_step"]) == [10, 20, 30]
    assert result.history["seconds"].shape == (3,)
    np.testing.assert_allclose(
        result.history["chunk_loss"], result.history["loss"].reshape(3, 10).mean(1), 1e-6
    )
    assert result.history["loss"][-5:].mean() < result.history["loss"][:5].mean() - 0.05
    assert_same(result.fitted, result.state.fitted)


def test_the_caller_keeps_his_model():
    before = jax.tree.map(np.array, MODEL)
    fit()
    assert_same(MODEL, before)


def test_chunks_are_only_a_way_of_running_steps():
    whole, parts = fit(), fit(chunk=7)
    assert_same(whole.state, parts.state)
    assert_same(whole.history["loss"], parts.history["loss"])


def test_steps_match_the_inference_method_called_by_hand():
    streams = Streams(jax.random.key(3))
    init_key, step_key = (fast_key(streams.key(name)) for name in ("init", "steps"))
    inference = METHOD.algorithm(ROWS, 30)
    state = jax.jit(inference.init)(MODEL, DATA, key=init_key)
    step, losses = jax.jit(inference.step), []
    for index in range(3):
        key = jax.random.fold_in(jax.random.fold_in(step_key, 0), index)
        state, info = step(state, DATA, key=key)
        losses.append(float(info["loss"]))
    # Two programs of the same arithmetic differ in the last bits.
    np.testing.assert_allclose(fit().history["loss"][:3], losses, rtol=1e-4)


def test_keys_decide():
    first, second = (fit(key=jax.random.key(seed), batch_size=8) for seed in (1, 2))
    assert_same(first.state, fit(key=jax.random.key(1), batch_size=8).state)
    assert not np.array_equal(first.history["loss"], second.history["loss"])


def test_a_step_sees_the_rows_of_its_batch():
    def step(state, batch, *, key):
        return state, {"loss": jnp.sum(batch.x), "second": jnp.sum(batch.y)}

    method = Inference(lambda model, batch, *, key: jnp.zeros(()), step, lambda state: Fitted(state, state))
    data = Batch(np.arange(20.0)[:, None], 2.0 * np.arange(20.0)[:, None])
    history = fit(method, data=data, batch_size=6, steps=7, chunk=4).history
    expected = Minibatches(20, 6, Streams(jax.random.key(3))).at(0, 7).sum(1)
    np.testing.assert_allclose(history["loss"], expected)
    np.testing.assert_allclose(history["second"], 2 * expected)


def test_double_precision_inside_the_context(tmp_path):
    with jax.enable_x64(True):
        data = small_batch("float64")
        options = {"model": small_model("float64"), "data": data, "validation": data, "batch_size": 8}
        options["steps"] = 15
        whole = fit(**options)
        assert all(a.dtype == np.float64 for a in jax.tree.leaves(whole.fitted))
        path = tmp_path / "run"
        fit(**options, checkpoint=path, callbacks=[lambda progress: True])
        assert_same(fit(**options, checkpoint=path, resume=True).state, whole.state)


# --- padding ----------------------------------------------------------------------------------------


def padded(rows, seed=0):
    """Rows as they are, and padded to a multiple of 64."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 2))
    y = np.sin(x[:, :1])
    return tuple(Batch(*(jnp.asarray(a, jnp.float32) for a in part)) for part in ((x, y), pad_rows(x, y)))


def test_the_loss_is_per_row_of_data_not_of_padding():
    """One layer has no path noise, so that 70 rows and the same padded to 128 give the same loss; sums of 70
    terms of order one in float32 leave 1e-5 of it."""
    plain, filled = padded(70)
    assert len(filled.x) == 128
    model = small_model(num_layers=1)
    exact = fit(model=model, data=plain, steps=10).history["loss"]
    history = fit(model=model, data=filled, num_data=70, steps=10).history["loss"]
    np.testing.assert_allclose(history, exact, rtol=1e-5)


def test_another_row_count_of_the_same_padded_size_compiles_nothing(programs):
    fit(data=padded(50)[1], num_data=50, steps=10)
    before = programs()
    fit(data=padded(60, seed=1)[1], num_data=60, steps=10)
    assert programs() == before


# --- what is compiled -------------------------------------------------------------------------------


def test_one_program_serves_every_chunk_and_every_fit_of_a_shape(programs):
    fit(steps=30, chunk=7)
    before = programs()
    fit(steps=30, chunk=7, key=jax.random.key(8), data=Batch(DATA.x + 1, DATA.y))
    assert programs() == before


def test_a_weakly_typed_start_does_not_compile_twice(programs):
    method = toy(lambda w, t, key: (w + jnp.float32(1.0), -w))._replace(
        init=lambda model, batch, *, key: {"w": jnp.asarray(0.0), "t": jnp.asarray(0)}
    )
    before = programs()
    fit(method, steps=30)
    assert programs() == (before[0] + 1, before[1] + 1)


# --- diagnosis --------------------------------------------------------------------------------------


def test_diagnosis_records_the_discrepancy_of_novi_once_a_chunk():
    method = NOVI(num_samples=2, critic_steps=1)
    result = fit(method, steps=8, chunk=4, diagnose=True)
    for name in ("rsd", "fisher_divergence"):
        assert result.history[name].shape == (2,)
        assert np.isfinite(result.history[name]).all()
    assert np.all(result.history["fisher_divergence"] >= 0)
    assert "rsd" not in fit(method, steps=8, chunk=4).history


def test_a_method_without_diagnosis_is_fitted_all_the_same():
    assert_same(fit(diagnose=True).state, fit().state)


# --- non-finite numbers -----------------------------------------------------------------------------


def test_a_divergence_is_undone_with_a_smaller_step():
    def scaled(scale):
        return toy(lambda w, t, key: (w + scale, jnp.where((t == 12) & (scale > 0.2), jnp.nan, -w)))

    result = fit(Scaled(scaled), steps=30, chunk=10)
    assert result.status == "finished"
    assert result.steps == 30
    assert [note.split(",")[0] for note in result.notes] == [
        "non-finite loss at step 13: went back to step 10",
        "non-finite loss at step 13: went back to step 10",
    ]
    np.testing.assert_allclose(result.state["w"], 10 + 20 * 0.09, rtol=1e-5)
    assert np.isfinite(result.history["loss"]).all()
    assert result.history["loss"].shape == (30,)


def test_other_noise_is_tried_after_a_divergence():
    step_key = fast_key(Streams(jax.random.key(3)).key("steps"))
    first = jax.random.normal(jax.random.fold_in(jax.random.fold_in(step_key, 0), 0))
    method = toy(lambda w, t, key: (jax.random.normal(key), jnp.where(w == first, jnp.nan, w)))
    result = fit(method, steps=2, chunk=2)
    assert result.status == "finished"
    assert len(result.notes) == 1


def test_a_non_finite_state_counts_even_if_the_loss_is_fine():
    result = fit(toy(lambda w, t, key: (jnp.log(w - 15.0), jnp.float32(1.0)), 16.0), steps=10)
    assert result.status == "diverged"
    assert "non-finite state by step 10" in result.notes[0]


def test_a_run_that_always_diverges_returns_its_last_good_state():
    result = fit(toy(lambda w, t, key: (w + 1.0, jnp.where(t >= 20, jnp.inf, -w))), steps=50)
    assert result.status == "diverged"
    assert result.steps == 20
    assert float(result.state["w"]) == 20.0
    assert len(result.notes) == 5
    assert "gave up after 4 recoveries, the state of step 20" in result.notes[-1]


def test_a_run_that_never_has_a_good_chunk_says_so():
    result = fit(toy(lambda w, t, key: (w * jnp.nan, w), 7.0))
    assert (result.status, result.steps) == ("diverged", 0)
    assert "untrained initial state" in result.notes[-1]
    assert float(result.fitted.model) == 7.0
    assert result.history == {}


# --- stopping ---------------------------------------------------------------------------------------


def test_validation_returns_the_best_model_and_patience_stops(monkeypatch):
    monkeypatch.setattr(job, "scorer", lambda *_: lambda fitted: abs(float(fitted.model) - 20.0))
    seen = []
    result = fit(
        DESCENT,
        validation=DATA,
        patience=3,
        steps=100,
        callbacks=[lambda progress: seen.append(progress.info["validation_nll"])],
    )
    assert (result.status, result.steps) == ("early-stopped", 50)
    assert float(result.fitted.model) == 20.0
    assert float(result.state["w"]) == 50.0
    assert list(result.history["validation_nll"]) == seen == [10.0, 0.0, 10.0, 20.0, 30.0]
    np.testing.assert_array_equal(result.history["validation_step"], [10, 20, 30, 40, 50])
    whole = fit(DESCENT, validation=DATA, steps=100)
    assert (whole.status, float(whole.fitted.model)) == ("finished", 20.0)


def test_a_validation_score_that_is_not_a_number_is_never_the_best(monkeypatch):
    def score(fitted):
        return np.nan if fitted.model < 25 else float(fitted.model)

    monkeypatch.setattr(job, "scorer", lambda *_: score)
    assert float(fit(DESCENT, validation=DATA, steps=50).fitted.model) == 30.0


def test_a_flat_loss_stops_at_a_plateau_only_if_asked():
    flat = toy(lambda w, t, key: (w + 1.0, jnp.maximum(50.0 - w, 0.0)))
    assert fit(flat, steps=200).status == "finished"
    result = fit(flat, steps=1000, plateau=3)
    assert result.status == "plateau"
    assert 80 <= result.steps < 500
    assert fit(DESCENT, steps=200, plateau=1).status == "finished"


def test_callbacks_see_progress_and_any_of_them_can_stop():
    seen = []

    def first(progress):
        return progress.step >= 20

    result = fit(DESCENT, steps=50, callbacks=[first, seen.append])
    assert (result.status, result.steps) == ("early-stopped", 20)
    assert "callback" in result.notes[0]
    assert [(p.step, p.steps) for p in seen] == [(10, 50), (20, 50)]
    assert seen[1].info == {"loss": -14.5}
    assert seen[1].seconds >= seen[0].seconds > 0
    assert float(seen[0].fitted().model) == 10.0


# --- arguments --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps=0 must be at least 1"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"chunk": -1}, "chunk=-1"),
        ({"patience": 2}, "patience=2 needs validation"),
        ({"resume": True}, "checkpoint=PATH"),
        ({"data": Batch(DATA.x, DATA.y[:3])}, "20 rows of x and 3 of y"),
        ({"validation": Batch(DATA.x, DATA.y * np.nan)}, "every y is NaN"),
        ({"on_interrupt": "stop"}, "on_interrupt='stop' is unknown"),
        ({"method": toy(None, np.nan)}, "initial state is not finite"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        fit(**change)


def test_a_method_may_be_given_as_its_functions():
    """The same steps. Their row count is a constant of the program, which may change the last bits."""
    prepared = METHOD.algorithm(ROWS, 30)
    expected = fit().history["loss"]
    np.testing.assert_allclose(fit(prepared).history["loss"], expected, rtol=1e-5)
