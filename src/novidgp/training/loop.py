"""The training loop: the one impure part of a fit.

Steps run in compiled chunks (`training.job`). Everything else happens between chunks: the guard against
non-finite numbers, diagnosis, validation, callbacks, checkpoints, the progress bar.
"""

import functools
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray

from novidgp import distributed
from novidgp.checks import check_choice
from novidgp.inference.base import Inference, Method, Prepared, State
from novidgp.inference.ensembles import Numbers, make_plan
from novidgp.model.dgp import DGP, Batch
from novidgp.numerics.forks import refuse_fork
from novidgp.numerics.linalg import single_threaded_lapack
from novidgp.numerics.sharding import Devices, make_layout
from novidgp.posteriors.fitted import Fitted
from novidgp.training.checkpoint import Checkpoint
from novidgp.training.interrupts import deferred_signals
from novidgp.training.job import Aside, Job
from novidgp.training.memory import release_programs
from novidgp.training.progress import progress_bar
from novidgp.training.rowfile import RowFile
from novidgp.training.run import Status, verdict


class Progress(NamedTuple):
    """What a callback sees between chunks."""

    step: int
    steps: int
    info: dict[str, float]
    """Means over the last chunk, and `validation_nll` where there is a validation set."""
    seconds: float
    """Since this call of `fit` began."""
    fitted: Callable[[], Fitted]
    """The model as it is now."""


class FitResult(NamedTuple):
    """The result of a fit: the model, and how it was found."""

    fitted: Fitted
    """The model of the best validation score, or the last one where nothing is validated."""
    state: State
    """The last good state of the inference method."""
    history: dict[str, np.ndarray]
    """One entry per step for every scalar of the method's step. One per chunk for `chunk_step` (steps done at
    its end), `chunk_loss` (its mean), `seconds` (its duration, with compilation), with `diagnose` for what
    the method measures, and with a validation set for `validation_step` and `validation_nll`."""
    steps: int
    """Steps done."""
    status: Status
    """`finished`, `early-stopped` (by validation or a callback), `plateau`, `interrupted` or `diverged`."""
    notes: tuple[str, ...]
    """What happened during the run, in words."""


Callback = Callable[[Progress], bool | None]
ON_INTERRUPT = ("raise", "return")


def fit(
    model: DGP | Fitted,
    method: Method | Inference,
    data: Batch | RowFile,
    *,
    steps: int,
    key: PRNGKeyArray,
    batch_size: int | None = None,
    num_data: int | None = None,
    starts: int = 1,
    devices: Devices = None,
    validation: Batch | None = None,
    patience: int | None = None,
    plateau: int | None = None,
    callbacks: Iterable[Callback] = (),
    diagnose: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = 60.0,
    resume: bool = False,
    on_interrupt: str = "raise",
    progress: bool | None = None,
    chunk: int = 100,
    meanwhile: Iterable[Aside] = (),
) -> FitResult:
    """Fit `model` to `data` by `steps` steps of an inference method, on minibatches of `batch_size` rows.

    Without a `batch_size` every step sees all rows. `num_data` is the number of rows that are data, if the
    last ones are padding. With several `starts` the model's arrays have a leading axis of so many. After a
    chunk that ends in non-finite numbers the run goes back to where the chunk began and tries again with
    other noise and 0.3 of the step size, four times in a row before it gives up (`diverged`).

    Several `devices` (a number, or "all") share the rows of every step, or the starts where each device can
    have equally many. The model is the same but for rounding.

    `patience` stops after so many chunks without a better validation score; `plateau` after so many chunks in
    which the smoothed loss fell by less than 0.001 (only without a validation set). A callback stops the run
    by returning True. `diagnose` records what the method measures between chunks, such as NOVI's discrepancy.

    Ctrl-C raises KeyboardInterrupt within a second, also while a program is compiled. With
    `on_interrupt="return"` the run ends with the best model of the chunks so far instead, and with a
    ConvergenceWarning; where no chunk was done there is no model, and it raises all the same.

    `checkpoint` names a file that is rewritten at the first chunk end after every `checkpoint_every` seconds
    and when the run ends or is interrupted; `resume=True` continues from it where it exists. Whether it can
    be written is tried first; a failure later is a warning. `progress=None` shows a bar if stderr is a
    terminal, True also a line every ten seconds if it is not.

    What is in `meanwhile` is called once, each in a thread of its own, with a function that gives the model
    as the run starts. The steps are compiled at the same time, on one core: it can compile what is needed
    next.
    """
    started = time.perf_counter()
    refuse_fork()
    release_programs()
    available = len(data) if isinstance(data, RowFile) else len(data.x)
    batch_size = available if batch_size is None else batch_size
    _check(data, validation, steps=steps, batch_size=batch_size, chunk=chunk)
    check_choice("on_interrupt", on_interrupt, ON_INTERRUPT)
    if patience is not None and validation is None:
        raise ValueError(
            f"patience={patience} needs validation data. Pass validation=Batch(x, y), or use plateau."
        )
    if resume and checkpoint is None:
        raise ValueError("resume=True needs the checkpoint's path. Pass checkpoint=PATH.")
    store = None if checkpoint is None else Checkpoint(Path(checkpoint), checkpoint_every)

    method = Prepared(method) if isinstance(method, Inference) else method
    num_data = available if num_data is None else num_data
    plan = make_plan(method, num_data, steps, starts=starts, layout=make_layout(devices, starts))
    stopped: Status | None = None
    interrupt = None
    with deferred_signals() as signals, single_threaded_lapack():
        numbers = Numbers(num_data, steps)
        job = Job(
            plan, model, data, numbers, batch_size, chunk, key, validation, diagnose, signals, meanwhile
        )
        run = None
        if store is not None:
            template = job.template(model)
            settings = job.settings(template) | {"patience": patience, "plateau": plateau}
            run = store.open(settings, template, job.inference, resume=resume)
        run = job.start(model) if run is None else run
        shown = progress if distributed.is_first() else False
        try:
            with (
                progress_bar(steps, start=run.step, show=shown) as show,
                distributed.losses_explained(checkpoint),
            ):
                distributed.agree("The step to go on from", run.step)
                while run.verdict is None and stopped is None:
                    run, info = job.advance(run)
                    if info is None:
                        continue
                    run = run._replace(verdict=verdict(run, steps, patience, plateau))
                    if store is not None:
                        store.save_if_due(run)
                    show(run.step, info)
                    current = functools.partial(job.fitted, run.state)
                    seen = Progress(run.step, steps, info, time.perf_counter() - started, current)
                    wanted = any([callback(seen) is True for callback in callbacks])  # all are called
                    if distributed.anywhere(wanted):
                        note = f"stopped by a callback after step {run.step}"
                        stopped, run = "early-stopped", run.noting(note)
                    signals.check_everywhere()
                job.finish()
        except KeyboardInterrupt as error:
            stopped, run, interrupt = "interrupted", run.noting(f"interrupted after step {run.step}"), error
        finally:
            job.feed.close()
        if store is not None:
            store.save(run)

    if interrupt is not None:
        if on_interrupt == "raise" or run.step == 0:
            raise interrupt
        _warn_of_interrupt(run.step, steps)
    fitted = job.fitted(run.state) if run.best is None else run.best
    status = run.verdict or stopped
    assert status is not None
    return FitResult(fitted, run.state, run.history(), run.step, status, run.notes)


def _warn_of_interrupt(done: int, steps: int) -> None:
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(
        f"Training was interrupted after {done} of {steps} steps; the model is the best one until then.",
        ConvergenceWarning,
        stacklevel=3,
    )


def _check(data: Batch | RowFile, validation: Batch | None, **counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1.")
    for name, batch in (("data", data), ("validation", validation)):
        if isinstance(batch, Batch) and not (len(batch.x) == len(batch.y) > 0):
            raise ValueError(
                f"{name} has {len(batch.x)} rows of x and {len(batch.y)} of y; give equally many, not 0."
            )
    if validation is not None and not np.isfinite(validation.y).any():
        raise ValueError("validation has no observed target: every y is NaN. Pass rows with targets.")
