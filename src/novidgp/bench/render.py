"""Formats of result tables: terminal, Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from novidgp.bench.content import Table, suite_tables
from novidgp.bench.paper import printed
from novidgp.bench.results import Record
from novidgp.bench.suites import Suite
from novidgp.bench.summary import Entry, entries

if TYPE_CHECKING:
    from rich.console import Group

FORMATS = ("terminal", "markdown", "latex", "csv")


def render(suite: Suite, records: Iterable[Record], kind: str) -> str:
    """The tables of a suite as Markdown, LaTeX or CSV text."""
    records = list(records)
    if kind == "csv":
        return as_csv(suite, entries(suite, records))
    if kind not in ("markdown", "latex"):
        raise ValueError(f"format={kind!r} is unknown; choose one of: {', '.join(FORMATS)}.")
    formatter = as_markdown if kind == "markdown" else as_latex
    return "\n\n".join(formatter(table) for table in suite_tables(suite, records)) + "\n"


def as_markdown(table: Table) -> str:
    """A Markdown table whose columns are aligned in the source text too."""
    rows = [row for block in table.blocks for row in block]
    texts = [[f"**{cell.text}**" if cell.bold and cell.text else cell.text for cell in row] for row in rows]
    grid = [table.headings, *texts]
    widths = [max(len(row[i]) for row in grid) for i in range(len(table.headings))]

    def line(row: Sequence[str]) -> str:
        return (
            "| "
            + " | ".join(_pad(text, widths[i], i < table.text_columns) for i, text in enumerate(row))
            + " |"
        )

    rule = [
        "-" * width if i < table.text_columns else "-" * (width - 1) + ":" for i, width in enumerate(widths)
    ]
    lines = [line(table.headings), "|" + "|".join(f"-{part}-" for part in rule).replace(":-", "-:") + "|"]
    lines += [line(row) for row in texts]
    return "\n".join([f"## {table.title}", "", *lines, "", *table.notes])


def _pad(text: str, width: int, left: bool) -> str:
    return text.ljust(width) if left else text.rjust(width)


_LATEX = {"±": r"$\pm$", "%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "–": "--", "<": "$<$"}


def _tex(text: str) -> str:
    for symbol, command in _LATEX.items():
        text = text.replace(symbol, command)
    return f"${text}$" if text.startswith("-") and text[1:].replace(".", "").isdigit() else text


def as_latex(table: Table) -> str:
    """A `table` environment for the package booktabs."""
    columns = "l" * table.text_columns + "r" * (len(table.headings) - table.text_columns)
    lines = [r"\begin{table}", r"\centering", f"\\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [" & ".join(map(_tex, table.headings)) + r" \\"]
    for block in table.blocks:
        lines.append(r"\midrule")
        for row in block:
            texts = [rf"\textbf{{{_tex(c.text)}}}" if c.bold and c.text else _tex(c.text) for c in row]
            lines.append(" & ".join(texts) + r" \\")
    caption = " ".join([f"{table.title}.", *table.notes]).replace("`", "")
    return "\n".join(
        [*lines, r"\bottomrule", r"\end{tabular}", rf"\caption{{{_tex(caption)}}}", r"\end{table}"]
    )


def as_csv(suite: Suite, group: Sequence[Entry]) -> str:
    """CSV in full precision, one line per data set, depth and method."""
    scores = [*suite.scores, *(s for s in ("coverage90", "cpu_seconds") if s not in suite.scores)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = [f"{score}_{part}" for score in scores for part in ("mean", "error", "paper")]
    writer.writerow(["dataset", "protocol", "layers", "method", "splits", "failed", *heads])
    for entry in group:
        theirs = printed(suite.paper, entry.place.dataset, entry.label, entry.place.layers)
        row: list = [*entry.place, entry.label, len(entry.records), entry.failures]
        for score in scores:
            row += [entry.mean(score), entry.error(score), theirs[score].mean if score in theirs else None]
        writer.writerow(["" if value is None else value for value in row])
    return text.getvalue()


def as_rich(tables: Sequence[Table], width: int | None = None) -> "Group":
    """Tables for a terminal of `width` columns; None means that there is room for everything."""
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    parts = []
    for table in tables:
        columns, least = len(table.headings), len(table.headings) - table.optional
        while width is not None and columns > least and natural_width(table, columns) > width:
            columns -= 1
        grid = RichTable(
            title=table.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
        )
        for index, heading in enumerate(table.headings[:columns]):
            grid.add_column(heading, justify="left" if index < table.text_columns else "right", no_wrap=True)
        for block in table.blocks:
            for index, row in enumerate(block):
                cells = [Text(cell.text, style="bold green" if cell.bold else "") for cell in row[:columns]]
                grid.add_row(*cells, end_section=index == len(block) - 1)
        parts += [grid, Text("\n".join(table.notes) + "\n", style="dim")]
    return Group(*parts)


def natural_width(table: Table, columns: int | None = None) -> int:
    """The number of characters that the first `columns` columns take at a terminal."""
    return sum(width + 2 for width in table.widths[:columns]) + 1
