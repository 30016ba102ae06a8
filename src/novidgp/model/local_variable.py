"""A local latent variable: one draw per row, appended to the inputs of the first GP layer.

A GP sees `(x_n, w_n)` with `w_n ~ N(0, I)`, so that `p(y | x)` can have several modes or be skewed: what the
inputs do not tell, `w` decides (Salimbeni et al. 2019). The prior is the model's; a proposal `q(w | x, y)` is
the business of the method that learns one.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.numerics.random import normal


class LocalVariable(eqx.Module):
    """`h -> (h, w)`, `w ~ N(0, I)` of `width` columns."""

    width: int = eqx.field(static=True)

    def sample(self, count: int, rows: int, dtype, *, key: PRNGKeyArray) -> Float[Array, "k n w"]:
        """`count` draws from the prior for every row."""
        return normal(key, (count, rows, self.width), dtype)

    def log_prior(self, w: Float[Array, "*k n w"]) -> Float[Array, "*k n"]:
        """`log N(w; 0, I)` of every row."""
        return -0.5 * jnp.sum(w * w + jnp.log(2.0 * jnp.pi), axis=-1)

    def append(self, h: Float[Array, "n d"], w: Float[Array, "k n w"]) -> Float[Array, "k n dw"]:
        """The inputs of the first GP layer: each draw has its own."""
        return jnp.concatenate([jnp.broadcast_to(h, (len(w), *h.shape)), w], axis=-1)
