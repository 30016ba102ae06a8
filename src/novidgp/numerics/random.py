"""Random numbers: named streams of one key, and fast normal draws.

Monte-Carlo paths need hundreds of thousands of normals per step, of no cryptographic merit. `normal` hashes a
counter twice with the key's words (the `lowbias32` finaliser) and passes the uniform through the inverse error
function; XLA fuses all of it into one loop, which costs a tenth of threefry on a CPU. Keys stay ordinary JAX keys.
"""

import math
import zlib

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray


class Streams:
    """Independent random streams of one root key, by name: for JAX as keys, for NumPy as generators.

    Whoever makes the streams of a key uses it for nothing else. A name stands for one purpose.
    """

    def __init__(self, root: PRNGKeyArray):
        self._root = root
        with jax.ensure_compile_time_eval():
            self._words = tuple(int(word) for word in np.ravel(jax.random.key_data(root)))

    def key(self, name: str, index: int = 0) -> PRNGKeyArray:
        """The key of a stream; of one of its parts, where it has several."""
        with jax.ensure_compile_time_eval():
            return jax.random.fold_in(jax.random.fold_in(self._root, _number(name)), index)

    def numpy(self, name: str, index: int = 0) -> np.random.Generator:
        """NumPy's generator of a stream."""
        return np.random.default_rng([*self._words, _number(name), index])

    def integer(self, name: str, index: int = 0) -> int:
        """A seed from a stream, below 2^31, for libraries that take one."""
        return int(self.numpy(name, index).integers(2**31 - 1))


def _number(name: str) -> int:
    return zlib.crc32(name.encode())


def _scramble(bits: Array) -> Array:
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
    return bits ^ (bits >> 16)


def normal(key: PRNGKeyArray, shape: tuple[int, ...], dtype) -> Array:
    """Independent standard normals of `shape`; float64 draws come from `jax.random`."""
    if jnp.dtype(dtype) != jnp.float32:
        return jax.random.normal(key, shape, dtype)
    words = jax.random.bits(key, (2,), jnp.uint32)
    counter = jax.lax.iota(jnp.uint32, math.prod(shape))
    bits = _scramble(_scramble(counter ^ words[0]) + words[1])
    uniform = (bits >> 9).astype(jnp.float32) * 2.0**-23 + 2.0**-24  # never 0 or 1
    draws = math.sqrt(2.0) * jax.lax.erf_inv(2.0 * uniform - 1.0)
    return draws.reshape(shape)
