"""Ctrl-C and SIGTERM in a command: both raise KeyboardInterrupt, and the command exits with 128 + signal."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import typer

_received: list[int] = []
_GC_CALLBACK = "_xla_gc_callback"
_IMPORT = "<frozen importlib"
_MOMENT = 0.05


@contextmanager
def heed_termination() -> Iterator[None]:
    """A block in which SIGTERM raises KeyboardInterrupt, as Ctrl-C does, and neither is lost.

    A shell starts its background processes deaf to Ctrl-C, and they stay so.
    """
    _received.clear()
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; a moment later in JAX's callback of the garbage collector, where it would be
    printed and dropped, and in an import, where it aborts jaxlib."""
    _received.append(number)
    place = frame
    while place is not None:
        code = place.f_code
        if code.co_name == _GC_CALLBACK or code.co_filename.startswith(_IMPORT):
            threading.Timer(_MOMENT, os.kill, [os.getpid(), number]).start()
            return
        place = place.f_back
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
