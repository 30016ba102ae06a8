"""`novidgp doctor`: what in a table will hurt a Gaussian process, with the cure."""

from typing import Annotated

import typer

from novidgp.cli.console import out, report_errors

_COLORS = {"error": "bold red", "warning": "yellow", "note": "dim"}


@report_errors()
def doctor_command(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A .csv, .parquet or .npz file.")],
    target: Annotated[str | None, typer.Option("--target", "-t", help="Column to be predicted.")] = None,
) -> None:
    """Say what in a table will hurt a Gaussian process, and the cure.

    Exit code 1 if something would stop a fit.
    """
    from rich.table import Table
    from rich.text import Text

    from novidgp.tables.doctor import diagnose
    from novidgp.tables.read import read_table

    frame = read_table(data)
    if target is None and data.endswith(".npz") and "y" in frame.columns:
        target = "y"
    findings = diagnose(frame, target)
    console = out()
    console.print(f"{data}: {len(frame):,} rows, {len(frame.columns)} columns")
    if not findings:
        console.print("[green]nothing that would hurt a Gaussian process[/green]")
        return
    table = Table("", "column", "problem", "cure", box=None, pad_edge=False, header_style="bold")
    for finding in findings:
        severity = Text(finding.severity, style=_COLORS[finding.severity])
        table.add_row(severity, Text(finding.column or "(table)"), Text(finding.problem), Text(finding.cure))
    console.print(table)
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)
