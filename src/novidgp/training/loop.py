"""The training loop: the one impure part of a fit.

Steps run in compiled chunks. Everything else happens between chunks: the guard against non-finite numbers,
diagnosis, validation, callbacks, checkpoints, the progress bar. A step's minibatch and noise are functions of
(key, step) alone, so a resumed run repeats an uninterrupted one bit for bit.

The state is not donated. The guard needs the state from before the chunk, so a donated one would have to be
copied first, which costs the memory that donation saves; and an interrupt could find it deleted.
"""

import functools
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from novidgp import distributed
from novidgp.checks import check_choice
from novidgp.inference.base import Inference, Method, Prepared, State
from novidgp.inference.ensembles import Numbers, Plan, make_plan
from novidgp.model.dgp import DGP, Batch
from novidgp.numerics.compilation import COMPILER_OPTIONS, compile_once
from novidgp.numerics.forks import refuse_fork
from novidgp.numerics.linalg import single_threaded_lapack
from novidgp.numerics.random import Streams, fast_key
from novidgp.numerics.sharding import Devices, constrained, local, make_layout, replicated
from novidgp.numerics.trees import on_device, shapes
from novidgp.posteriors.fitted import Fitted
from novidgp.training.checkpoint import Checkpoint, digest
from novidgp.training.feeds import make_feed
from novidgp.training.interrupts import Pace, Signals, deferred_signals
from novidgp.training.memory import release_programs
from novidgp.training.progress import progress_bar
from novidgp.training.rowfile import RowFile
from novidgp.training.run import STEP_SHRINK, Run, Status, extended, recovering, verdict
from novidgp.training.validation import scorer


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
        job = _Job(
            plan, model, data, Numbers(num_data, steps), batch_size, chunk, key, validation, diagnose, signals
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


class _Job:
    """What stays the same during a run: the plan, the data and the noise."""

    def __init__(
        self,
        plan: Plan,
        model: DGP | Fitted,
        data: Batch | RowFile,
        numbers: Numbers,
        batch_size: int,
        chunk: int,
        key: PRNGKeyArray,
        validation: Batch | None,
        diagnose: bool,
        signals: Signals,
    ):
        self.plan, self.batch_size, self.chunk, self.numbers = plan, batch_size, chunk, numbers
        self.inference = plan._replace(layout=None).inference(numbers)
        self.diagnose = diagnose and self.inference.diagnose is not None
        self.key, self.validation, self.streams = key, validation, Streams(key)
        self.init_key, self.step_key = (fast_key(self.streams.key(name)) for name in ("init", "steps"))
        self.feed = make_feed(data, int(numbers.num_data), batch_size, chunk, self.streams, plan.layout)
        self.dtype = self.feed.example().x.dtype
        self.score = None if validation is None else scorer(validation, self.streams.key("validation"))
        self.signals, self.pace, self.compiled = signals, Pace(), False

    def start(self, model: DGP | Fitted) -> Run:
        arguments = self.plan, *self._init_arguments(model)
        self._compile(_init.lower(*arguments))
        run = Run(local(_init(*arguments)))
        if not _all_finite(run.state):
            raise ValueError(
                "The initial state is not finite. Look for NaN or infinity in the model and the inputs."
            )
        return run

    def _init_arguments(self, model: DGP | Fitted) -> tuple:
        """What `_init` is called with after the plan."""
        numbers, model, key = replicated(self.plan.layout, (self.arguments(), model, self.init_key))
        return numbers, model, self.feed.example(), key

    def arguments(self, recoveries: int = 0) -> Numbers:
        """The run's numbers as arguments of a compiled program."""
        num_data, steps, scale = self.numbers
        return Numbers(
            on_device(num_data, self.dtype),
            on_device(steps, np.int32),
            on_device(scale * STEP_SHRINK**recoveries, self.dtype),
        )

    def fitted(self, state: State) -> Fitted:
        """The model and posterior of a state."""
        return jax.device_put(self.inference.fitted(state))

    def template(self, model: DGP | Fitted) -> State:
        """The shapes of the method's state."""
        return _init.eval_shape(self.plan, *self._init_arguments(model))

    def settings(self, template: State) -> dict[str, Any]:
        """What a checkpoint must agree with: arguments, data and the text of the program."""
        alone = self.plan._replace(layout=None)  # a run may go on with another number of devices
        program = _run_chunk.lower(alone, *shapes(self._call(Run(template), 0)), chunk=self.chunk)
        return {
            "steps": self.numbers.steps,
            "batch_size": self.batch_size,
            "seed": digest(jax.random.key_data(self.key)),
            "chunk": self.chunk,
            "training data": self.feed.digest(),
            "validation data": digest(*jax.tree.leaves(self.validation)) if self.validation else None,
            "method or model": digest(np.frombuffer(program.as_text().encode(), np.uint8)),
        }

    def advance(self, run: Run) -> tuple[Run, dict[str, float] | None]:
        """The run after one more chunk, and the chunk's means; None if it ended in non-finite numbers."""
        clock = time.perf_counter()
        state, infos = self._steps(run, min(self.chunk, int(self.numbers.steps) - run.step))
        if not (np.isfinite(infos["loss"]).all() and _all_finite(state)):
            return recovering(run, infos["loss"]), None
        measured = {}
        if self.diagnose:
            data, rows = self.feed.at(run.step, 1)
            batch = local(data if rows is None else jax.tree.map(lambda a: a[rows[0]], data))
            key = self.streams.key("diagnose", run.step)
            found = _diagnose(self.plan, self.arguments(), state, batch, key)
            measured = {name: float(value) for name, value in found.items()}
        if self.score is not None:
            fitted = self.fitted(state)
            measured["validation_nll"] = self.score(fitted)
            run = extended(run, state, infos, measured, clock, fitted)
        else:
            run = extended(run, state, infos, measured, clock)
        return run, {name: float(values.mean()) for name, values in infos.items()} | measured

    def _steps(self, run: Run, count: int) -> tuple[State, dict[str, np.ndarray]]:
        """`count` steps on from `run`, in calls that are short enough for Ctrl-C: the state and the infos."""
        if not self.compiled:
            self._compile(self._lower(run))
            distributed.meet()
            self.compiled = True
        state, parts, done = run.state, [], 0
        while done < count:
            self.signals.check_everywhere()
            clock, steps = time.perf_counter(), min(self.pace.steps, count - done)
            call = self._call(run._replace(state=state, step=run.step + done), steps)
            state, infos = _run_chunk(self.plan, *call, chunk=self.chunk)
            parts.append({name: np.asarray(values)[:steps] for name, values in infos.items()})
            self.pace.learn(steps, time.perf_counter() - clock)
            done += steps
        return local(state), {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _compile(self, program: jax.stages.Lowered) -> None:
        """Compile a program where Ctrl-C need not wait for it, and no other process compiles it as well."""
        name = f"{self.plan} {program.in_tree} {program.in_avals}"
        self.signals.wait(functools.partial(compile_once, program, name))

    def _lower(self, run: Run) -> jax.stages.Lowered:
        """The program of a chunk before it is compiled."""
        return _run_chunk.lower(self.plan, *self._call(run, 0), chunk=self.chunk)

    def _call(self, run: Run, count: int) -> tuple:
        """What `_run_chunk` is called with for `count` steps on from `run`, after the plan."""
        data, rows = self.feed.at(run.step, self.chunk)
        numbers, state, key = replicated(
            self.plan.layout, (self.arguments(run.recoveries), run.state, self.step_key)
        )
        return numbers, state, data, key, run.recoveries, run.step, count, rows


# --- compiled parts: module-level, so that fits of the same shape share them ----------------------


@functools.partial(jax.jit, static_argnums=0, compiler_options=COMPILER_OPTIONS)
def _init(plan: Plan, numbers: Numbers, model: Any, data: Batch, key: PRNGKeyArray) -> State:
    """The method's first state, without weak types (they would compile the first chunk twice)."""
    state = plan.inference(numbers).init(model, data, key=key)
    state = jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.result_type(leaf)), state)
    return constrained(plan.layout, state)


@functools.partial(jax.jit, static_argnums=0, static_argnames="chunk", compiler_options=COMPILER_OPTIONS)
def _run_chunk(plan: Plan, numbers: Numbers, state, data, key, attempt, start, count, indices, *, chunk):
    """`count` steps from `start`: the new state, and each info as `(chunk,)`.

    The trip count is an argument, so that a shorter last chunk needs no program of its own.
    """
    step = jax.jit(plan.inference(numbers).step)  # traced once for the shapes and the loop
    key, layout = jax.random.fold_in(key, attempt), plan.layout

    def advance(i, state):
        batch = data if indices is None else jax.tree.map(lambda a: a[indices[i]], data)
        batch, state = constrained(layout, batch, "rows"), constrained(layout, state, "starts")
        return step(state, batch, key=jax.random.fold_in(key, start + i))

    def body(i, carry):
        state, infos = carry
        state, info = advance(i, state)
        return state, jax.tree.map(lambda values, value: values.at[i].set(value), infos, info)

    _, info = jax.eval_shape(advance, 0, state)
    infos = jax.tree.map(lambda a: jnp.zeros((chunk, *a.shape), a.dtype), info)
    return constrained(layout, jax.lax.fori_loop(0, count, body, (state, infos)))


@functools.partial(jax.jit, static_argnums=0, compiler_options=COMPILER_OPTIONS)
def _diagnose(
    plan: Plan, numbers: Numbers, state: State, batch: Batch, key: PRNGKeyArray
) -> dict[str, jax.Array]:
    """What the method measures between chunks."""
    diagnose = plan.inference(numbers).diagnose
    assert diagnose is not None
    return diagnose(state, batch, key=key)


def _all_finite(state: State) -> bool:
    """Whether all numbers of a state are finite. On the host: a reduction per array takes seconds to
    compile."""
    leaves = (np.asarray(leaf) for leaf in jax.tree.leaves(state))
    return all(np.isfinite(leaf).all() for leaf in leaves if leaf.dtype.kind == "f")


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
