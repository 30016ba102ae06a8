"""How far a fit has come, on stderr: a bar at a terminal, a line every ten seconds in a log."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping

Update = Callable[[int, Mapping[str, float]], None]

_LINE_SECONDS = 10.0
_SHOWN = {"loss": "loss", "validation_nll": "nll"}


def progress_bar(
    steps: int, *, start: int = 0, show: bool | None = None
) -> contextlib.AbstractContextManager[Update]:
    """A function `update(step, info)` that shows the progress of a fit.

    With `show=None` there is a bar if stderr is a terminal, and nothing otherwise. With `show=True` there are
    lines where there is no terminal.
    """
    terminal = sys.stderr.isatty()
    if terminal and show is not False:
        return _bar(steps, start)
    return _lines(steps, start) if show else contextlib.nullcontext(lambda step, info: None)


@contextlib.contextmanager
def stage(name: str, *, show: bool | None = None) -> Iterator[Callable[[str], None]]:
    """A function `tell(text)` that shows what a stage after the steps is at: at a terminal beside its name
    and a spinner; where there is none on a line of its own, with `show=True`."""
    if sys.stderr.isatty() and show is not False:
        from rich.console import Console

        with Console(stderr=True).status(name) as status:
            yield lambda text: status.update(f"{name}: {text}")
    elif show:
        yield lambda text: print(f"{name}: {text}", file=sys.stderr, flush=True)
    else:
        yield lambda text: None


@contextlib.contextmanager
def _bar(steps: int, start: int) -> Iterator[Update]:
    """A bar that fits into 80 columns. rich is imported only here."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    columns = (
        TextColumn("[bold]fit"),
        BarColumn(bar_width=14, table_column=Column(no_wrap=True, min_width=14)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[text]}", style="dim"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=False) as bar:
        task = bar.add_task("fit", total=steps, completed=start, rate="compiling", text="")

        def update(step: int, info: Mapping[str, float]) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=step, rate=f"{speed:.0f}/s" if speed else "", text=describe(info))

        yield update


@contextlib.contextmanager
def _lines(steps: int, start: int) -> Iterator[Update]:
    """A line every ten seconds, by a thread: compilation and long chunks have no updates."""
    begun = time.monotonic()
    updates: list[tuple[float, int, str]] = []
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(_LINE_SECONDS):
            with contextlib.suppress(OSError, ValueError):  # nobody reads any more
                print(progress_line(steps, time.monotonic() - begun, updates), file=sys.stderr, flush=True)

    def update(step: int, info: Mapping[str, float]) -> None:
        updates.append((time.monotonic() - begun, step, describe(info)))

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield update
    finally:
        ended.set()
        thread.join()


def progress_line(steps: int, seconds: float, updates: list[tuple[float, int, str]]) -> str:
    """One line after `seconds` of a fit; `updates` are (seconds, step, text), and none while it compiles."""
    if not updates:
        return f"fit: compiling, {seconds:.0f} s"
    (first, start, _), (last, step, text) = updates[0], updates[-1]
    left = f", about {(last - first) / (step - start) * (steps - step):.0f} s left" if step > start else ""
    return f"fit: step {step:,} of {steps:,}, {text}, {seconds:.0f} s{left}"


def describe(info: Mapping[str, float]) -> str:
    """The loss, and the validation score where there is one, each with four digits."""
    return "  ".join(f"{short} {info[name]:.4g}" for name, short in _SHOWN.items() if name in info)
