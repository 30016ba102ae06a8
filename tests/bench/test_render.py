"""Tables of results in every format, and the command that shows them."""

import csv
import io
import json
import re

import pytest
from typer.testing import CliRunner

from novidgp.bench import render
from novidgp.bench.content import suite_tables
from novidgp.bench.suites import SUITES, narrowed
from novidgp.cli import app
from support import fake

TWO = narrowed(SUITES["uci"], methods=["novi", "dsvi"], datasets=["boston", "energy"], layers=[2])


def some():
    """Two methods on two sets: novi wins on boston, dsvi on energy."""
    records = []
    for fit in TWO.fits():
        ahead = (fit.method == "novi") == (fit.dataset == "boston")
        records.append(fake.record(fit, rmse=(0.2 if ahead else 0.3) + 0.01 * fit.seed, nll=0.5))
    return records


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture
def results(tmp_path):
    """A directory with results of uci."""
    (tmp_path / "uci.jsonl").write_text("".join(json.dumps(record) + "\n" for record in some()))
    return tmp_path


def test_markdown_has_the_papers_figure_beside_ours_and_the_best_in_bold():
    text = render.render(SUITES["uci"], some(), "markdown")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line
    ]
    head = rows[0]
    novi = dict(zip(head, rows[2], strict=True))
    assert (novi["data set"], novi["L"], novi["method"], novi["splits"]) == ("boston", "2", "novi", "3")
    assert novi["RMSE"] == "**0.210 ± 0.006**"
    assert novi["paper"] == "0.20 (0.01)"
    assert dict(zip(head, rows[3], strict=True))["RMSE"] == "0.310 ± 0.006"
    assert "ipvi" in text, "the paper's other methods keep their rows"
    assert re.search(r"\| novi against dsvi +\| +3:3 \| 6 splits \|", text)
    widths = {len(line) for line in text.split("\n\n")[1].splitlines()}
    assert len(widths) == 1, "the table is aligned as text too"


def test_a_narrow_terminal_loses_the_optional_columns_only():
    from rich.console import Console

    shown = suite_tables(SUITES["uci"], some())
    for width, expected in ((80, False), (120, True)):
        console = Console(width=width, file=io.StringIO(), force_terminal=False)
        console.print(render.as_rich(shown, width))
        text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
        assert "0.20 (0.01)" in text
        assert "0.210 ± 0.006" in text
        assert ("CPU s" in text) == expected
        assert "…" not in text


def test_latex_compiles_in_principle():
    text = render.render(SUITES["uci"], some(), "latex")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 3
    assert r"\textbf{0.210 $\pm$ 0.006}" in text
    assert "±" not in text
    for line in text.splitlines():
        if line.endswith(r"\\"):
            assert not re.search(r"(?<!\\)[%_#]", line)
    first = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)
    assert first is not None
    row = next(line for line in text.splitlines() if line.startswith("boston"))
    assert row.count("&") == len(first[1]) - 1


def test_csv_has_full_numbers():
    rows = list(csv.DictReader(io.StringIO(render.render(SUITES["uci"], some(), "csv"))))
    assert len(rows) == 4
    assert rows[0]["method"] == "novi"
    assert float(rows[0]["rmse_mean"]) == pytest.approx(0.21)
    assert float(rows[0]["rmse_paper"]) == 0.2
    assert rows[0]["nll_paper"] == ""


def test_failed_fits_are_counted():
    records = some()
    records[0] = fake.record(TWO.fits()[0], "failed")
    text = render.render(SUITES["uci"], records, "markdown")
    assert "2 (1 failed)" in text


@pytest.mark.parametrize("suite", SUITES.values(), ids=list(SUITES))
def test_every_suite_has_a_table(suite):
    records = fake.records(narrowed(suite, splits=[0, 1]))
    first, *_ = suite_tables(suite, records)
    assert all(len(row) == len(first.headings) for block in first.blocks for row in block)
    assert ("paper" in first.headings) == (suite.paper is not None)
    shown = {cell.text for block in first.blocks for row in block for cell in row}
    assert {suite.label(fit) for fit in suite.fits()} <= shown


def test_the_command_prints_and_writes(results, tmp_path):
    shown = invoke("bench", "table", "uci", "--results", results)
    assert shown.exit_code == 0, shown.output
    assert "boston" in shown.output
    assert "0.20 (0.01)" in shown.output
    file = tmp_path / "table.md"
    assert invoke("bench", "table", "uci", "-r", results, "-f", "markdown", "-o", file).exit_code == 0
    assert file.read_text() == render.render(SUITES["uci"], some(), "markdown")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table", "uci", "-f", "word"], "--format word is unknown"),
        (["table", "split"], "novidgp bench run split"),
        (["table", "ucy"], "Did you mean 'uci'"),
        (["run", "uci", "--methods", "nuts"], "method 'nuts' is unknown"),
        (["run", "uci", "--layers", "two"], "not a list of numbers"),
        (["run", "uci", "--datasets", "steps", "--steps", "1", "--backend", "slurm"], "backend='slurm'"),
        (["run", "uci", "--datasets", "steps", "--jobs", "0"], "jobs=0 must be at least 1"),
    ],
)
def test_mistakes_are_told_in_one_line(results, arguments, message):
    where = ["--results", results] if arguments[0] == "table" else ["--out", results / "new"]
    answer = invoke("bench", *arguments, *where)
    assert answer.exit_code == 1
    assert message in answer.output
