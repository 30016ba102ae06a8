"""Ctrl-C and SIGTERM in a command: both raise KeyboardInterrupt, and the command exits with 128 + signal."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

_received: list[int] = []


@contextmanager
def heed_termination() -> Iterator[None]:
    """A block in which SIGTERM raises KeyboardInterrupt, as Ctrl-C does."""
    _received.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: Any) -> None:
    _received.append(number)
    raise KeyboardInterrupt


def leave(message: str) -> NoReturn:
    """Say what was saved, in one line on stderr, and exit: with 130 after Ctrl-C, 143 after SIGTERM."""
    typer.echo(message, err=True)
    code = 128 + (_received[-1] if _received else signal.SIGINT)
    interrupts = sys.modules.get("novidgp.training.interrupts")
    if interrupts is not None and interrupts.compiling():  # an orderly exit would wait for the compiler
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise typer.Exit(code)
