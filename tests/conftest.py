"""What all tests have in common: quick compilation, a cache of compiled programs, no window for plots.

Nothing outside the repository is looked at, except a data directory that NOVIDGP_DATA names. In the rooms
that work on arrays jaxtyping and beartype check annotations at run time. What users may get wrong has
messages of its own.
"""

import ctypes
import functools
import gc
import os
import shutil
import sys
import tempfile

import jax
import pytest
from jaxtyping import install_import_hook
from threadpoolctl import threadpool_limits

_ROOMS = ("numerics", "model", "posteriors", "inference", "training", "local", "prediction")
install_import_hook(
    [f"novidgp.{room}" for room in _ROOMS],
    "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))",  # an int is a float
)

os.environ.setdefault("MPLBACKEND", "Agg")

_KEPT_CACHE = "NOVIDGP_TEST_CACHE"
_CACHE = "NOVIDGP_CACHE"
_ROWS = "NOVIDGP_ROWS"
_QUICK = "JAX_DISABLE_MOST_OPTIMIZATIONS"
_FLAGS = (
    "--xla_cpu_use_fusion_emitters=false",  # as in the library's own programs: half the time to compile
    "--xla_cpu_parallel_codegen_split_count=1",  # the other core has tests of its own
)
_MOST_BYTES = 1_300_000_000
_LEAST_SECONDS = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def pytest_configure(config):
    """Set up what workers and sub-processes inherit. The controller makes the cache and removes it."""
    if not hasattr(config, "workerinput"):
        kept = os.environ.get(_KEPT_CACHE)
        os.environ[_CACHE] = kept or tempfile.mkdtemp(prefix="novidgp-tests-")
        os.environ[_LEAST_SECONDS] = "0"
        os.environ[_QUICK] = "1"
        os.environ["XLA_FLAGS"] = " ".join((os.environ.get("XLA_FLAGS", ""), *_FLAGS)).strip()
        for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ[variable] = "1"  # threads that wait for one another take five times as long
        if not kept:
            config.add_cleanup(lambda: shutil.rmtree(os.environ[_CACHE], ignore_errors=True))
    else:  # JAX does not write its cache atomically, so workers do not share one
        os.environ[_CACHE] = os.path.join(os.environ[_CACHE], config.workerinput["workerid"])
    threadpool_limits(1)  # what this process has loaded already
    os.environ[_ROWS] = os.path.join(os.environ[_CACHE], "rows")
    jax.config.update("jax_compilation_cache_dir", os.environ[_CACHE])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", float(os.environ[_LEAST_SECONDS]))
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(autouse=True, scope="session")
def _short_local_layers():
    """A default fit to 200 rows or more trains a local layer too, for seconds in programs that are not
    optimised. Ten steps do for every test that does not ask for a number of its own."""
    from novidgp.estimators import checks

    few = functools.partial(checks.LocalSettings, steps=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "LocalSettings", few)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_rehearsals():
    """A fit compiles in a second thread what comes after it. Here the other core has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for room in ("arrays", "streaming"):
            patch.setattr(f"novidgp.estimators.{room}.rehearsal", lambda *_: ())
        yield


@pytest.fixture(autouse=True, scope="module")
def _free_module():
    """Forget a module's compiled programs: those of the whole suite do not fit into memory."""
    yield
    _free_programs()


@pytest.fixture(autouse=True)
def _free_early():
    """Forget them before the end of a module that has many. They come back from the cache."""
    yield
    if _resident_bytes() > _MOST_BYTES:
        _free_programs()


def _free_programs():
    jax.clear_caches()
    gc.collect()
    if sys.platform == "linux":  # glibc keeps what the compiler freed, a gigabyte and more
        ctypes.CDLL(None).malloc_trim(0)


def _resident_bytes():
    if sys.platform != "linux":
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Optimise the programs of tests marked `optimised`, of their fixtures and of their sub-processes."""
    if item.get_closest_marker("optimised") is None:
        return (yield)
    del os.environ[_QUICK]
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        return (yield)
    finally:
        os.environ[_QUICK] = "1"
        jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def x64():
    """Double precision, for this test only."""
    with jax.enable_x64(True):
        yield
