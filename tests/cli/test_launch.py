"""One fit in several processes: the model of one process, and what happens when a process dies.

The processes are real, end by themselves within a minute of a failure, and are killed if they do not.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest

from novidgp import load_model
from novidgp.cli.launch import spoken
from novidgp.training import job
from support.commands import houses, refused, run

FIT = ["--target", "price", "--inducing", "5", "--hidden", "1", "--batch-size", "25", "--no-local"]
FIT += ["--dtype", "float64", "--inference", "dsvi"]
TIMEOUT = 600.0


class Launched:
    """`novidgp launch` in a process group of its own, which goes with it."""

    def __init__(self, *arguments, folder):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "novidgp", "launch", "-n", "2", "--", "fit", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            start_new_session=True,
        )
        self._timer = threading.Timer(TIMEOUT, self.kill)
        self._timer.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._timer.cancel()
        self.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def children(self):
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self._process.pid)], capture_output=True, text=True
        )
        return sorted(map(int, found.stdout.split()))

    def end(self):
        output, _ = self._process.communicate()
        return self._process.returncode, output


@pytest.fixture
def folder(tmp_path):
    houses().to_csv(tmp_path / "houses.csv", index=False)
    return tmp_path


def arrays(path):
    model = load_model(path)
    return [np.asarray(leaf) for leaf in jax.tree.leaves((model.model_, model.posterior_))]


def alone(folder, *options):
    path = folder / "alone.novidgp"
    run("fit", folder / "houses.csv", *FIT, *options, "--out", path)
    return arrays(path)


def test_two_processes_find_the_model_of_one(folder):
    options = ["--steps", "50"]
    with Launched("houses.csv", *FIT, *options, "--out", "two.novidgp", folder=folder) as job:
        code, output = job.end()
    assert code == 0, output
    assert output.count("saved two.novidgp") == 1, "the first process alone writes and speaks"
    for one, two in zip(alone(folder, *options), arrays(folder / "two.novidgp"), strict=True):
        # In double precision 50 steps turn rounding into 1e-12; a wrong sum would show in the first digit.
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-8)


@pytest.mark.slow
def test_a_process_that_dies_ends_the_others_and_the_run_resumes_in_one(folder, monkeypatch):
    steps = 300_000  # far more than the test waits for
    options = ["--steps", str(steps), "--checkpoint", "run", "--checkpoint-every", "0"]
    with Launched("houses.csv", *FIT, *options, "--out", "two.novidgp", folder=folder) as job:
        while not (folder / "run").exists():
            time.sleep(0.5)
        time.sleep(2.0)
        os.kill(job.children()[1], signal.SIGKILL)
        begin = time.monotonic()
        code, output = job.end()
        assert time.monotonic() - begin < 60.0
    assert code != 0
    assert re.search(r"Process 1 of this job ended, so that this one cannot go on", output), output
    assert "goes on from run" in " ".join(output.split())
    assert "process 1 was killed by signal 9. Run the same command again to resume" in output
    steps_done = resumed_from(folder, options, monkeypatch)
    assert 0 < steps_done < steps


def resumed_from(folder, options, monkeypatch):
    """The step from which one process goes on with the run of two."""
    seen = []

    def advance(job, run):
        seen.append(run.step)
        raise ValueError("enough")

    monkeypatch.setattr(job.Job, "advance", advance)
    monkeypatch.chdir(folder)
    assert "enough" in refused("fit", "houses.csv", *FIT, *options, "--out", "two.novidgp")
    return seen[0]


def test_what_a_table_lacks_is_one_line_and_no_stack(folder):
    with Launched("houses.csv", "--target", "cost", "--out", "two.novidgp", folder=folder) as job:
        code, output = job.end()
    assert code == 1
    assert "error: no column is named 'cost'" in output
    assert "stack trace" not in output


def test_the_log_of_the_runtime_is_not_shown():
    log = "1118 10:27:33.124582   27534 coordination_service_agent.cc:289] Polled an error\n"
    lines = ["warning: one\n", "E" + log, "error: two\n", "F" + log, "*** Check failure\n", "    @  0x7f\n"]
    assert list(spoken(lines)) == ["warning: one\n", "error: two\n"]


def test_launch_runs_fits_only():
    assert "launch runs `fit`, not 'predict'" in refused("launch", "-n", "2", "--", "predict", "x")
