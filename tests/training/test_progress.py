"""Progress: nothing unless asked for, a bar at a terminal, lines in a log."""

import os
import pty
import re
import subprocess
import sys
import time

import pytest

from novidgp.training import progress
from novidgp.training.progress import describe, progress_bar, progress_line


def test_the_library_is_silent_without_a_terminal(capfd):
    for show in (None, False):
        with progress_bar(10, show=show) as update:
            update(10, {"loss": 1.0})
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("columns", [80, 160])
def test_the_bar_keeps_bar_count_and_time_left(columns):
    """The figures of a long NOVI run with validation and diagnosis, whose line would not fit."""
    terminal, line = pty.openpty()
    code = (
        "import time\n"
        "from novidgp.training.progress import progress_bar\n"
        "info = dict.fromkeys(['loss', 'validation_nll', 'elbo', 'critic_loss', 'rsd', 'norm'], -1.23456)\n"
        "with progress_bar(100000) as update:\n"
        "    for step in (100, 200, 99700): update(step, info); time.sleep(0.3)\n"
    )
    with os.fdopen(line, "wb") as stderr:
        environment = os.environ | {"TERM": "xterm", "COLUMNS": str(columns)}
        run = subprocess.run(
            [sys.executable, "-c", code], stderr=stderr, stdout=subprocess.PIPE, env=environment, check=True
        )
    assert run.stdout == b""
    drawn = os.read(terminal, 100_000).decode()
    os.close(terminal)
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", part).strip() for part in re.split(r"[\r\n]+", drawn)]
    last = [text for text in lines if "99700/100000" in text][-1]
    assert re.fullmatch(
        r"fit [━╸╺ ]{14} +99700/100000 +\d+/s +\d:\d\d:\d\d +loss -1.235  nll -1.235", last
    ), last
    assert len(last) <= 80


def test_a_log_has_lines_while_compiling_and_while_running(capfd, monkeypatch):
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.1)
    with progress_bar(1000, show=True) as update:
        time.sleep(0.25)
        update(100, {"loss": 2.0, "other": 1.0})
        time.sleep(0.25)
    output, told = capfd.readouterr()
    assert output == ""
    assert told.splitlines()[0] == "fit: compiling, 0 s"
    assert told.splitlines()[-1].startswith("fit: step 100 of 1,000, loss 2, ")


def test_a_line_says_how_long_it_will_take():
    updates = [(20.0, 100, "loss 3"), (30.0, 200, "loss 2"), (40.0, 300, "loss 1")]
    assert progress_line(1000, 41.0, updates) == "fit: step 300 of 1,000, loss 1, 41 s, about 70 s left"
    assert progress_line(1000, 21.0, updates[:1]) == "fit: step 100 of 1,000, loss 3, 21 s"
    assert progress_line(1000, 9.6, []) == "fit: compiling, 10 s"


def test_only_the_loss_and_the_validation_score_are_shown():
    assert describe({"gradient_norm": 12.3456, "loss": 0.5}) == "loss 0.5"
    assert describe({"a": 1.0, "validation_nll": 2.0, "loss": 3.0}) == "loss 3  nll 2"
