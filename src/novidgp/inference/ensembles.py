"""Mixtures of several models: snapshots kept during training, and several starts.

The hyper-parameters are estimated, and an estimate knows nothing of its error: on small data the bound goes
on rising long after test densities have begun to fall, and where the hyper-parameters settle depends on where
they start. A mixture over snapshots or over starts is a simple stand-in for a posterior over
hyper-parameters.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from novidgp.inference.base import Inference, Method, State
from novidgp.model.dgp import Count
from novidgp.numerics.sharding import Layout
from novidgp.posteriors.fitted import Fitted

SHARES = (0.4, 0.6, 0.8)
"""When a snapshot is taken, as shares of the steps. The last model is the last member of the mixture."""
SETTLED = 300
"""No snapshot is taken before this step: those models have not converged."""


class SnapshotState(NamedTuple):
    """A method's state, its snapshots as one row of numbers each, and its steps."""

    state: State
    snapshots: Float[Array, "members size"]
    count: Int[Array, ""]


def with_snapshots(inference: Inference, steps: Count) -> Inference:
    """`inference`, predicting with its snapshots as well. They cost memory and no time.

    Until a snapshot is taken the current model stands in its place, so that all members are models to predict
    with whenever a run ends.
    """
    numpy = jnp if isinstance(steps, Tracer) else np
    times = numpy.maximum(numpy.round(np.asarray(SHARES, np.float32) * steps), SETTLED).astype(np.int32)

    def init(model, batch, *, key):
        state = inference.init(model, batch, key=key)
        row, _ = ravel_pytree(inference.fitted(state))
        return SnapshotState(state, jnp.zeros((len(times), row.size), row.dtype), jnp.zeros((), jnp.int32))

    def step(state, batch, *, key):
        inner, info = inference.step(state.state, batch, key=key)
        due = state.count + 1 == times
        snapshots = jax.lax.cond(
            jnp.any(due),
            lambda: jnp.where(due[:, None], ravel_pytree(inference.fitted(inner))[0], state.snapshots),
            lambda: state.snapshots,
        )
        return SnapshotState(inner, snapshots, state.count + 1), info

    def fitted(state):
        last = inference.fitted(state.state)
        leaves, structure = jax.tree.flatten(last)
        snapshots, taken = _read(state.snapshots), _read(state.count) >= times
        ends = np.cumsum([leaf.size for leaf in leaves])
        members = []
        for leaf, end in zip(leaves, ends, strict=True):
            rows = snapshots[:, end - leaf.size : end].reshape(len(times), *leaf.shape)
            where = jnp.where if isinstance(rows, jax.Array) else np.where
            members.append(where(taken.reshape(-1, *[1] * leaf.ndim), rows, _read(leaf)))
        return last._replace(ensemble=jax.tree.unflatten(structure, members))

    def diagnose(state, batch, *, key):
        assert inference.diagnose is not None
        return inference.diagnose(state.state, batch, key=key)

    return Inference(init, step, fitted, None if inference.diagnose is None else diagnose)


def _read(array: Any) -> Any:
    """An array on the host, if its values are known: slicing it there compiles nothing."""
    return array if isinstance(array, Tracer) else np.asarray(array)


def with_starts(inference: Inference, layout: Layout | None = None) -> Inference:
    """`inference` for models stacked on a leading axis (`numerics.trees.stacked` makes such a stack).

    A step advances all starts on the same batch, one after another, each with its own noise; a `layout` may
    share them among devices. Scalars are means over the starts. The fitted model is one mixture.
    """

    def each(function, trees, batch, key):
        keys = jax.random.split(key, len(jax.tree.leaves(trees)[0]))

        def in_turn(trees, keys, batch):
            return jax.lax.map(lambda pair: function(pair[0], batch, key=pair[1]), (trees, keys))

        return (in_turn if layout is None else layout.over_starts(in_turn))(trees, keys, batch)

    def average(infos):
        return jax.tree.map(lambda values: jnp.mean(values, axis=0), infos)

    def init(model, batch, *, key):
        return each(inference.init, model, batch, key)

    def step(state, batch, *, key):
        states, infos = each(inference.step, state, batch, key)
        return states, average(infos)

    def fitted(state):
        grid = jax.lax.map(lambda state: inference.fitted(state).members(), state)
        members = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), grid)
        model, posterior, _ = jax.tree.map(lambda a: a[-1], members)
        return Fitted(model, posterior, jax.tree.map(lambda a: a[:-1], members))

    def diagnose(state, batch, *, key):
        assert inference.diagnose is not None
        return average(each(inference.diagnose, state, batch, key))

    return Inference(init, step, fitted, None if inference.diagnose is None else diagnose)


class Numbers(NamedTuple):
    """The numbers of a run. They are arguments of its compiled step, so that other values compile nothing."""

    num_data: Count
    steps: Count
    step_scale: float | Float[Array, ""] = 1.0


class Plan(NamedTuple):
    """A method for one training run. Hashed by value: it is the static argument of the compiled step."""

    method: Method
    starts: int = 1
    snapshots: bool = False
    layout: Layout | None = None
    """How the run lies on several devices; None is one device."""

    def inference(self, numbers: Numbers) -> Inference:
        """The method's algorithm, with snapshots and several starts where the plan has them."""
        num_data, steps, step_scale = numbers
        inference = self.method.algorithm(num_data, steps, step_scale=step_scale)
        inference = with_snapshots(inference, steps) if self.snapshots else inference
        return inference if self.starts == 1 else with_starts(inference, self.layout)


def make_plan(
    method: Method, num_data: int, steps: int, *, starts: int = 1, layout: Layout | None = None
) -> Plan:
    """The plan of a run over `num_data` rows. With several `starts` its models are stacked on a leading
    axis."""
    return Plan(method, starts, method.keeps_snapshots(num_data), layout)


def prepare(method: Method, num_data: int, steps: int, *, starts: int = 1) -> Inference:
    """The functions of a run of `steps` steps over `num_data` rows."""
    return make_plan(method, num_data, steps, starts=starts).inference(Numbers(num_data, steps))
