"""Small multi-layer perceptrons for generators and critics, applied to batches of rows.

`eqx.nn.MLP` works on single rows, has no learned slopes and other initial weights; this one is the paper's.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
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
    """A perceptron with Glorot weights; the last layer's are multiplied by `output_scale`."""
    sizes = [inputs, *[width] * depth, outputs]
    weights = []
    for layer_key, fan_in, fan_out in zip(
        jax.random.split(key, depth + 1), sizes[:-1], sizes[1:], strict=True
    ):
        bound = (6.0 / (fan_in + fan_out)) ** 0.5
        weights.append(jax.random.uniform(layer_key, (fan_in, fan_out), dtype, -bound, bound))
    weights[-1] = output_scale * weights[-1]
    biases = tuple(jnp.zeros(size, dtype) for size in sizes[1:])
    slopes = jnp.full(depth, 0.25, dtype) if activation == "prelu" else None
    return MLP(tuple(weights), biases, slopes, activation)
