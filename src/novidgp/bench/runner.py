"""Run the fits of a suite that are not in its result file yet, and store each result at once."""

import contextlib
import functools
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from novidgp.bench.results import Record, Results, failed, finished, fit_of
from novidgp.bench.spec import Fit
from novidgp.bench.worker import cores, run_fit

BACKENDS = ("loky", "dask", "ray", "sequential")


class Plan(NamedTuple):
    """What a run has to do, and what it leaves out."""

    todo: list[Fit]
    done: int
    """The number of fits that have a result already."""
    failed: int
    """The number of fits that failed before and are not tried again."""
    skipped: dict[str, int]
    """Reasons why fits cannot be run here, and the number of fits for each."""


class Event(NamedTuple):
    """A fit has ended: the news for a progress display."""

    record: Record
    finished: int
    total: int
    seconds_left: float


def plan(fits: Iterable[Fit], records: Iterable[Record], *, retry_failed: bool = False) -> Plan:
    """Sort `fits` into those to run, those done, those that failed before and those that cannot be run."""
    from novidgp.bench.methods import unavailable_reason

    records = list(records)
    good, bad = finished(records), failed(records)
    todo: dict[str, Fit] = {}
    done, given_up = 0, 0
    skipped: dict[str, int] = {}
    for fit in fits:
        key = fit.key
        if key in good:
            done += 1
        elif key in bad and not retry_failed:
            given_up += 1
        elif (reason := unavailable_reason(fit)) is not None:
            skipped[reason] = skipped.get(reason, 0) + 1
        else:
            todo.setdefault(key, fit)
    return Plan(list(todo.values()), done, given_up, skipped)


def run(
    fits: Iterable[Fit],
    path: str | Path,
    *,
    suite: str = "",
    jobs: int = 1,
    backend: str = "loky",
    scheduler: str | None = None,
    retry_failed: bool = False,
    on_plan: Callable[[Plan], None] = lambda plan: None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> int:
    """Run those of `fits` that have no result in the file `path`, append theirs, and return their number.

    Fits of the same shape follow one another, so that a process compiles once for all their splits. Only this
    process writes. Ctrl-C stops the workers and leaves the file as it is; the next run continues from there.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend={backend!r} is unknown; choose one of: {', '.join(BACKENDS)}.")
    jobs = cores() if jobs == -1 else jobs
    if jobs < 1:
        raise ValueError(f"jobs={jobs} must be at least 1, or -1 for one job per core.")
    with Results(path) as results:
        work = plan(fits, results.records(), retry_failed=retry_failed)
        on_plan(work)
        clock = Forecast(results.records(), work.todo, jobs)
        count = 0
        with contextlib.closing(_outcomes(work.todo, jobs, backend, scheduler)) as outcomes:
            for record in outcomes:
                results.append({"key": record["key"], "suite": suite} | record)
                count += 1
                on_event(Event(record, count, len(work.todo), clock.after(record)))
    return count


class Forecast:
    """The time left, from the times of fits of the same shape or, without any, from the average time."""

    def __init__(self, records: Iterable[Record], todo: Iterable[Fit], jobs: int):
        self._seconds: dict[tuple, list[float]] = {}
        self._left = {fit.key: fit.shape for fit in todo}
        self._jobs = jobs
        for record in finished(records).values():
            self._learn(record)

    def _learn(self, record: Record) -> None:
        if "seconds" in record["scores"]:
            self._seconds.setdefault(fit_of(record).shape, []).append(record["scores"]["seconds"])

    def after(self, record: Record) -> float:
        """Seconds left once the fit of `record` has ended."""
        self._learn(record)
        self._left.pop(record["key"], None)
        means = {shape: sum(values) / len(values) for shape, values in self._seconds.items()}
        typical = sum(means.values()) / max(len(means), 1)
        return sum(means.get(shape, typical) for shape in self._left.values()) / self._jobs


# --- backends -------------------------------------------------------------------------------------


def _outcomes(
    todo: list[Fit], jobs: int, backend: str, scheduler: str | None
) -> Generator[Record, None, None]:
    if not todo:
        return
    if backend == "sequential" or (backend == "loky" and jobs == 1):
        for fit in todo:
            yield run_fit(fit, jobs=1)
    elif backend == "loky":
        yield from _in_processes(todo, jobs)
    elif backend == "dask":
        yield from _on_dask(todo, jobs, scheduler)
    else:
        yield from _on_ray(todo, jobs, scheduler)


def _parallel(
    todo: Iterable[Fit], jobs: int, return_as: str = "generator_unordered", **settings: Any
) -> Iterator[Record]:
    """Records in the order in which fits end, by the joblib backend of the context."""
    from joblib import Parallel, delayed

    settings |= {"return_as": return_as, "batch_size": 1, "pre_dispatch": "n_jobs"}
    pool: Any = Parallel(n_jobs=jobs, **settings)
    work = delayed(functools.partial(run_fit, jobs=jobs, child=True))
    yield from pool(work(fit) for fit in todo)


def _in_processes(todo: list[Fit], jobs: int) -> Iterator[Record]:
    """Run fits in local processes. If one dies (for want of memory, for example), only its fit fails."""
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    waiting = list(todo)
    try:
        while waiting:
            running: dict[str, Fit] = {}
            ended: set[str] = set()

            def dispatched(fits: list[Fit], running: dict[str, Fit]) -> Iterator[Fit]:
                for fit in fits:
                    running[fit.key] = fit
                    yield fit

            try:
                for record in _parallel(dispatched(waiting, running), jobs, backend="loky"):
                    running.pop(record["key"], None)
                    ended.add(record["key"])
                    yield record
            except TerminatedWorkerError as error:
                for fit in running.values():
                    ended.add(fit.key)
                    yield _alone(fit, jobs, error)
            waiting = [fit for fit in waiting if fit.key not in ended]
    except (KeyboardInterrupt, GeneratorExit):
        get_reusable_executor().shutdown(wait=False, kill_workers=True)
        raise


def _alone(fit: Fit, jobs: int, error: Exception) -> Record:
    """Run a fit again alone: it was running when a worker died, but may not be the cause."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    try:
        return next(iter(_parallel([fit], max(jobs, 2), backend="loky")))
    except TerminatedWorkerError:
        text = f"the worker process died ({type(error).__name__}): out of memory, or killed"
        return {"key": fit.key, "status": "failed", "fit": fit._asdict(), "error": text, "scores": {}}


def _on_dask(todo: list[Fit], jobs: int, scheduler: str | None) -> Iterator[Record]:
    """A Dask cluster: the one at address `scheduler`, or a local one made for this run."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ImportError(
            "--backend dask needs Dask's scheduler: pip install 'dask[distributed]'. Or use --backend loky."
        ) from None
    from joblib import parallel_config

    with contextlib.ExitStack() as stack:
        if scheduler is None:
            settings: Any = {"processes": True, "dashboard_address": None}
            cluster = LocalCluster(n_workers=jobs, threads_per_worker=1, **settings)
            client = stack.enter_context(Client(stack.enter_context(cluster)))
        else:
            client = stack.enter_context(Client(scheduler))
        stack.enter_context(parallel_config("dask", client=client))
        yield from _parallel(todo, jobs)


def _on_ray(todo: list[Fit], jobs: int, scheduler: str | None) -> Iterator[Record]:
    """A Ray cluster: the one at address `scheduler`, or a local one.

    Ray's backend returns results together only, so the fits are run in rounds of `jobs`.
    """
    try:
        import ray  # pyright: ignore[reportMissingImports]
        from ray.util.joblib import register_ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(
            "--backend ray needs Ray: pip install 'ray[default]'. Or use --backend loky."
        ) from None
    from joblib import parallel_config

    register_ray()
    ray.init(address=scheduler, num_cpus=None if scheduler else jobs, include_dashboard=False)
    try:
        with parallel_config("ray"):
            for start in range(0, len(todo), jobs):
                yield from _parallel(todo[start : start + jobs], jobs, "list")
    finally:
        ray.shutdown()
