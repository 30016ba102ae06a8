"""What runs in a worker process: one fit, from its description to its record. Only Ctrl-C raises."""

import datetime
import hashlib
import math
import os
import platform
import signal
import threading
import time
import traceback
from functools import lru_cache
from pathlib import Path
from typing import Any

from novidgp.bench.spec import Fit

_ERROR_LINES = 6
_SINGLE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NPROC": "1",  # the size of XLA's thread pool
}
PACKAGE = Path(__file__).parents[1]
ROOMS = (
    "features",
    "model",
    "posteriors",
    "inference",
    "training",
    "local",
    "wide",
    "prediction",
    "estimators",
    "numerics",
)
"""Packages whose code decides the result of a fit."""
_last_shape: list[tuple] = []


def run_fit(fit: Fit, *, jobs: int = 1, child: bool = False) -> dict[str, Any]:
    """Load the data, fit and score: the record of a fit, with the error if there was one.

    `child` says that this is a worker process: it then uses one thread, ignores Ctrl-C, which the parent
    handles, and ends when the parent ends.
    """
    if child:
        _configure_worker(os.getppid())
    facts = machine() | {"jobs": jobs}
    began = time.perf_counter(), time.process_time()
    record: dict[str, Any] = {"key": fit.key, "status": "ok", "fit": fit._asdict()}
    try:
        record["scores"] = _scores(fit)
    except Exception as error:
        lines = traceback.format_exc(limit=-_ERROR_LINES).strip()
        record |= {"status": "failed", "error": f"{type(error).__name__}: {error}", "traceback": lines}
    seconds = {
        "seconds": time.perf_counter() - began[0],
        "cpu_seconds": time.process_time() - began[1],
    }
    record["scores"] = record.get("scores", {}) | seconds
    record["machine"] = facts
    record["finished"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return record


def _scores(fit: Fit) -> dict[str, Any]:
    from novidgp.bench.methods import fit_method
    from novidgp.bench.problems import load_problem
    from novidgp.bench.scoring import score

    _forget_other_programs(fit)
    problem = load_problem(fit).flat() if fit.baseline else load_problem(fit)
    clock = time.perf_counter(), time.process_time()
    method, facts = fit_method(fit, problem)
    seconds = {
        "seconds_fit": time.perf_counter() - clock[0],
        "cpu_seconds_fit": time.process_time() - clock[1],
    }
    rows = {"rows_train": len(problem.X), "rows_test": len(problem.X_test)}
    sizes = rows | {"columns": math.prod(problem.X.shape[1:])}
    return score(method, problem) | facts | seconds | sizes


@lru_cache(maxsize=1)
def machine() -> dict[str, Any]:
    """Versions and processor."""
    import jax

    import novidgp

    return {
        "novidgp": novidgp.__version__,
        "source": source_digest(PACKAGE),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "cpu": _processor(),
        "cores": cores(),
        "device": jax.default_backend(),
    }


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def source_digest(root: Path) -> str:
    """A short digest of the code below `root` that decides a result: finer than a version number."""
    files = [file for room in ROOMS for file in sorted((root / room).rglob("*.py"))]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:8]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _forget_other_programs(fit: Fit) -> None:
    """Drop the compiled programs of other shapes, so that a long run does not fill the memory."""
    if _last_shape and _last_shape[0] != fit.shape:
        import jax

        jax.clear_caches()
    _last_shape[:] = [fit.shape]


@lru_cache(maxsize=1)
def _configure_worker(parent: int) -> None:
    """Use one thread, ignore Ctrl-C, and end with the parent. Once per process, before JAX is imported."""
    os.environ.update(_SINGLE_THREAD)
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
