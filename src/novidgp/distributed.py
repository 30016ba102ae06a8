"""One fit on several processes, on one machine or on many: JAX's own runtime, started by what clusters have.

    import novidgp

    novidgp.distributed.start()      # in every process, before anything else that uses JAX
    model = novidgp.DGPRegressor().fit(X, y)

Every process runs the same program on the same rows and has the same model at the end; each takes its share
of every step. `srun`, `mpirun` and Kubernetes tell JAX who is who, `novidgp launch` does it on one machine.
What decides a run (a signal, a callback) is decided by all processes together, between calls of compiled
programs: a process that stopped alone would leave the others waiting.
"""

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

PROCESSES, PROCESS, COORDINATOR = "NOVIDGP_PROCESSES", "NOVIDGP_PROCESS", "JAX_COORDINATOR_ADDRESS"
"""What `novidgp launch` tells its processes by the environment."""
_SIGNS = (PROCESSES, "SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_SIZE", "KUBERNETES_SERVICE_HOST")
_HEARTBEAT_SECONDS = 20
"""A process that was not heard of for so long has ended."""
_LOST_WORDS = ("Gloo", "Connection closed by peer", "Connection reset by peer", "coordination")
_joined = False


class ProcessLost(RuntimeError):
    """Another process of the job has ended, so that this one cannot go on."""


def start(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    timeout: int = 300,
) -> None:
    """Join the other processes of a job; all of them must call it. A process that is alone does nothing.

    Without arguments JAX asks the environment: Slurm (`srun`), Open MPI before 5 (`mpirun`), Kubernetes,
    `novidgp launch`. Elsewhere name the `coordinator` ("host:port" of process 0), the number of `processes`
    and the number of this `process`, counted from 0. Processes that are not there within `timeout` seconds
    are an error.
    """
    global _joined
    given = {"coordinator": coordinator, "processes": processes, "process": process}
    missing = [name for name, value in given.items() if value is None]
    if missing and len(missing) < len(given):
        raise ValueError(f"{' and '.join(missing)} must be given as well: pass all three, or none.")
    if missing and PROCESSES in os.environ:
        coordinator = os.environ[COORDINATOR]
        processes, process = int(os.environ[PROCESSES]), int(os.environ[PROCESS])
    elif missing and not any(sign in os.environ for sign in _SIGNS):
        return
    if processes == 1 or _joined:
        return
    import jax

    _let_threads_wait()
    # Without this JAX aborts the other processes before they can say which one has ended.
    jax.config.update("jax_enable_recoverability", True)
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            cluster_detection_method=None if coordinator is None else "deactivate",
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=_HEARTBEAT_SECONDS,
        )
    except RuntimeError as error:
        raise RuntimeError(
            f"The processes of this job did not find each other ({str(error).splitlines()[0]}). Call "
            f"novidgp.distributed.start() in every process before anything that uses JAX; look at the "
            f"coordinator's address and port, and unset http_proxy and https_proxy."
        ) from error
    _joined = jax.process_count() > 1
    if _joined:
        atexit.register(_leave)


def _let_threads_wait() -> None:
    """Threads of this process that wake up wait for their turn.

    A sum over processes needs two threads: one computes, one listens to the network. The kernel runs the
    second as soon as numbers arrive; gloo then polls, at the cost of a time slice, for a lock that the first
    one holds. On a core for each process this made a sum take 3.9 ms instead of 0.1.
    """
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def is_first() -> bool:
    """Whether this process writes files and shows progress: process 0, or the only one."""
    if not _joined:
        return True
    import jax

    return jax.process_index() == 0


def several() -> bool:
    """Whether this process is one of several."""
    return _joined


def meet() -> None:
    """Wait until all processes are here, as long as all are alive. A collective would give up after 30
    seconds, and one process may compile much longer than another."""
    if _joined:
        gone = _gone()
        if gone:
            raise ProcessLost(_said(gone))


def anywhere(flag: bool) -> bool:
    """Whether the flag is true in any process. All must ask."""
    return bool(_gathered(int(flag)).any()) if _joined else flag


def agree(what: str, value: int) -> None:
    """Refuse a value that is not the same in all processes, once all are here."""
    meet()
    if _joined and len(set(values := _gathered(value).tolist())) > 1:
        raise ValueError(
            f"{what} differs between processes: {values}. Give all of them the same arguments, and files "
            f"that all of them see."
        )


@contextlib.contextmanager
def losses_explained(checkpoint: Any) -> Iterator[None]:
    """A block in which the end of another process is `ProcessLost`, which says how to go on."""
    try:
        yield
    except Exception as error:
        lost = _joined and (isinstance(error, ProcessLost) or any(word in str(error) for word in _LOST_WORDS))
        if not lost:
            raise
        resume = (
            "There is no checkpoint: name one, and a run can be resumed."
            if checkpoint is None
            else f"Start all processes again with the same arguments, or another number of them: the run "
            f"goes on from {checkpoint}."
        )
        said = str(error) if isinstance(error, ProcessLost) else _said(_gone())
        raise ProcessLost(f"{said} {resume}") from error


def exit_now(code: int) -> None:
    """End this process at once, if it is one of several: an orderly exit would wait for the others."""
    if _joined:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _leave() -> None:
    """At the end of the program: together, and the coordinator last. After an error at once."""
    if hasattr(sys, "last_value"):
        exit_now(1)
    import jax

    with contextlib.suppress(Exception):
        _gone()
        if is_first():
            _gone()  # comes back when the others have left
    with contextlib.suppress(Exception):
        jax.distributed.shutdown()


def _gathered(value: int) -> Any:
    import numpy as np
    from jax.experimental import multihost_utils

    return np.ravel(multihost_utils.process_allgather(np.array([value])))


def _gone() -> list[int]:
    """The processes that have ended, once all that are alive have asked."""
    import jax
    from jax._src import distributed  # the only name of JAX's connection to the coordinator

    everybody = range(jax.process_count())
    client: Any = distributed.global_state.client
    return sorted(set(everybody) - set(client.get_live_nodes(list(everybody))))


def _said(gone: list[int]) -> str:
    who = f"Process {gone[0]}" if len(gone) == 1 else f"Processes {gone}" if gone else "Another process"
    return f"{who} of this job ended, so that this one cannot go on."
