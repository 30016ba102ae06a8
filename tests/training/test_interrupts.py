"""Ctrl-C during a fit: raised at once and once, in every phase, and never lost. With real signals."""

import gc
import signal
import textwrap
import threading
import time

import jax
import pytest
from sklearn.exceptions import ConvergenceWarning

from novidgp.storage import load
from novidgp.training.interrupts import Pace, Signals, compiling, deferred_signals
from support.processes import ANNOUNCE_COMPILING, Process
from support.small import small_batch, small_model
from support.training import DESCENT, assert_same, fit, toy

ONCE = """
import sys, threading, time
from support.training import DESCENT, SLOW_TO_COMPILE, fit

def once(function):
    "Call it. Say when KeyboardInterrupt is raised, and whether it is raised a second time."
    try:
        function()
    except KeyboardInterrupt:
        print("raised", flush=True)
    else:
        print("ended", flush=True)
    try:
        time.sleep(0.3)
    except KeyboardInterrupt:
        print("again", flush=True)
    print("done", flush=True)
"""


@pytest.fixture(autouse=True)
def _listening():
    """Python's handler, also where a shell started the tests deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def seconds_until(process, word):
    start = time.monotonic()
    process.wait_for(word)
    return time.monotonic() - start


# --- real processes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint", [False, True])
def test_ctrl_c_while_compiling_raises_at_once_and_once(tmp_path, checkpoint):
    """The program takes minutes to compile. A second or two are for a busy machine."""
    code = "once(lambda: fit(SLOW_TO_COMPILE, checkpoint=sys.argv[1] or None))"
    path = tmp_path / "run"
    with Process(ANNOUNCE_COMPILING + ONCE + code, path if checkpoint else "") as process:
        process.wait_for("traced")
        process.wait_for("compiling")
        time.sleep(0.5)
        process.send()
        assert seconds_until(process, "raised") < 3.0
        assert process.wait_for("") == "done\n"
    assert not path.exists() or load(path)[1]["step"] == 0


def test_ctrl_c_while_running_raises_once_and_the_checkpoint_has_the_run(tmp_path):
    code = """
    once(lambda: fit(DESCENT, steps=10**9, chunk=1000, checkpoint=sys.argv[1],
                     callbacks=[lambda progress: print("running", flush=True)]))
    """
    path = tmp_path / "run"
    with Process(ONCE + textwrap.dedent(code), path) as process:
        process.wait_for("running")
        time.sleep(0.2)
        process.send()
        assert seconds_until(process, "raised") < 3.0
        assert process.wait_for("") == "done\n"
        assert process.end() == (0, "", "")
    assert load(path)[1]["step"] > 0


def test_ctrl_c_ends_a_cross_validation():
    code = """
    import numpy as np
    from sklearn.model_selection import cross_val_score
    from novidgp import DGPRegressor
    x = np.linspace(0, 1, 60)[:, None]
    model = DGPRegressor(inference="dsvi", num_layers=1, num_inducing=5, max_steps=10**6)
    def scores():
        with __import__("warnings").catch_warnings(record=True) as caught:
            threading.Timer(0.5, print, ["fitting"], {"flush": True}).start()
            print(cross_val_score(model, x, np.sin(9 * x[:, 0]), cv=3), [str(w.message) for w in caught])
    once(scores)
    """
    with Process(ONCE + textwrap.dedent(code)) as process:
        process.wait_for("fitting")
        time.sleep(5.0)  # in the first fold, which would take an hour
        process.send()
        assert seconds_until(process, "raised") < 5.0
        assert process.wait_for("") == "done\n"
        assert process.end() == (0, "", "")


def test_a_fit_in_another_thread_leaves_signals_to_the_main_thread():
    code = """
    thread = threading.Thread(target=fit, args=(DESCENT,), daemon=True, kwargs=dict(
        steps=10**9, chunk=1000, callbacks=[lambda progress: print("running", flush=True)]))
    thread.start()
    once(lambda: thread.join(60))
    __import__("os")._exit(0)
    """
    with Process(ONCE + textwrap.dedent(code)) as process:
        process.wait_for("running")
        process.send()
        assert seconds_until(process, "raised") < 3.0


# --- what the run gives -----------------------------------------------------------------------------


def interrupt_at(step):
    """A callback that presses Ctrl-C after a chunk."""

    def press(progress):
        if progress.step == step:
            signal.raise_signal(signal.SIGINT)

    return press


def test_the_best_model_so_far_is_returned_with_a_warning_only_if_asked_for(tmp_path):
    path = tmp_path / "run"
    options = {"steps": 40, "checkpoint": path, "callbacks": [interrupt_at(20)]}
    with pytest.raises(KeyboardInterrupt):
        fit(DESCENT, **options)
    assert load(path)[1]["step"] == 20
    with pytest.warns(ConvergenceWarning, match="interrupted after 20 of 40 steps"):
        result = fit(DESCENT, **options, on_interrupt="return")
    assert (result.status, result.steps, float(result.fitted.model)) == ("interrupted", 20, 20.0)
    assert "interrupted after step 20" in result.notes
    rest = fit(DESCENT, steps=40, checkpoint=path, resume=True)
    assert (rest.status, rest.steps, float(rest.state["w"])) == ("finished", 40, 40.0)


def test_there_is_no_model_before_the_first_chunk():
    started = []

    def pressing(w, t, key):
        started.append(signal.raise_signal(signal.SIGINT))
        return w, w

    with pytest.raises(KeyboardInterrupt):
        fit(toy(pressing), on_interrupt="return")
    assert len(started) == 1


def test_ctrl_c_in_the_garbage_collector_is_not_lost(capfd):
    """JAX has a callback there too. Its exceptions are printed and dropped."""
    pressed = []

    def callback(phase, info):
        if not pressed:
            pressed.append(signal.raise_signal(signal.SIGINT))

    def collect(progress):
        gc.callbacks.append(callback)
        gc.collect()
        gc.callbacks.remove(callback)

    with pytest.raises(KeyboardInterrupt):
        fit(DESCENT, callbacks=[collect])
    assert capfd.readouterr().err == ""


def test_double_precision_is_compiled_aside_as_well():
    with jax.enable_x64(True):
        result = fit(model=small_model("float64"), data=small_batch("float64"), steps=10)
        assert all(leaf.dtype == "float64" for leaf in jax.tree.leaves(result.fitted))


# --- the parts --------------------------------------------------------------------------------------


def test_a_second_signal_does_not_wait():
    with deferred_signals():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_the_handler_that_was_there_decides_and_comes_back():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        handler = signal.getsignal(signal.SIGTERM)
        with deferred_signals() as signals:
            signal.raise_signal(signal.SIGTERM)
            assert seen == []
            signals.check()
            signals.check()
            assert seen == [signal.SIGTERM]
            signal.raise_signal(signal.SIGTERM)
        assert seen == [signal.SIGTERM] * 2
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_ignored_signals_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_signals() as signals:
            signal.raise_signal(signal.SIGINT)
            signals.check()
    finally:
        signal.signal(signal.SIGINT, before)


def test_waiting_gives_results_and_errors_and_leaves_what_is_slow():
    release = threading.Event()
    with deferred_signals() as signals:
        assert signals.wait(lambda: 3) == 3
        with pytest.raises(ZeroDivisionError):
            signals.wait(lambda: 1 / 0)
        threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            signals.wait(lambda: release.wait(60))
        assert compiling()
    release.set()
    assert Signals({}).wait(lambda: threading.current_thread()) is threading.main_thread()


def test_calls_last_about_a_third_of_a_second():
    pace = Pace()
    for _ in range(20):
        pace.learn(pace.steps, 0.01 * pace.steps)
    assert pace.steps == 30
    for _ in range(20):
        pace.learn(pace.steps, 5.0 * pace.steps)
    assert pace.steps == 1


def test_short_calls_do_not_change_a_run(monkeypatch):
    monkeypatch.setattr("novidgp.training.interrupts._FIRST_STEPS", 1)
    monkeypatch.setattr(Pace, "learn", lambda *_: None)
    pieces = fit(batch_size=8, steps=20)
    monkeypatch.undo()
    whole = fit(batch_size=8, steps=20)
    assert_same(pieces.state, whole.state)
    assert_same(pieces.history["loss"], whole.history["loss"])
