"""Progress of a benchmark: a line per fit, and at a terminal a bar with the time left."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from novidgp.bench.results import fit_of
from novidgp.bench.runner import Event

_SHOWN = ("rmse", "nll", "accuracy", "seconds_per_step")


class Display:
    """Shows the events of a run, and counts the failures."""

    def __init__(self, progress: Progress, console: Console):
        self.failures = 0
        self._progress = progress
        self._console = console
        self._task: TaskID | None = None

    def begin(self, total: int) -> None:
        """Show the bar of a run of `total` fits."""
        self._task = self._progress.add_task("fits", total=total, left="")

    def advance(self, event: Event) -> None:
        """Show a fit that has ended."""
        self.failures += event.record["status"] != "ok"
        self._console.print(describe(event), style="red" if event.record["status"] != "ok" else None)
        if self._task is not None:
            left = f"about {duration(event.seconds_left)} left" if event.seconds_left else ""
            self._progress.update(self._task, completed=event.finished, left=left)


def describe(event: Event) -> str:
    """One line about a finished fit."""
    record = event.record
    fit = fit_of(record)
    head = f"[{event.finished}/{event.total}] {fit}"
    if record["status"] != "ok":
        return f"{head}  failed: {record['error']}".replace("\n", " ")
    scores = record["scores"]
    shown = [f"{name} {scores[name]:.4g}" for name in _SHOWN if isinstance(scores.get(name), float)]
    left = f"  ({duration(event.seconds_left)} left)" if event.seconds_left else ""
    return f"{head}  {'  '.join(shown)}  {scores['seconds']:.0f} s{left}"


def duration(seconds: float) -> str:
    """Seconds as people write them: `3 h 05 min`, `12 min`, `40 s`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


@contextmanager
def display() -> Iterator[Display]:
    """A display on stderr."""
    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        yield Display(progress, console)
