"""Ctrl-C and other signals during a run: heard at once, acted on where nothing can be lost.

Python runs a signal's handler between any two of its instructions. An exception raised there may be swallowed
(JAX has callbacks in the garbage collector whose errors are printed and dropped), and while XLA compiles or
computes there are no instructions at all for many seconds. So a run takes a signal down, asks for it between
calls of compiled programs (`Signals.check`), keeps these calls short (`Pace`), and compiles in a thread that
it need not wait for (`Signals.wait`). The handler that was there before decides what the signal means.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from novidgp import distributed

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_POLL_SECONDS = 0.1
_CALL_SECONDS = 0.3
_FIRST_STEPS = 8
_COMPILER = "novidgp-compile"


class Signals:
    """The signals of a run that have come and have not been acted on."""

    def __init__(self, handlers: dict[int, Callable[[int, Any], Any]]):
        self._handlers = handlers
        self._waiting: list[int] = []

    def receive(self, number: int, frame: Any) -> None:
        """Take a signal down. A second one is not made to wait: the user means it."""
        if self._waiting:
            self._waiting.clear()
            self._handlers[number](number, frame)
        else:
            self._waiting.append(number)

    def check(self) -> None:
        """Give a signal that has come to its handler. Python's own raises KeyboardInterrupt."""
        if self._waiting:
            number = self._waiting.pop()
            self._handlers[number](number, None)

    def check_everywhere(self) -> None:
        """`check`, where a signal that another process has got counts as well. All processes must ask."""
        signalled = distributed.anywhere(bool(self._waiting))
        self.check()
        if signalled and distributed.several():
            raise KeyboardInterrupt

    def wait(self, function: Callable[[], Any]) -> Any:
        """The result of a slow call into compiled code. A signal that raises leaves it to end by itself.

        The interpreter waits for such a call before it exits: to stop a thread inside XLA is to crash.
        """
        return self.result(in_thread(function)) if self._handlers else function()

    def result(self, call: Future[Any]) -> Any:
        """The result of a call in a thread. A signal that raises leaves the thread to end by itself."""
        while True:
            with contextlib.suppress(TimeoutError):
                return call.result(_POLL_SECONDS)
            self.check()


def in_thread(function: Callable[[], Any]) -> Future[Any]:
    """A slow call into compiled code, in a thread of its own."""
    pool = ThreadPoolExecutor(1, thread_name_prefix=_COMPILER)
    try:
        return pool.submit(function)
    finally:
        pool.shutdown(wait=False)


@contextlib.contextmanager
def deferred_signals() -> Iterator[Signals]:
    """A block in which SIGINT and SIGTERM wait for `Signals.check`, or for the end of the block.

    Only signals that Python handles, and only in the main thread, which alone receives them.
    """
    handlers: dict[int, Callable[[int, Any], Any]] = {}
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
    signals = Signals(handlers)
    for number in handlers:
        signal.signal(number, signals.receive)
    try:
        yield signals
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    signals.check()


def compiling() -> bool:
    """Whether a call that `Signals.wait` was made to leave has not ended yet."""
    return any(thread.name.startswith(_COMPILER) for thread in threading.enumerate())


class Pace:
    """How many steps to take in one call, so that calls last about 0.3 seconds."""

    def __init__(self) -> None:
        self.steps = _FIRST_STEPS

    def learn(self, steps: int, seconds: float) -> None:
        """`steps` steps took so long. The number changes by a factor of two at most. Several processes must
        make the same calls: they keep the first number."""
        if distributed.several():
            return
        wanted = int(steps * _CALL_SECONDS / max(seconds, 1e-6))
        self.steps = max(1, self.steps // 2, min(wanted, 2 * self.steps))
