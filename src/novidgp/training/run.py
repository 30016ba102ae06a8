"""The state of a training run between two chunks, and why a run ends."""

import time
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from novidgp.inference.base import State
from novidgp.posteriors.fitted import Fitted

MAX_RECOVERIES = 4
STEP_SHRINK = 0.3
_PLATEAU_TOLERANCE = 1e-3
_PLATEAU_WEIGHT = 0.3

Status = Literal["finished", "early-stopped", "plateau", "interrupted", "diverged"]
Record = dict[str, np.ndarray]


class Run(NamedTuple):
    """All that a resumed run must know. It is replaced as a whole, so that an interrupt never finds half of
    one."""

    state: State
    step: int = 0
    recoveries: int = 0
    best: Fitted | None = None
    chunks: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()
    verdict: Status | None = None
    failures: int = 0
    """Chunks in a row that ended in non-finite numbers."""

    def series(self, name: str) -> np.ndarray:
        """One entry of the history."""
        return np.concatenate([chunk[name] for chunk in self.chunks])

    def history(self) -> Record:
        """All chunks' records, joined."""
        return {name: self.series(name) for name in (self.chunks[0] if self.chunks else ())}

    def noting(self, note: str) -> "Run":
        """The same run with one more note."""
        return self._replace(notes=(*self.notes, note))


def extended(
    run: Run,
    state: State,
    infos: Record,
    measured: Mapping[str, float],
    clock: float,
    candidate: Fitted | None = None,
) -> Run:
    """The run after a good chunk: its scalars per step, and what was measured at its end.

    `candidate` is the model of a validated run. It is kept if its `validation_nll` is the best so far.
    """
    step = run.step + len(infos["loss"])
    record = {**infos, "chunk_step": np.array([step]), "chunk_loss": np.array([infos["loss"].mean()])}
    record |= {name: np.array([value]) for name, value in measured.items()}
    best = run.best
    if candidate is not None:
        record["validation_step"] = np.array([step])
        earlier = run.series("validation_nll") if run.chunks else np.array([])
        lowest = np.min(earlier, initial=np.inf, where=np.isfinite(earlier))
        best = candidate if best is None or measured["validation_nll"] < lowest else best
    record["seconds"] = np.array([time.perf_counter() - clock])
    return run._replace(state=state, step=step, failures=0, best=best, chunks=(*run.chunks, record))


def recovering(run: Run, losses: np.ndarray) -> Run:
    """The run after a chunk with non-finite numbers: it goes on from the chunk's start, or ends."""
    bad = np.flatnonzero(~np.isfinite(losses))
    place = f"loss at step {run.step + bad[0] + 1}" if len(bad) else f"state by step {run.step + len(losses)}"
    if run.failures < MAX_RECOVERIES:
        note = f"non-finite {place}: went back to step {run.step}, step size x {STEP_SHRINK}"
        return run._replace(failures=run.failures + 1, recoveries=run.recoveries + 1).noting(note)
    what = f"the state of step {run.step}" if run.step else "the untrained initial state"
    return run._replace(verdict="diverged").noting(
        f"non-finite {place}: gave up after {MAX_RECOVERIES} recoveries, {what} is returned"
    )


def verdict(run: Run, steps: int, patience: int | None, plateau: int | None) -> Status | None:
    """Why the run should end now, or None."""
    if run.step >= steps:
        return "finished"
    if patience is not None and _stale(run.series("validation_nll")) >= patience:
        return "early-stopped"
    if plateau is not None and run.best is None:
        smooth: list[float] = []
        for loss in run.series("chunk_loss"):
            smooth.append(loss if not smooth else smooth[-1] + _PLATEAU_WEIGHT * (loss - smooth[-1]))
        if _stale(smooth, _PLATEAU_TOLERANCE) >= plateau:
            return "plateau"
    return None


def _stale(values: Iterable[float | np.floating], tolerance: float = 0.0) -> int:
    """How many values at the end did not fall below the best before them by more than `tolerance`."""
    best, stale = np.inf, 0
    for value in values:
        best, stale = (value, 0) if value < best - tolerance else (best, stale + 1)
    return stale
