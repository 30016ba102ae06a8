"""One training run: its compiled programs, and what stays the same while it goes on.

Steps run in compiled chunks. A step's minibatch and noise are functions of (key, step) alone, so a resumed
run repeats an uninterrupted one bit for bit.

The state is not donated. The guard needs the state from before the chunk, so a donated one would have to be
copied first, which costs the memory that donation saves; and an interrupt could find it deleted.
"""

import functools
import time
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from novidgp import distributed
from novidgp.inference.base import State
from novidgp.inference.ensembles import Numbers, Plan
from novidgp.model.dgp import DGP, Batch
from novidgp.numerics.compilation import COMPILER_OPTIONS, RUN_ONCE, collector_paused, compile_once
from novidgp.numerics.random import Streams, fast_key
from novidgp.numerics.sharding import constrained, local, replicated, traced_for
from novidgp.numerics.trees import on_device, shapes
from novidgp.posteriors.fitted import Fitted
from novidgp.training.checkpoint import digest
from novidgp.training.feeds import make_feed
from novidgp.training.interrupts import Pace, Signals, in_thread
from novidgp.training.rowfile import RowFile
from novidgp.training.run import STEP_SHRINK, Run, extended, recovering
from novidgp.training.validation import scorer

Aside = Callable[[Callable[[], Fitted]], Any]
"""What may be done while the steps are compiled, given a function that gives the model as the run starts."""


class Job:
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
        meanwhile: Iterable[Aside],
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
        self.meanwhile, self.aside = meanwhile, []

    def start(self, model: DGP | Fitted) -> Run:
        arguments = self.plan, *self._init_arguments(model)
        with collector_paused():
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
            with collector_paused():
                program = self._lower(run)
                start = functools.partial(self.fitted, run.state)
                self.aside = [in_thread(functools.partial(act, start)) for act in self.meanwhile]
                self._compile(program)
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

    def finish(self) -> None:
        """Wait for what runs beside the training."""
        for call in self.aside:
            self.signals.result(call)

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


@functools.partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _init(plan: Plan, numbers: Numbers, model: Any, data: Batch, key: PRNGKeyArray) -> State:
    """The method's first state, without weak types (they would compile the first chunk twice)."""
    with traced_for(plan.layout):
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

    with traced_for(layout):
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
