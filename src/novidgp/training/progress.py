"""The progress bar of a fit: on stderr, only at a terminal, and rich is imported only then."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping

Update = Callable[[int, Mapping[str, float]], None]


@contextlib.contextmanager
def progress_bar(steps: int, *, start: int = 0, show: bool | None = None) -> Iterator[Update]:
    """A function `update(step, info)` that moves the bar; `show=None` shows it if stderr is a terminal."""
    if show is None:
        show = sys.stderr.isatty()
    if not show:
        yield lambda step, info: None
        return

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("[bold]fit"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}", style="dim"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=False) as bar:
        task = bar.add_task("fit", total=steps, completed=start, rate="compiling", text="")

        def update(step: int, info: Mapping[str, float]) -> None:
            speed = bar.tasks[0].speed
            rate = f"{speed:.0f} steps/s" if speed else ""
            bar.update(task, completed=step, rate=rate, text=describe(info))

        yield update


def describe(info: Mapping[str, float]) -> str:
    """The loss first, then the rest, each with four digits."""
    names = sorted(info, key=lambda name: (name != "loss", name != "validation_nll"))
    return "  ".join(f"{name.replace('_', ' ')} {info[name]:.4g}" for name in names)
