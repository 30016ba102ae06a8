"""The report: one HTML page with every table and picture, which needs no other file and no network."""

import datetime
import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

from novidgp.bench import figures, image_panels
from novidgp.bench.content import HEADINGS, Cell, Table, suite_tables
from novidgp.bench.figures import Panel
from novidgp.bench.results import Record, failed
from novidgp.bench.suites import SUITES, Suite
from novidgp.bench.summary import Entry, average_ranks, depths, entries


def page(records: Mapping[str, Sequence[Record]]) -> str:
    """The page for the records of every suite."""
    suites = {name: suite for name, suite in SUITES.items() if records.get(name)}
    groups = {name: entries(suite, records[name]) for name, suite in suites.items()}
    pictures = [*_pictures(groups)]
    contents = [*((f"figure-{index}", title) for index, (title, _, _) in enumerate(pictures))]
    contents += [(f"suite-{suite.name}", suite.title) for suite in SUITES.values()]
    body = [_head(records), _contents(contents)]
    for index, (title, text, content) in enumerate(pictures):
        body.append(_section(f"figure-{index}", title, f"<p>{html.escape(text)}</p>{content}"))
    for suite in SUITES.values():
        body.append(_suite_section(suite, records.get(suite.name, ())))
    style = resources.files("novidgp.bench").joinpath("report.css").read_text()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>novidgp: benchmarks</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _head(records: Mapping[str, Sequence[Record]]) -> str:
    everything = [record for group in records.values() for record in group]
    good = sum(record["status"] == "ok" for record in everything)
    bad = sum(len(failed(group)) for group in records.values())
    hours = sum(record["scores"].get("cpu_seconds", 0.0) for record in everything) / 3600
    facts = [f"{good:,} fits", f"{bad} failed", f"{hours:.1f} CPU hours"]
    facts.append(datetime.date.today().isoformat())
    return (
        "<header><h1>Deep Gaussian processes: benchmarks</h1>"
        "<p>The tables of <em>Neural Operator Variational Inference based on Regularized Stein Discrepancy "
        "for Deep Gaussian Processes</em>, run again, with the paper’s numbers beside ours.</p>"
        f'<p class="facts">{" · ".join(facts)}</p></header>'
    )


def _contents(entries: Iterable[tuple[str, str]]) -> str:
    links = "".join(f'<li><a href="#{name}">{html.escape(title)}</a></li>' for name, title in entries)
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def _section(name: str, title: str, content: str) -> str:
    return f'<section id="{name}"><h2>{html.escape(title)}</h2>\n{content}\n</section>'


def _missing(command: str) -> str:
    return f'<p class="missing">No results yet. Make them with <code>{html.escape(command)}</code>.</p>'


def _suite_section(suite: Suite, records: Sequence[Record]) -> str:
    if not records:
        text = f"<p>{html.escape(suite.about)}</p>" + _missing(f"novidgp bench run {suite.name}")
        return _section(f"suite-{suite.name}", suite.title, text)
    first, *rest = suite_tables(suite, records)
    parts = [table_html(first, caption=False)]
    if rest:
        inner = "".join(table_html(table) for table in rest)
        parts.append(f"<details><summary>Ranks and paired tests</summary>{inner}</details>")
    bad = failed(records)
    if bad:
        lines = "".join(f"<li>{html.escape(str(record.get('error', '')))}</li>" for record in bad.values())
        parts.append(f"<details><summary>{len(bad)} failed fits</summary><ul>{lines}</ul></details>")
    return _section(f"suite-{suite.name}", suite.title, "\n".join(parts))


def table_html(table: Table, *, caption: bool = True) -> str:
    """An HTML table in a box that scrolls sideways on a narrow screen."""

    def cell(tag: str, index: int, item: Cell) -> str:
        text = html.escape(item.text).replace("±", '<span class="pm">±</span>')
        text = f"<strong>{text}</strong>" if item.bold and text else text
        return f"<{tag}{'' if index < table.text_columns else ' class=n'}>{text}</{tag}>"

    head = "".join(cell("th", i, Cell(heading)) for i, heading in enumerate(table.headings))
    blocks = []
    for block in table.blocks:
        rows = "".join(
            f"<tr>{''.join(cell('td', i, item) for i, item in enumerate(row))}</tr>" for row in block
        )
        blocks.append(f"<tbody>{rows}</tbody>")
    notes = "".join(f"<p class=note>{_code(html.escape(note))}</p>" for note in table.notes)
    title = f"<h3>{html.escape(table.title)}</h3>" if caption else ""
    name = html.escape(table.title, quote=True)
    return (
        f'{title}<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table><thead><tr>{head}'
        f"</tr></thead>{''.join(blocks)}</table></div>{notes}"
    )


def _code(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


# --- pictures -------------------------------------------------------------------------------------


def _pictures(groups: Mapping[str, Sequence[Entry]]) -> list[tuple[str, str, str]]:
    """Title, explanation and content of every picture section."""
    eight, additional = (_as_planned(groups.get(name, ())) for name in ("uci", "additional"))
    uci = [*eight, *additional]
    by_depth = figures.depth_panels(SUITES["uci"], eight, "rmse", "RMSE")
    by_depth += figures.depth_panels(SUITES["additional"], additional, "rmse", "RMSE")
    ablation, race = groups.get("ablation", ()), groups.get("race", ())
    images = [entry for name, group in groups.items() if name.startswith("images") for entry in group]
    run_uci = "novidgp bench run uci"
    return [
        (
            "RMSE by depth",
            "Mean and standard error over splits, lower is better. Hollow marks are the paper’s values, on "
            "its own splits; horizontal lines are methods without layers.",
            _pictured(by_depth, uci, run_uci, baselines=True),
        ),
        (
            "Average ranks",
            "Methods joined by a bar cannot be told apart at the 5 % level (Nemenyi’s critical difference).",
            _grid(_rank_panels(eight), "wide") or _missing(run_uci),
        ),
        (
            "Ablation curves",
            "NOVI against maximum likelihood, RMSE along training: solid on test rows (shade: from the best "
            "to the worst split), dashed on training rows. A gap that widens is overfitting.",
            _pictured(figures.curve_panels(ablation), ablation, "novidgp bench run ablation"),
        ),
        (
            "The default against the paper’s algorithm",
            "RMSE against seconds of training, compilation left out: solid on test rows, dashed on training "
            "rows. Both infer the same model.",
            _pictured(figures.curve_panels(race, "seconds"), race, "novidgp bench run race"),
        ),
        (
            "Calibration",
            "How many test targets lie within the central intervals, beyond how many should: zero is right, "
            "below it a method is too sure of itself. In percentage points, averaged over the data sets.",
            _pictured(
                [p for layers in depths(uci) for p in figures.calibration_panels(uci, layers)], uci, run_uci
            ),
        ),
        (
            "Time against error",
            "Down and to the left is better. The number at a mark is the depth.",
            _pictured(figures.cost_panels(uci, "RMSE"), uci, run_uci),
        ),
        (
            "Images: reliability",
            "How often a classifier is right, by the largest of its probabilities. Below the line it is too "
            "sure; larger marks are of more images.",
            _pictured(image_panels.reliability_panels(images), images, "novidgp bench run images-conv"),
        ),
        (
            "Images: least sure of",
            "The test images with the smallest largest probability: the guess, its probability, the label.",
            _grid(image_panels.unsure_panels(images)) or _missing("novidgp bench run images-conv"),
        ),
    ]


def _as_planned(group: Sequence[Entry]) -> Sequence[Entry]:
    """The methods with the suite's own settings, or all entries if there are none.

    Variations of a method would crowd a picture.
    """
    return [entry for entry in group if entry.label == entry.fit.method] or group


def _rank_panels(group: Sequence[Entry]) -> list[Panel]:
    looks = figures.styles([entry.label for entry in group])
    panels = []
    for layers in depths(group):
        for score in ("rmse", "nll"):
            ranks = average_ranks(group, score, layers)
            if ranks is not None and len(ranks.places) > 1:
                panels.append(figures.critical_difference_panel(ranks, looks, HEADINGS[score]))
    return panels


def _pictured(
    panels: Sequence[Panel], group: Sequence[Entry], command: str, *, baselines: bool = False
) -> str:
    if not panels:
        return _missing(command)
    return _legend(group, lines=baselines) + _grid(panels)


def _legend(group: Sequence[Entry], *, lines: bool) -> str:
    """The methods with their colours and marks. With `lines`, methods without layers are drawn as lines."""
    items = []
    for label, style in figures.styles([entry.label for entry in group]).items():
        if lines and label in figures.DASHES:
            dash = " ".join(map(str, figures.DASHES[label]))
            mark = f'<line x1="0" y1="7" x2="22" y2="7" stroke="{style.color}" stroke-dasharray="{dash}"/>'
        else:
            mark = _mark(style)
        key = f'<svg width="22" height="14" aria-hidden="true" class="key">{mark}</svg>'
        items.append(f"<li>{key}{html.escape(label)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


_MARKS = {
    "o": '<circle cx="11" cy="7" r="4.5"/>',
    "s": '<rect x="7" y="3" width="8" height="8"/>',
    "^": '<path d="M11 2 16 12H6Z"/>',
    "v": '<path d="M11 12 16 2H6Z"/>',
    "D": '<path d="M11 1.5 16.5 7 11 12.5 5.5 7Z"/>',
    "P": '<path d="M9 2h4v3h3v4h-3v3H9V9H6V5h3Z"/>',
    "X": '<path d="M7 2l4 3 4-3 1.5 2.5L14 7l2.5 2.5L15 12l-4-3-4 3-1.5-2.5L8 7 5.5 4.5Z"/>',
    "*": '<path d="M11 1l1.6 4.2H17l-3.5 2.7 1.3 4.3-3.8-2.6-3.8 2.6 1.3-4.3L5 5.2h4.4Z"/>',
    "h": '<path d="M11 1.5 15.8 4.2v5.6L11 12.5 6.2 9.8V4.2Z"/>',
    "p": '<path d="M11 1.5 16.2 5.3 14.2 11.5H7.8L5.8 5.3Z"/>',
}


def _mark(style: figures.Style) -> str:
    return f'<g fill="{style.color}">{_MARKS[style.marker]}</g>'


def _grid(panels: Sequence[Panel], kind: str = "") -> str:
    cells = "".join(
        f"<figure><figcaption>{html.escape(panel.title)}</figcaption>{svg(panel)}</figure>"
        for panel in panels
    )
    return f'<div class="panels {kind}">{cells}</div>' if cells else ""


def svg(panel: Panel) -> str:
    """A figure as SVG to be put in HTML: text stays text, no links, and a label for screen readers."""
    import matplotlib

    buffer = io.StringIO()
    settings: Any = {
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "svg.hashsalt": panel.title + panel.alt,
    }
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context(settings):
        panel.figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", text, count=1)
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)
    used = set(re.findall(r"#([\w.-]+)", text))
    text = re.sub(r'\sid="([^"]*)"', lambda found: found[0] if found[1] in used else "", text)
    name = html.escape(panel.alt, quote=True)
    return text.replace("<svg", f'<svg role="img" aria-label="{name}"', 1).strip()
