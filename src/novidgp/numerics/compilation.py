"""How programs are compiled, and JAX's persistent compilation cache in the user's cache directory.

The second fit of a shape starts in seconds, in a new process too. `NOVIDGP_CACHE=off` switches it off and
`NOVIDGP_CACHE=PATH` moves it. A cache directory that JAX was given already is left alone, and where the
directory cannot be written nothing is.
"""

import contextlib
import functools
import gc
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax.stages import Lowered

_LOCK_FILE = "novidgp.lock"
_MOST_SECONDS, _POLL_SECONDS = 120.0, 0.1
VARIABLE = "NOVIDGP_CACHE"
_LEAST_VARIABLE = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
_LEAST_SECONDS = 0.05
"""Programs that take less to compile are not kept. JAX's own limit of a second would leave most of a fit's
programs out, which take two seconds together."""
COMPILER_OPTIONS: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}
"""For every `jit` of the library. On a CPU, XLA's newer emitters build an LLVM module for each kernel: with
them a training step takes twice as long to compile, and it runs no faster."""
WIDE_VECTORS: dict[str, Any] = {"xla_cpu_prefer_vector_width": 512}
"""For programs that predict: a fifth faster where a processor has such vectors. A training step hardly is."""
RUN_ONCE: dict[str, Any] = COMPILER_OPTIONS | {"xla_backend_optimization_level": 0}
"""For programs that run once in a fit and have little to compute: a third of the time to compile."""


def cache_directory() -> Path | None:
    """Where compiled programs are kept; None if they are not."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted.lower() in ("off", "0", "no", "false"):
        return None
    if wanted:
        return Path(wanted).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("novidgp") / "jax"


@functools.cache
def use_compilation_cache() -> None:
    """Keep compiled programs on disk from now on. Once per process."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    directory = cache_directory()
    if directory is None or getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if not os.access(directory, os.W_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(directory))
    if _LEAST_VARIABLE not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _LEAST_SECONDS)
    compilation_cache.reset_cache()  # it may have been looked for, and not found, before


def compile_once(lowered: "Lowered", name: str) -> None:
    """Compile a program, or read it from the cache once another process that compiles it has done so.

    `name` tells programs apart. Processes that start together (`n_jobs=2`) would all compile the same one.
    """
    import jax

    directory = getattr(jax.config, "jax_compilation_cache_dir", None)
    with contextlib.nullcontext() if directory is None else _turn(Path(directory), name):
        lowered.compile()


@contextlib.contextmanager
def _turn(directory: Path, name: str) -> Iterator[None]:
    """A block that one process enters at a time: a lock on the name's own byte of one file.

    A lock ends with its process, but a process that was stopped (Ctrl-Z) keeps it: nobody waits for more than
    two minutes, and where there are no locks not at all.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            file = stack.enter_context((directory / _LOCK_FILE).open("ab"))
            end = time.monotonic() + _MOST_SECONDS
            while time.monotonic() < end:
                with contextlib.suppress(BlockingIOError, PermissionError):  # another process has it
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, zlib.crc32(name.encode()))
                    break
                time.sleep(_POLL_SECONDS)
        yield


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """A short block in which Python does not look for garbage in cycles.

    Imports and traces make some hundred thousand objects that stay. To look through all of them again and
    again takes a twelfth of a first fit.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def precision(dtype: str) -> AbstractContextManager:
    """JAX's precision for this thread and this block only: no global switch."""
    import jax

    return jax.enable_x64(dtype == "float64")
