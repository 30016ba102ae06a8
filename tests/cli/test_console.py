"""How errors and warnings of a command are shown."""

import warnings

import pytest
import typer

from novidgp.cli.console import DEBUG_VARIABLE, report_errors


@report_errors()
def fail(error):
    raise error


@pytest.mark.parametrize("error", [ValueError("bad\nvalue"), TypeError("bad value"), OSError("bad value")])
def test_an_error_is_one_line_with_exit_code_1(error, capsys):
    with pytest.raises(typer.Exit) as end:
        fail(error)
    assert end.value.exit_code == 1
    assert capsys.readouterr().err == "error: bad value\n"


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())


def test_debugging_keeps_the_traceback_of_every_error(monkeypatch):
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    with pytest.raises(ValueError, match="bad"):
        fail(ValueError("bad"))


def test_a_users_warning_is_a_line_and_others_are_silent(capsys):
    with report_errors():
        warnings.warn("num_inducing=500 exceeds", UserWarning, stacklevel=1)
        warnings.warn("for developers", DeprecationWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: num_inducing=500 exceeds\n"
