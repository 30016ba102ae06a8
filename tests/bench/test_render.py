"""Tables in every format, and the report."""

import csv
import io
import json
import re
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from novidgp.bench import render as tables
from novidgp.bench.report import page
from novidgp.bench.spec import Fit
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
    text = tables.render(SUITES["uci"], some(), "markdown")
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

    shown = tables.suite_tables(SUITES["uci"], some())
    for width, expected in ((80, False), (120, True)):
        console = Console(width=width, file=io.StringIO(), force_terminal=False)
        console.print(tables.as_rich(shown, width))
        text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
        assert "0.20 (0.01)" in text
        assert "0.210 ± 0.006" in text
        assert ("CPU s" in text) == expected
        assert "…" not in text


def test_latex_compiles_in_principle():
    text = tables.render(SUITES["uci"], some(), "latex")
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
    rows = list(csv.DictReader(io.StringIO(tables.render(SUITES["uci"], some(), "csv"))))
    assert len(rows) == 4
    assert rows[0]["method"] == "novi"
    assert float(rows[0]["rmse_mean"]) == pytest.approx(0.21)
    assert float(rows[0]["rmse_paper"]) == 0.2
    assert rows[0]["nll_paper"] == ""


def test_failed_fits_are_counted():
    records = some()
    records[0] = fake.record(TWO.fits()[0], "failed")
    text = tables.render(SUITES["uci"], records, "markdown")
    assert "2 (1 failed)" in text


@pytest.mark.parametrize("suite", SUITES.values(), ids=list(SUITES))
def test_every_suite_has_a_table(suite):
    records = fake.records(narrowed(suite, splits=[0, 1]))
    first, *_ = tables.suite_tables(suite, records)
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
    assert file.read_text() == tables.render(SUITES["uci"], some(), "markdown")


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


class Outline(HTMLParser):
    """Headings, ids and tags that fetch something."""

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.open, self.fetched = set(), set(), [], []

    def handle_starttag(self, tag, attrs):
        facts = dict(attrs)
        if "id" in facts:
            assert facts["id"] not in self.ids
            self.ids.add(facts["id"])
        if tag == "a":
            self.links.add(facts["href"])
        if tag in ("script", "link", "img", "iframe", "object") or "src" in facts:
            self.fetched.append(tag)
        if tag in ("section", "table", "figure", "svg", "details", "main"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open and tag == self.open[-1]:
            self.open.pop()


@pytest.fixture(scope="module")
def report():
    """The report on most suites; images and large have no results."""
    chosen = {
        name: narrowed(suite, datasets=suite.datasets[:2], layers=suite.layers[:2])
        for name, suite in SUITES.items()
        if name not in ("images", "large")
    }
    return page({name: fake.records(suite) for name, suite in chosen.items()})


def test_the_report_has_every_section_and_needs_nothing_else(report):
    outline = Outline()
    outline.feed(report)
    assert {f"suite-{name}" for name in SUITES} <= outline.ids
    assert outline.links == {f"#{name}" for name in outline.ids if name.startswith(("suite", "figure"))}
    assert outline.open == []
    assert outline.fetched == []
    assert not re.search(r"https?://|url\((?!#)|@import", report)
    for title in ("RMSE by depth", "Average ranks", "Ablation curves", "Calibration", "Time against error"):
        assert f"<h2>{title}</h2>" in report
    assert report.count('role="img"') >= 4 + 2 + 2 + 2 + 2
    assert "@media print" in report
    assert "prefers-color-scheme: dark" in report


def test_what_is_missing_is_said_with_the_command_that_makes_it(report):
    assert report.count('class="missing"') == 2
    assert "<code>novidgp bench run images</code>" in report
    empty = page({"split": [fake.record(fit) for fit in SUITES["split"].fits()]})
    assert "<code>novidgp bench run ablation</code>" in empty
    assert "<svg role" not in empty


def test_pictures_show_methods_as_planned_and_variations_only_where_there_is_nothing_else():
    suite = narrowed(SUITES["uci"], datasets=["boston"], methods=["novi", "dsvi"], layers=[2])
    planned, varied = (fake.records(narrowed(suite, options=options)) for options in (None, {"num_paths": 2}))
    label, key = "novi, num_paths=2", "<li><svg"
    both, alone = page({"uci": planned + varied}), page({"uci": varied})
    assert not any(label in line for line in both.splitlines() if key in line)
    assert label in both
    assert any(label in line for line in alone.splitlines() if key in line)


def test_text_in_the_report_is_escaped():
    fit = Fit("boston", "random", 0, "dsvi", 2, 100, 1000)
    bad = fake.record(fit, "failed") | {"error": "ValueError: <script>alert(1)</script>"}
    assert "<script" not in page({"uci": [bad]})


def test_the_command_writes_the_report(results, tmp_path):
    file = tmp_path / "report.html"
    answer = invoke("bench", "report", "--results", results, "--out", file)
    assert answer.exit_code == 0, answer.output
    assert file.read_text().startswith("<!doctype html>")
    assert invoke("bench", "report", "--results", tmp_path / "nowhere").exit_code == 1
