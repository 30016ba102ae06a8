"""A guard against running out of memory maps."""

import gc
from pathlib import Path

import jax

_MAPS = Path("/proc/self/maps")
_MOST_MAPS = 30_000


def release_programs() -> None:
    """Forget compiled programs before the process has more memory maps than Linux allows it (65,530).

    A fit of a new shape adds up to 2,000 of them, and at the limit the compiler crashes.
    """
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MOST_MAPS:
        jax.clear_caches()
        gc.collect()
