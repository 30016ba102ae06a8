"""Processes of their own for tests with real signals."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
_LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A shell starts its background processes deaf to Ctrl-C."""


ANNOUNCE_COMPILING = """
from novidgp.training import interrupts
wait = interrupts.Signals.wait
def announcing_wait(*arguments):
    print("compiling", flush=True)
    return wait(*arguments)
interrupts.Signals.wait = announcing_wait
"""
"""A program that begins so says when it waits for the compiler: a busy machine traces for seconds first."""


class Process:
    """A running Python program. It is killed when it takes longer than `timeout` seconds: a busy machine
    starts and compiles it in minutes, and one that hangs has ended then as well."""

    def __init__(self, code: str, *arguments: object, timeout: float = 400.0, **environment: str):
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LISTEN + textwrap.dedent(code), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"} | environment,
            start_new_session=True,
        )
        self._timer = threading.Timer(timeout, self._process.kill)
        self._timer.start()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.communicate()

    def wait_for(self, word: str) -> str:
        """Read lines of its output until one has `word`; that line."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for line in self._process.stdout:
            if word in line:
                return line
        raise AssertionError(f"no line with {word!r}; on stderr: {self._process.stderr.read()}")

    def send(self, number: int = signal.SIGINT) -> None:
        """Send a signal, Ctrl-C by default."""
        self._process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Its exit code and the rest of its output and errors, once it has ended."""
        output, errors = self._process.communicate()
        return self._process.returncode, output, errors
