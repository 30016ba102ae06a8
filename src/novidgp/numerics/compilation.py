"""How programs are compiled, and JAX's persistent compilation cache in the user's cache directory.

The second fit of a shape starts in seconds, in a new process too. `NOVIDGP_CACHE=off` switches it off and
`NOVIDGP_CACHE=PATH` moves it. A cache directory that JAX was given already is left alone, and where the
directory cannot be written nothing is.
"""

import functools
import os
from contextlib import AbstractContextManager
from pathlib import Path

VARIABLE = "NOVIDGP_CACHE"
COMPILER_OPTIONS = {"xla_cpu_use_fusion_emitters": False}
"""For every `jit` of the library. On a CPU, XLA's newer emitters build an LLVM module for each kernel: with
them a training step takes twice as long to compile, and it runs no faster."""


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
    compilation_cache.reset_cache()  # it may have been looked for, and not found, before


def precision(dtype: str) -> AbstractContextManager:
    """JAX's precision for this thread and this block only: no global switch."""
    import jax

    return jax.enable_x64(dtype == "float64")
