"""The command as a whole: help that is complete and needs no heavy import, and the version."""

import subprocess
import sys

import typer

from novidgp.cli import app
from support.commands import run

HEAVY = {"jax", "numpy", "pandas", "sklearn", "scipy", "matplotlib", "equinox"}


def commands(group, prefix=()):
    """Every command below a group, with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*prefix, name))
        else:
            yield (*prefix, name), command


ALL = dict(commands(typer.main.get_command(app)))


def test_every_command_and_every_option_is_explained():
    assert {words[0] for words in ALL} == {
        *("demo", "fit", "launch", "predict", "evaluate", "doctor", "data", "bench", "version")
    }
    for words, command in ALL.items():
        assert command.help, words
        assert [p.name for p in command.params if not getattr(p, "help", None)] == [], words


def test_help_shows_commands_and_options():
    output = run("--help").output
    assert all(words[0] in output for words in ALL)
    output = run("fit", "--help").output
    assert all(option in output for option in ("--target", "--inference", "--layers", "novi-paper"))


def test_every_option_of_fit_shows_its_default():
    output = " ".join(run("fit", "--help").output.replace("│", " ").split())
    options = [p for p in ALL["fit",].params if p.param_type_name == "option"]
    told = [p for p in options if not p.is_flag or isinstance(p.show_default, str)]
    assert output.count("[default:") == len(told)
    assert "[default: (DATA.novidgp)]" in output
    assert "[default: (features, at most 30)]" in output


def test_help_of_every_command_needs_no_heavy_import():
    calls = [[*words, "--help"] for words in ALL]
    code = f"""
import sys
from novidgp.cli import app
for arguments in {calls!r}:
    try:
        app(arguments)
    except SystemExit as end:
        assert not end.code, arguments
found = sorted({HEAVY!r} & sys.modules.keys())
sys.exit(f"imported {{found}}" if found else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_version():
    assert run("--version").output == run("version").output
    assert run("version").output.startswith("novidgp ")
