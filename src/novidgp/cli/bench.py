"""`novidgp bench`: run the suites of the paper, print their tables, write the report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from novidgp.cli.console import err, out, report_errors, warn
from novidgp.cli.interrupts import leave
from novidgp.cli.lists import parse_names, parse_numbers, parse_splits
from novidgp.cli.options import parse_options

if TYPE_CHECKING:
    from novidgp.bench.runner import Plan

bench_app = typer.Typer(name="bench", help="The paper's tables, ours beside them.", no_args_is_help=True)

SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="A suite, as in `novidgp bench list`.")]


@bench_app.command("list")
@report_errors()
def list_suites() -> None:
    """List the suites, what each compares, and its number of fits."""
    from rich.table import Table

    from novidgp.bench.suites import SUITES

    table = Table("suite", "what it is", "data sets", box=None, padding=(0, 2, 0, 0))
    table.add_column("fits", justify="right")
    for suite in SUITES.values():
        table.add_row(suite.name, suite.title, ", ".join(suite.datasets), str(len(suite.fits())))
    out().print(table)


@bench_app.command("run")
@report_errors()
def run_suite(
    suite: SuiteName,
    methods: Annotated[str | None, typer.Option(metavar="A,B", help="Only these methods.")] = None,
    datasets: Annotated[str | None, typer.Option(metavar="X,Y", help="Only these data sets.")] = None,
    layers: Annotated[str | None, typer.Option(metavar="2,3", help="Only these depths.")] = None,
    splits: Annotated[
        str | None, typer.Option(metavar="N|A-B", help="The first N splits, or those from A to B.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps of the deep GPs.")] = None,
    inducing: Annotated[int | None, typer.Option(min=1, help="Inducing points per layer.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Option of the deep GPs; repeatable."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Fits at once; -1: one per core.")] = 1,
    backend: Annotated[str, typer.Option(help="loky, dask, ray or sequential.")] = "loky",
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Of a running Dask or Ray cluster.")
    ] = None,
    output: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where results go.")] = Path(
        "results"
    ),
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try failed fits again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the fits and stop.")] = False,
) -> None:
    """Run the fits of a suite that are not in its result file yet. A stopped run can be resumed."""
    from novidgp.bench import runner, suites
    from novidgp.bench.results import read_records

    chosen = suites.narrowed(
        suites.find_suite(suite),
        methods=parse_names(methods) if methods else None,
        datasets=parse_names(datasets) if datasets else None,
        layers=parse_numbers(layers) if layers else None,
        splits=parse_splits(splits) if splits else None,
        steps=steps,
        inducing=inducing,
        options=parse_options(option or []),
    )
    path = output / f"{chosen.name}.jsonl"
    if dry_run:
        work = runner.plan(chosen.fits(), read_records(path), retry_failed=retry_failed)
        for fit in work.todo:
            typer.echo(f"{fit.key}  {fit}")
        _announce(work, path)
        return
    from novidgp.bench.display import display

    try:
        with display() as show:
            count = runner.run(
                chosen.fits(),
                path,
                suite=chosen.name,
                jobs=jobs,
                backend=backend,
                scheduler=scheduler,
                retry_failed=retry_failed,
                on_plan=lambda work: (_announce(work, path), show.begin(len(work.todo)))[0],
                on_event=show.advance,
            )
    except KeyboardInterrupt:
        leave(f"interrupted; finished fits are in {path}, and the same command goes on from there")
    if show.failures:
        warn(f"{show.failures} of {count} fits failed; their errors are in {path}. Again: --retry-failed")
    err().print(f"{count} fits done; see them with: novidgp bench table {chosen.name} --results {output}")


def _announce(work: "Plan", path: Path) -> None:
    parts = [f"{len(work.todo)} fits to run", f"{work.done} already in {path}"]
    if work.failed:
        parts.append(f"{work.failed} failed before (--retry-failed tries them again)")
    err().print("; ".join(parts))
    for reason, count in work.skipped.items():
        err().print(f"left out {count} fits: {reason}", style="yellow")


ResultsDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--results", "-r", metavar="DIR", help="Where results are; repeatable.", show_default="results"
    ),
]


@bench_app.command("table")
@report_errors()
def show_table(
    suite: SuiteName,
    style: Annotated[
        str, typer.Option("--format", "-f", help="terminal, markdown, latex or csv.")
    ] = "terminal",
    results: ResultsDirs = None,
    output: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it here.")] = None,
) -> None:
    """Show a suite's results with standard errors beside the paper's numbers, ranks and paired tests."""
    from novidgp.bench import render, suites
    from novidgp.bench.content import suite_tables

    if style not in render.FORMATS:
        raise ValueError(f"--format {style} is unknown; choose one of: {', '.join(render.FORMATS)}.")
    chosen = suites.find_suite(suite)
    records = _records(chosen.name, results)
    if not records:
        raise ValueError(
            f"no results of {chosen.name} in {_named(results)}; make them with: "
            f"novidgp bench run {chosen.name} --out {_named(results)}"
        )
    if style == "terminal":
        if output is not None:
            raise ValueError("--out needs --format markdown, latex or csv.")
        console = out()
        shown = suite_tables(chosen, records)
        if not console.is_terminal:  # a pipe or a file has room for everything
            console.width = max(map(render.natural_width, shown))
        console.print(render.as_rich(shown, console.width))
        return
    text = render.render(chosen, records, style)
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text)
        err().print(f"wrote {output}")


@bench_app.command("report")
@report_errors()
def write_report(
    results: ResultsDirs = None,
    output: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
) -> None:
    """Write all results as one HTML page, with pictures, that needs no other file."""
    from novidgp.bench import suites
    from novidgp.bench.report import page

    records = {name: _records(name, results) for name in suites.SUITES}
    if not any(records.values()):
        raise ValueError(f"no results in {_named(results)}; make some with: novidgp bench run uci")
    output.write_text(page(records), encoding="utf-8")
    err().print(f"wrote {output} ({output.stat().st_size / 1024:.0f} kB)")


def _records(suite: str, directories: list[Path] | None) -> list:
    from novidgp.bench.results import read_records

    found = []
    for directory in directories or [Path("results")]:
        found += read_records(directory / f"{suite}.jsonl")
    return found


def _named(directories: list[Path] | None) -> str:
    return ", ".join(map(str, directories or [Path("results")]))
