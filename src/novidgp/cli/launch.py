"""`novidgp launch`: one command in several processes on this machine, which share the work of one fit."""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from novidgp.cli.console import report_errors

_PATIENCE_SECONDS = 60.0
"""How long the others may take to notice that a process has ended."""
_POLL_SECONDS = 0.2
_LOG_LINE = re.compile(r"[IWEF]\d{4} [\d:.]+ +\d+ \S+:\d+\] ")
"""A line of the log of JAX's runtime, by its level."""


@report_errors()
def launch_command(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="What to run: fit DATA --target y ...")
    ],
    processes: Annotated[int, typer.Option("--processes", "-n", min=1, help="How many processes.")] = 2,
) -> None:
    """Run `novidgp fit` in several processes on this machine that share its work.

    Each has its share of the processor's cores. On several machines use `srun novidgp fit --distributed`,
    `mpirun`, or `--coordinator` by hand.
    """
    if command[0] != "fit":
        raise ValueError(f"launch runs `fit`, not {command[0]!r}: novidgp launch -n 2 -- fit DATA --target y")
    address = _address()
    started = [_start(command, number, processes, address) for number in range(processes)]
    raise typer.Exit(_ended(started, command))


def _start(command: list[str], number: int, processes: int, address: str) -> Any:
    import os
    import subprocess
    import sys
    import threading

    from novidgp.distributed import COORDINATOR, PROCESS, PROCESSES

    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA's warnings are no news to a user
    environment |= {COORDINATOR: address, PROCESSES: str(processes), PROCESS: str(number)}
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    share = cores[number::processes] or cores

    def keep_to_share() -> None:
        if share:
            os.sched_setaffinity(0, share)

    arguments = [sys.executable, "-m", "novidgp", *command, "--distributed"]
    options: dict[str, Any] = {"env": environment, "preexec_fn": keep_to_share}
    if number == 0:
        return subprocess.Popen(arguments, **options)
    process = subprocess.Popen(arguments, **options, stderr=subprocess.PIPE, text=True, errors="replace")
    threading.Thread(target=_relay, args=(number, process.stderr)).start()
    return process


def _relay(number: int, lines: Any) -> None:
    """Show what a process other than the first says, with its number."""
    for line in spoken(lines):
        typer.echo(f"process {number}: {line}", err=True, nl=False)


def spoken(lines: Iterable[str]) -> Iterator[str]:
    """The lines that are meant for people. When process 0 ends, JAX's runtime aborts the others: the first of
    its lines has the time and the place, and its stack follows."""
    aborted = False
    for line in lines:
        logged = _LOG_LINE.match(line) is not None
        aborted = aborted or (logged and line.startswith("F"))
        if not (logged or aborted):
            yield line


def _ended(started: list[Any], command: list[str]) -> int:
    """Wait for all processes; if one fails, for the others no longer than they need to notice. The code."""
    import time

    try:
        while not any(process.poll() for process in started):
            if all(process.poll() == 0 for process in started):
                return 0
            time.sleep(_POLL_SECONDS)
        failed = [(number, process.poll()) for number, process in enumerate(started) if process.poll()]
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while any(process.poll() is None for process in started) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:  # the terminal has sent it to all of them
        for process in started:
            process.wait(_PATIENCE_SECONDS)
        return max(process.returncode for process in started)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
    number, code = failed[0]
    if code < 0:
        typer.echo(f"error: process {number} was killed by signal {-code}. {_resume(command)}", err=True)
    return code if code > 0 else 128 - code


def _resume(command: list[str]) -> str:
    if any(word.startswith("--checkpoint") for word in command):
        return "Run the same command again to resume from its checkpoint, with any number of processes."
    return "With --checkpoint FILE such a run can be resumed."


def _address() -> str:
    """An address of this machine on which nobody listens."""
    import socket

    with socket.socket() as free:
        free.bind(("localhost", 0))
        return f"localhost:{free.getsockname()[1]}"
