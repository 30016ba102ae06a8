"""Random numbers: named streams of one key, and fast normal draws.

Monte-Carlo paths need hundreds of thousands of normals per step, of no cryptographic merit. `normal` hashes a
counter twice with the key's words (the `lowbias32` finaliser) and passes the uniform through the inverse
error function; XLA fuses all of it into one loop, which costs a tenth of threefry on a CPU. Keys stay
ordinary JAX keys.
"""

import math
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl
from jax.typing import DTypeLike
from jaxtyping import Array, PRNGKeyArray

_THREEFRY = "threefry2x32"


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
            return folded(folded(self._root, _number(name)), index)

    def numpy(self, name: str, index: int = 0) -> np.random.Generator:
        """NumPy's generator of a stream."""
        return np.random.default_rng([*self._words, _number(name), index])

    def integer(self, name: str, index: int = 0) -> int:
        """A seed from a stream, below 2^31, for libraries that take one."""
        return int(self.numpy(name, index).integers(2**31 - 1))


def seed_key(seed: int) -> PRNGKeyArray:
    """`jax.random.key(seed)` of a seed below 2^32, without a program to compile."""
    return _threefry_key(np.array([0, seed], np.uint32))


def folded(key: PRNGKeyArray, number: int) -> PRNGKeyArray:
    """`jax.random.fold_in(key, number)`, which is `jax.random.split(key)[number]` too, of a key whose words
    are known; without a program to compile where it is one of threefry."""
    if str(jax.random.key_impl(key)) != _THREEFRY:
        return jax.random.fold_in(key, number)
    words = np.asarray(jax.random.key_data(key))
    return _threefry_key(_threefry(words, np.array([0, number], np.uint32)))


def _threefry_key(words: np.ndarray) -> PRNGKeyArray:
    return jax.random.wrap_key_data(jax.device_put(words), impl=_THREEFRY)


def _threefry(key: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Threefry-2x32 of 20 rounds (Salmon et al. 2011), which is how JAX folds a number into a key. On the
    host: JAX's own takes a tenth of a second to compile before anything else can begin."""
    schedule = [key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)]
    with np.errstate(over="ignore"):
        first, second = words[0] + schedule[0], words[1] + schedule[1]
        for group in range(5):
            for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
                first = first + second
                second = (second << np.uint32(turn) | second >> np.uint32(32 - turn)) ^ first
            first = first + schedule[(group + 1) % 3]
            second = second + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return np.array([first, second], np.uint32)


def _number(name: str) -> int:
    return zlib.crc32(name.encode())


# --- a fast generator for the noise of training steps ------------------------------------------------------


def _counter(shape: tuple[int, ...]) -> Array:
    """Numbers from 0 on, the last axis fastest. Every axis counts for itself, so that an array that is
    sharded along one of them is made where its shards are."""
    total, stride = jnp.zeros(shape, jnp.uint32), 1
    for axis in reversed(range(len(shape))):
        count = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        total = total + (count if stride == 1 else jnp.uint32(stride % 2**32) * count)
        stride *= shape[axis]
    return total


def _scramble(bits: Array) -> Array:
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
    return bits ^ (bits >> 16)


def _hash(first: Array, second: Array, counter: Array) -> Array:
    return _scramble(_scramble(counter ^ first) + second)


def _children(key: Array, counter: Array, purpose: int) -> Array:
    """Two words for every count. Different purposes have different words."""
    first, second = key[0], key[1] ^ jnp.uint32(purpose)
    return jnp.stack([_hash(first, second, counter), _hash(second, ~first, counter)], axis=-1)


def _seed(seed: Array) -> Array:
    return _children(jnp.zeros(2, jnp.uint32), jnp.asarray(seed).astype(jnp.uint32), 0x9E3779B9)


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return _children(key, _counter(shape), 0x85EBCA6B)


def _fold_in(key: Array, data: Any) -> Array:
    return _children(key, jnp.asarray(data).astype(jnp.uint32), 0xC2B2AE35)


def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    words = _children(key, _counter(shape), 0x27D4EB2F)
    if bit_width == 64:
        return words[..., 0].astype(jnp.uint64) << 32 | words[..., 1].astype(jnp.uint64)
    return words[..., 0].astype({8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[bit_width])


_FAST = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="lowbias32",
    tag="lb32",
)


def fast_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """A key of the same words whose splits and draws are cheap hashes (`lowbias32`) instead of threefry.

    A call of threefry adds ten kernels to a program and a tenth of a second to its compilation, and a
    training step has a dozen of them. The noise of Monte-Carlo paths does not need its quality.
    """
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=_FAST)


def normal(key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Independent standard normals of `shape`; float64 draws come from `jax.random`."""
    if jnp.dtype(dtype) != jnp.float32:
        return jax.random.normal(key, shape, dtype)
    words = jax.random.bits(key, (2,), jnp.uint32)
    bits = _scramble(_scramble(_counter(shape) ^ words[0]) + words[1])
    uniform = (bits >> 9).astype(jnp.float32) * 2.0**-23 + 2.0**-24  # never 0 or 1
    return math.sqrt(2.0) * jax.lax.erf_inv(2.0 * uniform - 1.0)
