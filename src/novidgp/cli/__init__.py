"""The command `novidgp`. Nothing heavy is imported before a command runs, so that `--help` is instant."""

from typing import Annotated

import typer

from novidgp.cli.bench import bench_app
from novidgp.cli.data import data_app
from novidgp.cli.demo import demo_command
from novidgp.cli.doctor import doctor_command
from novidgp.cli.evaluate import evaluate_command
from novidgp.cli.fit import fit_command
from novidgp.cli.launch import launch_command
from novidgp.cli.predict import predict_command

app = typer.Typer(
    name="novidgp",
    help="Deep Gaussian processes with the posterior you choose.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        version_command()
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Deep Gaussian processes with the posterior you choose."""


def version_command() -> None:
    """Show the version."""
    import novidgp

    typer.echo(f"novidgp {novidgp.__version__}")


app.command("demo")(demo_command)
app.command("fit")(fit_command)
app.command("launch")(launch_command)
app.command("predict")(predict_command)
app.command("evaluate")(evaluate_command)
app.command("doctor")(doctor_command)
app.add_typer(data_app)
app.add_typer(bench_app)
app.command("version")(version_command)
