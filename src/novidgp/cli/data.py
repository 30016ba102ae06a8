"""`novidgp data`: see, inspect, import and fetch data sets."""

from pathlib import Path
from typing import Annotated

import typer

from novidgp.cli.console import out, report_errors

data_app = typer.Typer(name="data", help="Benchmark data sets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of a data set, as in `novidgp data list`.")]


@data_app.command("list")
@report_errors()
def list_datasets() -> None:
    """List the known data sets and whether each is on this machine."""
    from rich.table import Table

    from novidgp.datasets import dataset_info, dataset_names, is_available

    table = Table("name", "task")
    for heading in ("rows", "columns", "classes"):
        table.add_column(heading, justify="right")
    table.add_column("available")
    for name in dataset_names():
        info = dataset_info(name)
        available = "built in" if info.builtin else "yes" if is_available(name) else "no"
        classes = "" if info.classes is None else str(info.classes)
        table.add_row(name, info.task, f"{info.rows:,}", f"{info.columns:,}", classes, available)
    out().print(table)


@data_app.command("info")
@report_errors()
def show_info(name: Name) -> None:
    """Show what is known about a data set: size, target, licence, source, and how to get it."""
    from novidgp.datasets import dataset_info, is_available
    from novidgp.datasets.cache import how_to_get, locate_dataset

    info = dataset_info(name)
    facts = {
        "name": info.name,
        "task": info.task,
        "shape": " x ".join(map(str, info.fingerprint.shape)),
        "target": info.target,
        "classes": info.classes,
        "official training rows": info.official_train_rows,
        "licence": info.licence,
        "citation": info.citation,
        "source": info.source,
        "files": ", ".join(info.files),
        "note": info.note,
        "found at": None if info.builtin else locate_dataset(name),
        "to get it": None if is_available(name) else how_to_get(info),
    }
    for label, fact in facts.items():
        if fact not in (None, ""):
            typer.echo(f"{label}: {fact}")


@data_app.command("import")
@report_errors()
def import_file(
    name: Name,
    file: Annotated[Path, typer.Argument(help="Official raw file, archive or directory, or an .npz.")],
) -> None:
    """Check an official raw file and store it for `load_dataset`."""
    from novidgp.datasets import import_dataset

    typer.echo(f"stored {import_dataset(name, file)}")


@data_app.command("fetch")
@report_errors()
def fetch(name: Name) -> None:
    """Download a data set from its official address, check it, and store it."""
    from novidgp.datasets import fetch_dataset

    typer.echo(f"stored {fetch_dataset(name)}")
