"""The report: complete, self-contained and escaped."""

import json
import re
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from novidgp.bench.report import page
from novidgp.bench.spec import Fit
from novidgp.bench.suites import SUITES, narrowed
from novidgp.cli import app
from support import fake


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
    assert report.count('class="missing"') == 4  # two suites, and two pictures of images
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


def test_the_command_writes_the_report(tmp_path):
    fits = narrowed(SUITES["split"], datasets=["boston"]).fits()
    (tmp_path / "split.jsonl").write_text("".join(json.dumps(fake.record(fit)) + "\n" for fit in fits))
    file = tmp_path / "report.html"
    answer = CliRunner().invoke(app, ["bench", "report", "--results", str(tmp_path), "--out", str(file)])
    assert answer.exit_code == 0, answer.output
    assert file.read_text().startswith("<!doctype html>")
    nowhere = CliRunner().invoke(app, ["bench", "report", "--results", str(tmp_path / "nowhere")])
    assert nowhere.exit_code == 1
