"""How the arrays of a training run lie on several devices, in one process or in many.

The rows of a batch are shared by the devices and everything else is on all of them: XLA then makes each
device compute with its own rows and adds up the sums over rows. Several starts need no sums: where every
device can have equally many, the starts are shared instead.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from novidgp.checks import check_integer

Devices = None | int | Literal["all"]
"""How many devices of every process take part: one, so many, or all."""


class Layout(NamedTuple):
    """A line of devices, and what they share: `rows` or `starts`. Hashed by value."""

    mesh: Mesh
    shared: Literal["rows", "starts"]

    def over_starts(self, function: Any) -> Any:
        """A function of `(stacked trees, keys, shared tree)`, with each device at its own starts."""
        if self.shared != "starts":
            return function
        one, every = PartitionSpec("starts"), PartitionSpec()
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=(one, one, every), out_specs=one, check_vma=False
        )


def replicated(layout: Layout | None, tree: Any) -> Any:
    """A tree of arrays that every process has, on all devices of a layout; as it is where there is none."""
    if layout is None:
        return tree
    sharding = NamedSharding(layout.mesh, PartitionSpec())

    def place(array: Any) -> Any:
        if isinstance(array, jax.ShapeDtypeStruct) or getattr(array, "sharding", None) == sharding:
            return array
        if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            words = place(jax.random.key_data(array))
            return jax.random.wrap_key_data(words, impl=jax.random.key_impl(array))
        values = np.asarray(array)
        return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])

    return jax.tree.map(place, tree)


def constrained(layout: Layout | None, tree: Any, axis: str | None = None) -> Any:
    """Within a program: arrays whose leading axis the devices share, if `axis` is what they share; else on
    all devices. As they are without a layout."""
    if layout is None:
        return tree
    spec = PartitionSpec(axis) if axis == layout.shared else PartitionSpec()
    return jax.lax.with_sharding_constraint(tree, NamedSharding(layout.mesh, spec))


_ROWS_ARE_SHARED: ContextVar[bool] = ContextVar("rows are shared", default=False)


@contextlib.contextmanager
def traced_for(layout: Layout | None) -> Iterator[None]:
    """A block in which a program for a layout is traced."""
    token = _ROWS_ARE_SHARED.set(layout is not None and layout.shared == "rows")
    try:
        yield
    finally:
        _ROWS_ARE_SHARED.reset(token)


def over_rows(function: Callable[[Array], Array], h: Float[Array, "*k n d"]) -> Float[Array, "q *k n m"]:
    """A function of rows `(n, d)`, with values `(q, n, m)`, at the rows of all samples.

    All of them at once make the largest products. But samples and rows as one axis would move rows that
    devices share from one to another, so that there it is one sample after another.
    """
    if h.ndim == 2:
        return function(h)
    if _ROWS_ARE_SHARED.get():
        return jax.vmap(function, out_axes=1)(h)
    values = function(h.reshape(-1, h.shape[-1]))
    return values.reshape(len(values), *h.shape[:-1], values.shape[-1])


def make_layout(devices: Devices, starts: int = 1) -> Layout | None:
    """The layout for so many devices of every process; None where there is only one device."""
    check_devices(devices)
    here = len(jax.local_devices())
    wanted = here if devices == "all" else 1 if devices is None else int(devices)
    if wanted > here:
        raise ValueError(
            f"devices={devices}, but JAX sees {here} ({jax.local_devices()[0].platform}). Pass at most "
            f"{here}; of a CPU, the environment variable JAX_NUM_CPU_DEVICES={wanted}, set before Python "
            f"starts, makes so many."
        )
    if wanted * jax.process_count() == 1:
        return None
    chosen: list[Any] = []
    for process in range(jax.process_count()):
        own = [device for device in jax.devices() if device.process_index == process]
        chosen += own[:wanted]
    shared = "starts" if starts > 1 and starts % len(chosen) == 0 else "rows"
    return Layout(Mesh(np.array(chosen), (shared,), axis_types=(AxisType.Auto,)), shared)


def check_devices(devices: Any) -> None:
    """Refuse what is not None, `all` or a number of devices."""
    if isinstance(devices, str):
        if devices != "all":
            raise ValueError(f"devices={devices!r} must be None, a number of devices, or 'all'.")
    else:
        check_integer("devices", devices, optional=True)


def local(tree: Any) -> Any:
    """This process's own copy of arrays that are on all devices."""
    return jax.tree.map(
        lambda a: a.addressable_data(0) if isinstance(a, jax.Array) and len(a.devices()) > 1 else a, tree
    )
