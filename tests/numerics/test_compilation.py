"""The compilation cache: processes that need one program at the same time compile it once."""

import contextlib
import gc
import signal
import time

import jax
import jax.numpy as jnp
import pytest

from novidgp.numerics import compilation
from novidgp.numerics.compilation import _turn, compile_once
from support.processes import Process

HOLD = """
import sys, time
from pathlib import Path
from novidgp.numerics.compilation import _turn
with _turn(Path(sys.argv[1]), sys.argv[2]):
    print("holding", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def seconds_for(directory, name):
    start = time.monotonic()
    with _turn(directory, name):
        return time.monotonic() - start


def test_a_process_waits_for_another_with_the_same_program_only(tmp_path):
    with Process(HOLD, tmp_path, "one", "1.5") as process:
        process.wait_for("holding")
        assert seconds_for(tmp_path, "two") < 0.5
        assert seconds_for(tmp_path, "one") > 0.5


def test_nobody_waits_for_a_process_that_was_killed(tmp_path):
    with Process(HOLD, tmp_path, "one", "60") as process:
        process.wait_for("holding")
    assert seconds_for(tmp_path, "one") < 0.5


def test_nobody_waits_for_ever_for_a_process_that_was_stopped(tmp_path, monkeypatch):
    """Somebody pressed Ctrl-Z in a fit that compiled, and starts another."""
    monkeypatch.setattr(compilation, "_MOST_SECONDS", 0.3)
    with Process(HOLD, tmp_path, "one", "60") as process:
        process.wait_for("holding")
        process.send(signal.SIGSTOP)
        assert 0.2 < seconds_for(tmp_path, "one") < 10.0


def test_a_directory_without_locks_is_no_obstacle(tmp_path):
    assert seconds_for(tmp_path / "nowhere", "one") < 0.5


def test_a_program_is_compiled_for_the_calls_that_follow():
    program = jax.jit(lambda x: jnp.sin(x) + 3.0)
    compile_once(program.lower(1.0), "sine")
    assert float(program(0.0)) == 3.0


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_afterwards_as_it_was_before(enabled):
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with contextlib.suppress(KeyboardInterrupt), compilation.collector_paused():
            assert not gc.isenabled()
            raise KeyboardInterrupt
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
