"""What all commands share: where text goes, and how errors are shown."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from novidgp import distributed
from novidgp.cli.interrupts import heed_termination, leave

if TYPE_CHECKING:
    from rich.console import Console

DEBUG_VARIABLE = "NOVIDGP_DEBUG"


def out(*, quiet: bool = False) -> "Console":
    """The console for results; a quiet one shows nothing."""
    from rich.console import Console

    return Console(highlight=False, quiet=quiet)


def err() -> "Console":
    """The console for errors, warnings and progress, so that a pipe gets results only."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def complain(message: str, *, style: str = "red", label: str = "error") -> None:
    """One coloured line on stderr."""
    from rich.text import Text

    line = " ".join(message.split())
    err().print(Text.assemble((f"{label}: ", f"bold {style}"), (line, style)))


def warn(message: str) -> None:
    """A yellow line on stderr."""
    complain(message, style="yellow", label="warning")


@contextmanager
def report_errors() -> Iterator[None]:
    """Show errors that a user can correct as one red line with exit code 1, and warnings as yellow lines.

    Ctrl-C and SIGTERM end a command with 130 and 143. With the environment variable NOVIDGP_DEBUG set, errors
    keep their traceback.
    """
    with warnings.catch_warnings(), heed_termination():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_, **__: warn(str(message))
        try:
            yield
        except KeyboardInterrupt:
            leave("interrupted")
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise typer.Exit(1) from None
        except (ValueError, TypeError, OSError, ImportError, distributed.ProcessLost) as error:
            if os.environ.get(DEBUG_VARIABLE):
                raise
            complain(str(error) or type(error).__name__)
            distributed.exit_now(1)
            raise typer.Exit(1) from error
