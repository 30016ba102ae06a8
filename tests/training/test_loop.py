"""The training loop: exact resumption, recovery, stopping, and what it leaves to the caller."""

import os
import pty
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference import Fitted, Inference, make_inference
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import Batch
from novidgp.storage import ModelFileError, load, save
from novidgp.training import loop as train_module
from novidgp.training.loop import train
from novidgp.training.progress import describe, progress_bar

pytestmark = pytest.mark.usefixtures("quick_compilation")

ROWS = 20


def problem(dtype="float32"):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, 2))
    y = np.sin(2 * x[:, :1]) + 0.1 * rng.standard_normal((ROWS, 1))
    model = build_model(ModelConfig(num_layers=2, num_inducing=5, dtype=dtype), x, seed=0)
    return model, Batch(jnp.asarray(x, dtype), jnp.asarray(y, dtype))


MODEL, DATA = problem()


def make(step_scale, **options):
    return make_inference("dsvi", ROWS, 30, num_paths=2, step_scale=step_scale, **options)


def fit(**options):
    settings = {"steps": 25, "batch_size": ROWS, "seed": 3, "chunk": 10} | options
    return train(
        settings.pop("make", make), settings.pop("model", MODEL), settings.pop("data", DATA), **settings
    )


def assert_same(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)


def toy(step, start=0.0):
    """A method whose whole state is a number and the count of steps; `step(w, t, key) -> (w, loss)`."""

    def init(model, batch, *, key):
        return {"w": jnp.asarray(start, jnp.float32), "t": jnp.asarray(0, jnp.int32)}

    def advance(state, batch, *, key):
        w, loss = step(state["w"], state["t"], key)
        return {"w": w, "t": state["t"] + 1}, {"loss": loss}

    return Inference(init, advance, lambda state: Fitted(state["w"], state["t"]))  # type: ignore[arg-type]


DESCENT = toy(lambda w, t, key: (w + 1.0, -w))


# --- a plain run ----------------------------------------------------------------------------------


def test_a_run_improves_the_model_and_records_every_step():
    result = fit(steps=30)
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
    fit(steps=10)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(MODEL))


def test_chunks_are_only_a_way_of_running_steps():
    whole, parts = fit(chunk=25), fit(chunk=7)
    assert_same(whole.state, parts.state)
    assert_same(whole.history["loss"], parts.history["loss"])


def test_steps_match_the_inference_method_called_by_hand():
    init_key, step_key, _ = jax.random.split(jax.random.key(3), 3)
    inference = make(1.0)
    state = inference.init(MODEL, DATA, key=init_key)
    step, losses = jax.jit(inference.step), []
    for index in range(3):
        key = jax.random.fold_in(jax.random.fold_in(step_key, 0), index)
        state, info = step(state, DATA, key=key)
        losses.append(float(info["loss"]))
    # Two programs of the same arithmetic differ in the last bits.
    np.testing.assert_allclose(fit(steps=3).history["loss"], losses, rtol=1e-4)


def test_one_program_serves_every_chunk_and_every_fit_of_a_shape():
    compiled = train_module._run_chunk._cache_size
    fit(steps=20)
    before = compiled()
    fit(steps=27)
    fit(seed=8, data=Batch(DATA.x + 1, DATA.y))
    assert compiled() == before


def test_a_weakly_typed_start_does_not_compile_twice():
    method = toy(lambda w, t, key: (w + jnp.float32(1.0), -w))._replace(
        init=lambda model, batch, *, key: {"w": jnp.asarray(0.0), "t": jnp.asarray(0)}
    )
    before = train_module._run_chunk._cache_size()
    fit(make=lambda scale: method, steps=30)
    assert train_module._run_chunk._cache_size() == before + 1


def test_seeds_decide():
    assert_same(fit(seed=1, batch_size=8).state, fit(seed=np.int64(1), batch_size=8).state)
    assert not np.array_equal(fit(seed=1).history["loss"], fit(seed=2).history["loss"])
    fit(seed=2**32 - 1, steps=1)


# --- minibatches ----------------------------------------------------------------------------------


def test_every_epoch_visits_every_row_once_in_its_own_order():
    indices = train_module._batch_indices(20, 5, 7, 12, 0)
    epochs = indices.reshape(3, 20)
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    np.testing.assert_array_equal(epochs[1], np.random.default_rng([7, 1]).permutation(20))


def test_batches_depend_on_the_step_alone_and_a_partial_one_is_dropped():
    whole = train_module._batch_indices(20, 8, 7, 9, 0)
    np.testing.assert_array_equal(whole[4:], train_module._batch_indices(20, 8, 7, 5, 4))
    assert len(np.unique(whole[:2])) == 16
    assert train_module._batch_indices(20, 20, 7, 9, 0) is None


def test_a_step_sees_the_rows_of_its_batch():
    def step(state, batch, *, key):
        return state, {"loss": jnp.sum(batch.x), "second": jnp.sum(batch.y)}

    method = Inference(lambda model, batch, *, key: jnp.zeros(()), step, lambda state: state)
    data = Batch(np.arange(20.0)[:, None], 2.0 * np.arange(20.0)[:, None])
    history = fit(make=lambda scale: method, data=data, batch_size=6, steps=7, chunk=4).history
    expected = train_module._batch_indices(20, 6, 3, 7, 0).sum(1)
    np.testing.assert_allclose(history["loss"], expected)
    np.testing.assert_allclose(history["second"], 2 * expected)


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [ROWS, 8])
@pytest.mark.parametrize("validated", [False, True])
def test_a_resumed_run_repeats_an_uninterrupted_one_bit_for_bit(tmp_path, batch_size, validated):
    options = {"batch_size": batch_size, "chunk": 10, "steps": 25}
    if validated:
        options |= {"validation": Batch(DATA.x + 0.1, DATA.y), "patience": 5}
    whole = fit(**options)
    path = tmp_path / "run.checkpoint"
    part = fit(**options, checkpoint=path, callbacks=[lambda progress: progress.step == 10])
    assert (part.steps, part.status) == (10, "early-stopped")
    rest = fit(**options, checkpoint=path, resume=True)
    assert (rest.steps, rest.status) == (25, "finished")
    assert_same(rest.state, whole.state)
    assert_same(rest.fitted, whole.fitted)
    for name in whole.history.keys() - {"seconds"}:
        np.testing.assert_array_equal(rest.history[name], whole.history[name])
    again = fit(**options, checkpoint=path, resume=True)
    assert again.status == "finished"
    assert_same(again.state, whole.state)


def test_a_run_of_a_process_that_died_is_resumed_by_another(tmp_path):
    code = textwrap.dedent(
        """
        import os, sys
        sys.path.insert(0, sys.argv[1])
        from test_train import fit
        die = lambda progress: progress.step == 20 and os._exit(9)
        fit(batch_size=8, checkpoint=sys.argv[2], checkpoint_every=10, callbacks=[die])
        """
    )
    path = tmp_path / "run"
    dead = subprocess.run([sys.executable, "-c", code, os.path.dirname(__file__), str(path)], check=False)
    assert dead.returncode == 9
    assert load(path)[1]["step"] == 20
    assert_same(fit(batch_size=8, checkpoint=path, resume=True).state, fit(batch_size=8).state)


def test_a_run_killed_after_a_checkpoint_resumes_and_recoveries_are_repeated(tmp_path):
    def method(scale):
        # Fails from step 12 on unless the step is small; noise enters the state.
        return toy(
            lambda w, t, key: (
                jnp.where((t >= 12) & (scale > 0.5), jnp.nan, w + scale * jax.random.normal(key)),
                w,
            )
        )

    cached = {}

    def scaled(scale):
        return cached.setdefault(scale, method(scale))

    class KilledError(Exception):
        pass

    def kill(progress):
        if progress.step == 30:
            raise KilledError

    options = {"make": scaled, "steps": 40, "chunk": 10}
    path = tmp_path / "run"
    whole = fit(**options)
    assert len(whole.notes) == 1
    with pytest.raises(KilledError):
        fit(**options, checkpoint=path, checkpoint_every=20, callbacks=[kill])
    assert load(path)[1]["step"] == 20
    rest = fit(**options, checkpoint=path, resume=True)
    assert_same(rest.state, whole.state)
    assert rest.notes == whole.notes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, r"seed \(3 there, 4 here\)"),
        ({"batch_size": 8}, r"batch_size \(20 there, 8 here\), method or model"),
        ({"data": Batch(DATA.x + 1e-6, DATA.y)}, "different: training data"),
        ({"make": lambda scale: make(scale, learning_rate=0.019)}, "different: method or model"),
        ({"validation": DATA}, "different: validation data"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, change, message):
    path = tmp_path / "run"
    fit(steps=10, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(ModelFileError, match=message):
        fit(steps=10, checkpoint=path, resume=True, **change)
    assert path.read_bytes() == before


def test_resume_starts_where_there_is_no_file_and_refuses_a_model(tmp_path):
    path = tmp_path / "run"
    assert fit(steps=10, checkpoint=path, resume=True).steps == 10
    save(path, {}, {"kind": "model"})
    with pytest.raises(ModelFileError, match="not a checkpoint"):
        fit(steps=10, checkpoint=path, resume=True)


# --- non-finite numbers ---------------------------------------------------------------------------


def test_a_divergence_is_undone_with_a_smaller_step():
    scales = []

    def scaled(scale):
        scales.append(scale)
        return toy(lambda w, t, key: (w + scale, jnp.where((t == 12) & (scale > 0.2), jnp.nan, -w)))

    result = fit(make=scaled, steps=30, chunk=10)
    assert result.status == "finished"
    assert result.steps == 30
    np.testing.assert_allclose(sorted(set(scales)), [0.09, 0.3, 1.0])
    assert [note.split(",")[0] for note in result.notes] == [
        "non-finite loss at step 13: went back to step 10",
        "non-finite loss at step 13: went back to step 10",
    ]
    np.testing.assert_allclose(result.state["w"], 10 + 20 * 0.09, rtol=1e-5)
    assert np.isfinite(result.history["loss"]).all()
    assert result.history["loss"].shape == (30,)


def test_other_noise_is_tried_after_a_divergence():
    method = toy(lambda w, t, key: (jax.random.normal(key), jnp.where(w == first, jnp.nan, w)))
    key = jax.random.fold_in(jax.random.fold_in(jax.random.split(jax.random.key(3), 3)[1], 0), 0)
    first = jax.random.normal(key)
    result = fit(make=lambda scale: method, steps=2, chunk=2)
    assert result.status == "finished"
    assert len(result.notes) == 1


def test_a_non_finite_state_counts_even_if_the_loss_is_fine():
    method = toy(lambda w, t, key: (jnp.log(w - 15.0), jnp.float32(1.0)), 16.0)
    result = fit(make=lambda scale: method, steps=10, chunk=10)
    assert result.status == "diverged"
    assert "non-finite state by step 10" in result.notes[0]


def test_a_run_that_always_diverges_returns_its_last_good_state():
    calls = []

    def scaled(scale):
        calls.append(scale)
        return toy(lambda w, t, key: (w + 1.0, jnp.where(t >= 20, jnp.inf, -w)))

    result = fit(make=scaled, steps=50, chunk=10)
    assert result.status == "diverged"
    assert result.steps == 20
    assert float(result.state["w"]) == 20.0
    assert len(result.notes) == 5
    assert "gave up after 4 recoveries, the state of step 20" in result.notes[-1]
    np.testing.assert_allclose(calls[-1], 0.3**4)


def test_a_run_that_never_has_a_good_chunk_says_so():
    result = fit(make=lambda scale: toy(lambda w, t, key: (w * jnp.nan, w), 7.0))
    assert (result.status, result.steps) == ("diverged", 0)
    assert "untrained initial state" in result.notes[-1]
    assert float(result.fitted.model) == 7.0
    assert result.history == {}


# --- stopping -------------------------------------------------------------------------------------


def test_validation_returns_the_best_model_and_patience_stops(monkeypatch):
    monkeypatch.setattr(train_module, "_scorer", lambda *_: lambda fitted: abs(float(fitted.model) - 20.0))
    seen = []
    result = fit(
        make=lambda scale: DESCENT,
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
    whole = fit(make=lambda scale: DESCENT, validation=DATA, steps=100)
    assert (whole.status, float(whole.fitted.model)) == ("finished", 20.0)


def test_a_validation_score_that_is_not_a_number_is_never_the_best(monkeypatch):
    monkeypatch.setattr(
        train_module,
        "_scorer",
        lambda *_: lambda fitted: np.nan if fitted.model < 25 else float(fitted.model),
    )
    result = fit(make=lambda scale: DESCENT, validation=DATA, steps=50)
    assert float(result.fitted.model) == 30.0


def test_the_validation_score_is_the_mixture_density_of_observed_targets():
    fitted = fit(steps=10).fitted
    y = DATA.y.at[3].set(jnp.nan)
    key = jax.random.key(0)
    score = train_module._scorer(Batch(DATA.x, y), key)(fitted)
    path_key, likelihood_key = jax.random.split(jax.random.split(key, 1)[0])
    moments = fitted.posterior.propagate(fitted.model, DATA.x, 20, key=path_key)
    density = jnp.exp(fitted.model.likelihood.log_prob(DATA.y, *moments, key=likelihood_key))[..., 0]
    rows = jnp.log(density.mean(0))[np.arange(ROWS) != 3]
    np.testing.assert_allclose(score, -rows.mean(), rtol=1e-4)


def test_validation_in_blocks_counts_every_row_once(monkeypatch):
    model, posterior, _ = fit(steps=10).fitted
    shallow = type(model)(model.layers[:1], model.likelihood)  # one layer: no path noise, so blocks agree
    first = type(posterior)(
        *(leaves[:1] for leaves in (posterior.mean, posterior.log_diagonal, posterior.lower))
    )
    held = Batch(DATA.x, jnp.concatenate([DATA.y, DATA.y], 1))
    whole = train_module._scorer(held, jax.random.key(0))(Fitted(shallow, first))
    monkeypatch.setattr(train_module, "_VALIDATION_ROWS", 7)
    blocks = train_module._scorer(held, jax.random.key(0))(Fitted(shallow, first))
    np.testing.assert_allclose(blocks, whole, rtol=1e-5)


def test_a_flat_loss_stops_at_a_plateau_only_if_asked():
    flat = toy(lambda w, t, key: (w + 1.0, jnp.maximum(50.0 - w, 0.0)))
    assert fit(make=lambda scale: flat, steps=200).status == "finished"
    result = fit(make=lambda scale: flat, steps=1000, plateau=3)
    assert result.status == "plateau"
    assert 80 <= result.steps < 500
    assert fit(make=lambda scale: DESCENT, steps=200, plateau=1).status == "finished"


def test_callbacks_see_progress_and_any_of_them_can_stop():
    seen = []

    def first(progress):
        return progress.step >= 20

    result = fit(make=lambda scale: DESCENT, steps=50, callbacks=[first, seen.append])
    assert (result.status, result.steps) == ("early-stopped", 20)
    assert "callback" in result.notes[0]
    assert [(p.step, p.steps) for p in seen] == [(10, 50), (20, 50)]
    assert seen[1].info == {"loss": -14.5}
    assert seen[1].seconds >= seen[0].seconds > 0
    assert float(seen[0].fitted().model) == 10.0


def test_an_interrupt_in_a_callback_keeps_the_model_and_can_be_resumed(tmp_path):
    def interrupt(progress):
        if progress.step == 20:
            raise KeyboardInterrupt

    path = tmp_path / "run"
    options = {"make": lambda scale: DESCENT, "steps": 40, "checkpoint": path}
    result = fit(**options, callbacks=[interrupt])
    assert (result.status, result.steps) == ("interrupted", 20)
    assert float(result.fitted.model) == 20.0
    assert "interrupted after step 20" in result.notes
    assert load(path)[1]["step"] == 20
    rest = fit(**options, resume=True)
    assert (rest.status, rest.steps) == ("finished", 40)
    assert float(rest.state["w"]) == 40.0


def test_control_c_in_a_running_fit_returns_a_model():
    code = textwrap.dedent(
        """
        import signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell starts us deaf to it
        sys.path.insert(0, sys.argv[1])
        from test_train import DESCENT, fit
        result = fit(make=lambda scale: DESCENT, steps=10**9, chunk=1000,
                     callbacks=[lambda progress: print("running", flush=True)])
        print()  # the interrupt may have come before the callback's newline
        print(result.status, result.steps > 0, float(result.fitted.model) == min(result.steps, 2**24))
        """
    )
    command = [sys.executable, "-c", code, os.path.dirname(__file__)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "running\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert output.splitlines()[-1] == "interrupted True True", errors
    assert errors == ""  # also: no progress bar where there is no terminal


# --- the rest -------------------------------------------------------------------------------------


def test_double_precision_inside_the_context(tmp_path):
    with jax.enable_x64(True):
        model, data = problem("float64")
        options = {"model": model, "data": data, "batch_size": 8, "validation": data, "steps": 15}
        whole = fit(**options)
        assert all(a.dtype == np.float64 for a in jax.tree.leaves(whole.fitted))
        path = tmp_path / "run"
        fit(**options, checkpoint=path, callbacks=[lambda progress: True])
        assert_same(fit(**options, checkpoint=path, resume=True).state, whole.state)


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
        ({"make": lambda scale: toy(None, np.nan)}, "initial state is not finite"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        fit(**change)


def test_the_bar_is_silent_without_a_terminal_and_drawn_on_stderr_with_one(capfd):
    with progress_bar(10) as show:
        show(10, {"loss": 1.0})
    assert capfd.readouterr() == ("", "")
    terminal, line = pty.openpty()
    code = (
        "from novidgp.training.progress import progress_bar\n"
        "with progress_bar(10) as show: show(5, {'loss': 1.25}); show(10, {'loss': 0.5})"
    )
    with os.fdopen(line, "wb") as stderr:
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
        run = subprocess.run(
            [sys.executable, "-c", code], stderr=stderr, stdout=subprocess.PIPE, env=environment, check=True
        )
    assert run.stdout == b""
    drawn = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert "10/10" in drawn
    assert "loss 0.5" in drawn


def test_the_bar_names_the_loss_first():
    assert describe({"gradient_norm": 12.3456, "loss": 0.5}) == "loss 0.5  gradient norm 12.35"


@pytest.mark.skipif(not train_module._MAPS.exists(), reason="memory maps are counted on Linux only")
def test_programs_are_forgotten_before_memory_maps_run_out(monkeypatch):
    """Those compiled here, some hundred maps, are gone once there are more than allowed, and not before."""
    keep = [jax.jit(lambda x, n=n: jnp.sin(x) @ jnp.cos(x.T) + n) for n in range(30)]
    for function in keep:
        function(jnp.ones((3, 3)))
    held = train_module._MAPS.read_bytes().count(b"\n")
    monkeypatch.setattr(train_module, "_MOST_MAPS", held + 100)
    train_module._release_programs()
    assert train_module._MAPS.read_bytes().count(b"\n") >= held - 50
    monkeypatch.setattr(train_module, "_MOST_MAPS", held - 100)
    train_module._release_programs()
    assert train_module._MAPS.read_bytes().count(b"\n") < held - 100
