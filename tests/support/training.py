"""What tests of training share: a short fit, and methods whose whole state is a number.

Sub-processes import this module too.
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from novidgp.inference import DSVI, Inference, Method
from novidgp.posteriors.fitted import Fitted
from novidgp.training import loop
from support.small import ROWS, small_batch, small_model

MODEL, DATA = small_model(), small_batch()
METHOD = DSVI(num_paths=2)


def fit(method=METHOD, **options) -> loop.FitResult:
    """30 steps in chunks of ten on all rows, unless the options say otherwise. Other counts compile anew."""
    settings = {"model": MODEL, "data": DATA, "steps": 30, "key": jax.random.key(3), "chunk": 10} | options
    return loop.fit(settings.pop("model"), method, settings.pop("data"), **settings)


def assert_same(first, second) -> None:
    jax.tree.map(np.testing.assert_array_equal, first, second)


def toy(step, start=0.0) -> Inference:
    """A method whose whole state is a number and the count of steps; `step(w, t, key) -> (w, loss)`."""

    def init(model, batch, *, key):
        return {"w": jnp.asarray(start, jnp.float32), "t": jnp.asarray(0, jnp.int32)}

    def advance(state, batch, *, key):
        w, loss = step(state["w"], state["t"], key)
        return {"w": w, "t": state["t"] + 1}, {"loss": loss}

    return Inference(init, advance, lambda state: Fitted(state["w"], state["t"]))


@dataclasses.dataclass(frozen=True)
class Scaled(Method):
    """A toy that depends on the step size: `make(step_scale)`."""

    name: ClassVar[str] = "scaled"
    make: Callable[[float], Inference]

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        return self.make(step_scale)


def _slow(w, t, key):
    for index in range(3000):
        w = jnp.sin(w * index) @ jnp.ones((2, 2)) if index else jnp.full((2, 2), w)
    print("traced", flush=True)
    return w[0, 0], w[0, 0]


DESCENT = toy(lambda w, t, key: (w + 1.0, -w))
SLOW_TO_COMPILE = toy(_slow)
"""It says when it has been traced."""

__all__ = [
    "DATA",
    "DESCENT",
    "METHOD",
    "MODEL",
    "ROWS",
    "SLOW_TO_COMPILE",
    "Scaled",
    "assert_same",
    "fit",
    "toy",
]
