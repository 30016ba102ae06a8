"""The training loop: the one impure part of a fit.

Steps run in compiled chunks; everything else happens between chunks: the guard against non-finite numbers,
validation, callbacks, checkpoints, the progress bar. A step's minibatch and noise are functions of
(seed, step) alone, which is why a run that is resumed repeats an uninterrupted one bit for bit.

The state is not donated. The guard needs the state from before the chunk, so a donated one would have to be
copied first, which costs the memory that donation saves; and an interrupt could find it deleted.
"""

import functools
import gc
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from novidgp.inference.base import Fitted, Inference, State
from novidgp.model.dgp import DGP, Batch
from novidgp.numerics.linalg import single_threaded_lapack
from novidgp.training.checkpoint import Checkpoint, Run, digest
from novidgp.training.progress import progress_bar

_MAX_RECOVERIES = 4
_STEP_SHRINK = 0.3
_VALIDATION_PATHS = 20
_VALIDATION_ROWS = 256
_PLATEAU_TOLERANCE = 1e-3
_PLATEAU_WEIGHT = 0.3
_MAPS = Path("/proc/self/maps")
_MOST_MAPS = 30_000


class Progress(NamedTuple):
    """What a callback sees between chunks."""

    step: int
    steps: int
    info: dict[str, float]
    """Means over the last chunk, and `validation_nll` where there is a validation set."""
    seconds: float
    """Since this call of `train` began."""
    fitted: Callable[[], Fitted]
    """The model as it is now."""


class FitResult(NamedTuple):
    """A fit: the model, and how it came about."""

    fitted: Fitted
    """The model of the best validation score, or the last one where nothing is validated."""
    state: State
    """The last good state of the inference method."""
    history: dict[str, np.ndarray]
    """One entry per step for every key of the method's info; one per chunk for `chunk_step` (steps done at
    its end), `chunk_loss` (its mean), `seconds` (its duration, with compilation) and, where there is a
    validation set, `validation_step` and `validation_nll`."""
    steps: int
    """Steps done."""
    status: str
    """`finished`, `early-stopped` (by validation or a callback), `plateau`, `interrupted` or `diverged`."""
    notes: tuple[str, ...]
    """What happened on the way, in words."""


def train(
    make: Callable[[float], Inference],
    model: DGP,
    data: Batch,
    *,
    steps: int,
    batch_size: int,
    seed: int,
    validation: Batch | None = None,
    patience: int | None = None,
    plateau: int | None = None,
    callbacks: Iterable[Callable[[Progress], bool | None]] = (),
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1000,
    resume: bool = False,
    progress: bool | None = None,
    chunk: int = 100,
) -> FitResult:
    """Fit `model` to `data` by `steps` steps of the method that `make(step_scale)` returns.

    `step_scale` is 1 until a chunk ends in non-finite numbers; the run then goes back to where the chunk
    began and tries again with other noise and 0.3 of the step size, four times in a row before it gives up
    (`diverged`).

    `patience` stops after so many chunks without a better validation score; `plateau` after so many chunks
    in which the smoothed loss fell by less than 0.001 (only without a validation set). A callback stops the
    run by returning True. Ctrl-C ends it after the running chunk, with the best model so far.

    `checkpoint` names a file that is rewritten at the first chunk end after every `checkpoint_every` steps
    and when the run ends or is interrupted; `resume=True` continues from it where it exists.
    `progress=None` shows a bar if stderr is a terminal.
    """
    started = time.perf_counter()
    _release_programs()
    seed = int(seed)
    _check(
        data, validation, steps=steps, batch_size=batch_size, chunk=chunk, checkpoint_every=checkpoint_every
    )
    if patience is not None and validation is None:
        raise ValueError(
            f"patience={patience} needs validation data. Pass validation=Batch(x, y), or use plateau."
        )
    if resume and checkpoint is None:
        raise ValueError("resume=True needs the checkpoint's path. Pass checkpoint=PATH.")

    data = Batch(*map(jnp.asarray, data))
    rows_at = functools.partial(_batch_indices, len(data.x), batch_size, seed, chunk)
    init_key, step_key, validation_key = jax.random.split(jax.random.key(seed), 3)
    score = None if validation is None else _scorer(validation, validation_key)
    inference = make(1.0)

    run, store = None, None
    if checkpoint is not None:
        template = jax.eval_shape(functools.partial(_init, inference), model, data, init_key)
        program = _run_chunk.lower(inference, template, data, step_key, 0, 0, 0, rows_at(0), chunk=chunk)
        settings = {
            "steps": steps,
            "batch_size": batch_size,
            "seed": seed,
            "chunk": chunk,
            "patience": patience,
            "plateau": plateau,
            "training data": digest(*data),
            "validation data": None if validation is None else digest(*validation),
            "method or model": digest(np.frombuffer(program.as_text().encode(), np.uint8)),
        }
        store = Checkpoint(Path(checkpoint), settings)
        run = store.load(template, inference) if resume else None
    if run is None:
        run = Run(_init(inference, model, data, init_key))
        if not _all_finite(run.state):
            raise ValueError(
                "The initial state is not finite. Look for NaN or infinity in the model and the inputs."
            )

    stopped, failures, saved = None, 0, run.step
    try:
        with single_threaded_lapack(), progress_bar(steps, start=run.step, show=progress) as show:
            while run.verdict is None and stopped is None:
                clock = time.perf_counter()
                if run.recoveries:
                    inference = make(_STEP_SHRINK**run.recoveries)
                count = min(chunk, steps - run.step)
                state, infos, finite = _run_chunk(
                    inference,
                    run.state,
                    data,
                    step_key,
                    run.recoveries,
                    run.step,
                    count,
                    rows_at(run.step),
                    chunk=chunk,
                )
                infos = {name: np.asarray(values)[:count] for name, values in infos.items()}
                if not (bool(finite) and np.isfinite(infos["loss"]).all()):
                    failures += 1
                    run = _recovering(run, infos["loss"], failures)
                    continue

                failures = 0
                longer = _extended(run, state, infos, inference, score, clock)
                run = longer._replace(verdict=_verdict(longer, steps, patience, plateau))
                if store is not None and run.step - saved >= checkpoint_every:
                    store.save(run)
                    saved = run.step
                info = {name: float(values.mean()) for name, values in infos.items()}
                if score is not None:
                    info["validation_nll"] = float(run.chunks[-1]["validation_nll"][0])
                show(run.step, info)
                current = functools.partial(inference.fitted, run.state)
                seen = Progress(run.step, steps, info, time.perf_counter() - started, current)
                if any([callback(seen) is True for callback in callbacks]):  # all are called
                    stopped, run = "early-stopped", run.noting(f"stopped by a callback after step {run.step}")
    except KeyboardInterrupt:
        stopped, run = "interrupted", run.noting(f"interrupted after step {run.step}")

    if store is not None:
        store.save(run)
    fitted = inference.fitted(run.state) if run.best is None else run.best
    return FitResult(fitted, run.state, run.history(), run.step, run.verdict or stopped or "", run.notes)


# --- compiled parts: module-level, so that fits of the same shape share them ----------------------


@functools.partial(jax.jit, static_argnums=0)
def _init(inference, model, data, key):
    """The method's first state, without weak types (they would compile the first chunk twice)."""
    state = inference.init(model, data, key=key)
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.result_type(leaf)), state)


@functools.partial(jax.jit, static_argnums=0, static_argnames="chunk")
def _run_chunk(inference, state, data, key, attempt, start, count, indices, *, chunk):
    """`count` steps from `start`: the new state, each info as `(chunk,)`, whether the state is finite.

    The trip count is an argument, so that a shorter last chunk needs no program of its own.
    """
    step = jax.jit(inference.step)  # traced once for the shapes and the loop
    key = jax.random.fold_in(key, attempt)

    def advance(i, state):
        batch = data if indices is None else jax.tree.map(lambda a: a[indices[i]], data)
        return step(state, batch, key=jax.random.fold_in(key, start + i))

    def body(i, carry):
        state, infos = carry
        state, info = advance(i, state)
        return state, jax.tree.map(lambda values, value: values.at[i].set(value), infos, info)

    _, info = jax.eval_shape(advance, 0, state)
    infos = jax.tree.map(lambda a: jnp.zeros((chunk, *a.shape), a.dtype), info)
    state, infos = jax.lax.fori_loop(0, count, body, (state, infos))
    return state, infos, _all_finite(state)


@jax.jit
def _all_finite(state):
    leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.all(jnp.asarray([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


@jax.jit
def _log_likelihood(fitted, x, y, key):
    """`sum_n log mean_s p(y_n | path s)` over blocks of rows, `(blocks, rows, ...)`."""

    def block(rows):
        x, y, key = rows
        path_key, likelihood_key = jax.random.split(key)

        def member(fitted):
            moments = fitted.posterior.propagate(fitted.model, x, _VALIDATION_PATHS, key=path_key)
            return fitted.model.data_term(
                moments, y, bound="log_expected", num_paths=_VALIDATION_PATHS, key=likelihood_key
            )

        terms = jax.lax.map(member, fitted.members())
        return jnp.sum(jax.nn.logsumexp(terms, axis=0) - jnp.log(len(terms)))

    return jnp.sum(jax.lax.map(block, (x, y, jax.random.split(key, len(x)))))


# --- between chunks -------------------------------------------------------------------------------


def _release_programs() -> None:
    """Forget compiled programs before the process has more memory maps than Linux allows it (65,530).

    A fit of a new shape adds up to 2,000 of them, and at the limit the compiler crashes.
    """
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MOST_MAPS:
        jax.clear_caches()
        gc.collect()


@functools.lru_cache(maxsize=2)
def _epoch_order(rows: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(rows).astype(np.int32)


def _batch_indices(rows: int, size: int, seed: int, chunk: int, start: int) -> np.ndarray | None:
    """Row numbers of `chunk` minibatches from step `start`; None where a batch is all the data.

    Every epoch has its own order, cut into consecutive batches; a last partial batch is dropped.
    """
    if size >= rows:
        return None
    per_epoch = rows // size
    places = (divmod(step, per_epoch) for step in range(start, start + chunk))
    return np.stack([_epoch_order(rows, seed, e)[i * size : (i + 1) * size] for e, i in places])


def _scorer(validation: Batch, key) -> Callable[[Fitted], float]:
    """The negative log predictive density per row; the same noise every time, so that scores compare."""
    x, y = map(np.asarray, validation)
    rows = min(_VALIDATION_ROWS, len(x))
    padding = -len(x) % rows
    observed = int(np.isfinite(y).any(axis=1).sum())
    x = np.concatenate([x, np.repeat(x[:1], padding, axis=0)])
    y = np.concatenate([y, np.full((padding, y.shape[1]), np.nan, y.dtype)])
    blocks = [jnp.asarray(a.reshape(-1, rows, a.shape[1])) for a in (x, y)]
    return lambda fitted: -float(_log_likelihood(fitted, *blocks, key)) / observed


def _recovering(run: Run, losses: np.ndarray, failures: int) -> Run:
    """The run as it goes on after a chunk with non-finite numbers: from its start, or not at all."""
    bad = np.flatnonzero(~np.isfinite(losses))
    place = f"loss at step {run.step + bad[0] + 1}" if len(bad) else f"state by step {run.step + len(losses)}"
    if failures <= _MAX_RECOVERIES:
        note = f"non-finite {place}: went back to step {run.step}, step size x {_STEP_SHRINK}"
        return run._replace(recoveries=run.recoveries + 1).noting(note)
    what = (
        f"the state of step {run.step} is returned" if run.step else "the untrained initial state is returned"
    )
    return run._replace(verdict="diverged").noting(
        f"non-finite {place}: gave up after {_MAX_RECOVERIES} recoveries, {what}"
    )


def _extended(run: Run, state: State, infos, inference: Inference, score, clock: float) -> Run:
    """The run after a good chunk, validated."""
    step = run.step + len(infos["loss"])
    record = {**infos, "chunk_step": np.array([step]), "chunk_loss": np.array([infos["loss"].mean()])}
    best = run.best
    if score is not None:
        candidate = inference.fitted(state)
        nll = score(candidate)
        earlier = run.series("validation_nll") if run.chunks else np.array([])
        if best is None or nll < np.min(earlier, initial=np.inf, where=np.isfinite(earlier)):
            best = candidate
        record |= {"validation_step": np.array([step]), "validation_nll": np.array([nll])}
    record["seconds"] = np.array([time.perf_counter() - clock])
    return run._replace(state=state, step=step, best=best, chunks=(*run.chunks, record))


def _verdict(run: Run, steps: int, patience: int | None, plateau: int | None) -> str | None:
    """Why the run should end now, or None."""
    if run.step >= steps:
        return "finished"
    if patience is not None and _stale(run.series("validation_nll")) >= patience:
        return "early-stopped"
    if plateau is not None and run.best is None:
        smooth, losses = [], run.series("chunk_loss")
        for loss in losses:
            smooth.append(loss if not smooth else smooth[-1] + _PLATEAU_WEIGHT * (loss - smooth[-1]))
        if _stale(smooth, _PLATEAU_TOLERANCE) >= plateau:
            return "plateau"
    return None


def _stale(values: Iterable[float], tolerance: float = 0.0) -> int:
    """How many values at the end did not fall below the best before them by more than `tolerance`."""
    best, stale = np.inf, 0
    for value in values:
        best, stale = (value, 0) if value < best - tolerance else (best, stale + 1)
    return stale


def _check(data: Batch, validation: Batch | None, **counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1.")
    for name, batch in (("data", data), ("validation", validation)):
        if batch is not None and not (len(batch.x) == len(batch.y) > 0):
            raise ValueError(
                f"{name} has {len(batch.x)} rows of x and {len(batch.y)} of y; give equally many, not 0."
            )
    if validation is not None and not np.isfinite(validation.y).any():
        raise ValueError("validation has no observed target: every y is NaN. Pass rows with targets.")
