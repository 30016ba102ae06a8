"""Small multi-layer perceptrons for generators and critics, applied to batches of rows.

`eqx.nn.MLP` works on single rows, has no learned slopes and other initial weights; this one is the paper's.
"""

import itertools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

Activation = Literal["tanh", "sigmoid", "prelu", "relu", "silu", "gelu", "softplus", "sine"]
ACTIVATIONS: dict[str, Callable] = {
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "prelu": jax.nn.leaky_relu,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "softplus": jax.nn.softplus,
    "sine": jnp.sin,
}


class MLP(eqx.Module):
    """`depth` hidden layers of `width` units. `slopes` are PReLU's learned negative slopes, one per layer."""

    weights: tuple[Float[Array, "_i _o"], ...]
    biases: tuple[Float[Array, " _o"], ...]
    slopes: Float[Array, " h"] | None
    activation: str = eqx.field(static=True)

    def __call__(self, x: Float[Array, "k i"]) -> Float[Array, "k o"]:
        """The network's output for every row."""
        for index, (weight, bias) in enumerate(zip(self.weights[:-1], self.biases[:-1], strict=True)):
            x = x @ weight + bias
            if self.slopes is None:
                x = ACTIVATIONS[self.activation](x)
            else:
                x = jnp.where(x > 0, x, self.slopes[index] * x)
        return x @ self.weights[-1] + self.biases[-1]


class NetworkShape(NamedTuple):
    """What is left to choose once inputs and outputs are known."""

    width: int
    depth: int
    activation: Activation


def mlp(
    inputs: int,
    outputs: int,
    *,
    width: int,
    depth: int,
    activation: Activation,
    output_scale: float = 1.0,
    dtype: DTypeLike,
    key: PRNGKeyArray,
) -> MLP:
    """A perceptron with Glorot weights; the last layer's are multiplied by `output_scale`.

    All weights are one draw: what takes time to compile is the generator of random numbers.
    """
    sizes = [inputs, *[width] * depth, outputs]
    shapes = list(itertools.pairwise(sizes))
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    draws = jnp.split(jax.random.uniform(key, (int(ends[-1]),), dtype, -1.0, 1.0), ends[:-1])
    bounds = [math.sqrt(6.0 / sum(shape)) for shape in shapes]
    bounds[-1] *= output_scale
    weights = [b * draw.reshape(shape) for b, draw, shape in zip(bounds, draws, shapes, strict=True)]
    biases = tuple(jnp.zeros(size, dtype) for size in sizes[1:])
    slopes = jnp.full(depth, 0.25, dtype) if activation == "prelu" else None
    return MLP(tuple(weights), biases, slopes, activation)
