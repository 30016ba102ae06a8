"""The progress bar: silent without a terminal, on stderr with one."""

import os
import pty
import subprocess
import sys

from novidgp.training.progress import describe, progress_bar


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


def test_the_bar_names_the_loss_first_and_the_validation_score_second():
    assert describe({"gradient_norm": 12.3456, "loss": 0.5}) == "loss 0.5  gradient norm 12.35"
    assert describe({"a": 1.0, "validation_nll": 2.0, "loss": 3.0}) == "loss 3  validation nll 2  a 1"
