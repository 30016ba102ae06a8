"""Ctrl-C and SIGTERM in the commands: what there is is saved, one line says so, and the exit code tells."""

import os
import signal
import time

import numpy as np
import pytest

from novidgp import load_model
from novidgp.cli.interrupts import _IMPORT, heed_termination
from novidgp.storage import load
from support.commands import houses
from support.processes import ANNOUNCE_COMPILING, Process

COMMAND = f"""
import sys
{ANNOUNCE_COMPILING}
from novidgp.training import job
advance = job.Job.advance
def announcing(*arguments):
    print("advancing", flush=True)
    return advance(*arguments)
job.Job.advance = announcing
from novidgp.cli import app
app()
"""
SMALL = ["--inference", "dsvi", "--layers", "1", "--inducing", "5"]


def last_words(told):
    """The last line, and before it nothing but the progress of every ten seconds, where a machine is busy."""
    *before, last = told.splitlines()
    assert all(line.startswith("fit: ") for line in before), told
    return last


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_fit_saves_the_model_and_the_run(tmp_path, number, code):
    table, model, run = (tmp_path / name for name in ("h.csv", "m.novidgp", "run"))
    houses().to_csv(table, index=False)
    arguments = ["fit", table, "-t", "price", "-o", model, "--checkpoint", run, *SMALL]
    with Process(COMMAND, *arguments, "--steps", "900000") as process:
        for _ in range(3):
            process.wait_for("advancing")
        process.send(number)
        returned, _, told = process.end()
    assert returned == code, told
    done = load_model(model).n_iter_
    assert last_words(told) == (
        f"interrupted after {done:,} of 900,000 steps: saved {model}, and the run in {run}"
    )
    assert done >= 200
    assert done == load(run)[1]["step"]
    assert np.isfinite(load_model(model).predict(np.zeros((1, 5)))).all()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_fit_that_is_interrupted_while_compiling_has_nothing_to_save(tmp_path, number, code):
    """Without the cache and with all optimisations three layers of NOVI compile for much longer than this."""
    table, model = tmp_path / "h.csv", tmp_path / "m.novidgp"
    houses().to_csv(table, index=False)
    settings = {"NOVIDGP_CACHE": "off", "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    with Process(
        COMMAND, "fit", table, "-t", "price", "-o", model, "--layers", "3", "--inducing", "50", **settings
    ) as process:
        process.wait_for("advancing")
        process.wait_for("compiling")
        time.sleep(0.5)
        process.send(number)
        start = time.monotonic()
        returned, _, told = process.end()
    assert time.monotonic() - start < 5.0
    assert returned == code
    assert last_words(told) == "interrupted before any steps were done: there is no model to save"
    assert os.listdir(tmp_path) == ["h.csv"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_benchmark_of_ours_stops_too(tmp_path, number):
    arguments = ["bench", "run", "uci", "--datasets", "steps", "--methods", "dsvi", "--layers", "2"]
    with Process(COMMAND, *arguments, "--splits", "2", "--out", tmp_path) as process:
        process.wait_for("advancing")
        process.send(number)
        returned, _, told = process.end()
    assert returned == 128 + number
    assert "the same command goes on from there" in told
    assert "Traceback" not in told


def test_a_signal_in_the_garbage_collector_comes_a_moment_later():
    """JAX has a callback there, whose exceptions are printed and dropped."""

    def _xla_gc_callback():
        signal.raise_signal(signal.SIGTERM)

    def collect():
        _xla_gc_callback()
        time.sleep(5.0)

    with heed_termination(), pytest.raises(KeyboardInterrupt):
        collect()


def test_a_signal_in_an_import_comes_when_it_is_done():
    """An exception in the middle of jaxlib's import aborts the process."""
    code = compile(
        "import signal, time; signal.raise_signal(signal.SIGTERM); done.append(1)", _IMPORT, "exec"
    )
    done: list[int] = []

    def load():
        exec(code, {"done": done})
        time.sleep(5.0)

    with heed_termination(), pytest.raises(KeyboardInterrupt):
        load()
    assert done == [1]
