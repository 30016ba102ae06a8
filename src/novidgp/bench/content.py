"""What the tables of a suite contain: our results beside the paper's, average ranks and paired tests."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from novidgp.bench.paper import printed, printed_methods, without_steps
from novidgp.bench.results import Record
from novidgp.bench.suites import Suite
from novidgp.bench.summary import Entry, average_ranks, comparisons, depths, entries, winners

HEADINGS = {
    "rmse": "RMSE",
    "nll": "NLL",
    "rmse_raw": "RMSE, raw units",
    "nll_raw": "NLL, raw units",
    "rmse_train": "RMSE, training",
    "accuracy": "accuracy, %",
    "ece": "ECE",
    "brier": "Brier",
    "auroc_fashion": "AUROC, Fashion",
    "auroc_noise": "AUROC, noise",
    "auroc_mnist": "AUROC, MNIST",
    "seconds_per_step": "s per iteration",
    "seconds_fit": "s per fit",
    "coverage90": "in 90 %",
    "cpu_seconds": "CPU s",
    "cpu_seconds_fit": "CPU s per fit",
}


class Cell(NamedTuple):
    """A piece of text in a table."""

    text: str
    bold: bool = False


class Table(NamedTuple):
    """Headings, blocks of rows that belong together, and notes below the table."""

    title: str
    headings: list[str]
    text_columns: int
    """The number of columns on the left that hold words; the others hold numbers."""
    blocks: list[list[list[Cell]]]
    notes: list[str]
    optional: int = 0
    """The number of columns on the right that a narrow terminal leaves out."""

    @property
    def widths(self) -> list[int]:
        """The width of each column, in characters."""
        rows = [row for block in self.blocks for row in block]
        return [
            max(len(heading), *(len(row[index].text) for row in rows))
            for index, heading in enumerate(self.headings)
        ]


def number(score: str, value: float | None) -> str:
    """A score as text, with as many digits as are meaningful."""
    if value is None:
        return ""
    if score == "accuracy":
        return f"{100 * value:.2f}"
    if score.startswith(("seconds", "cpu")):
        return f"{value:.3g}" if value < 100 else f"{value:.0f}"
    if score == "coverage90":
        return f"{100 * value:.0f} %"
    size = abs(value)
    return f"{value:.{4 if size < 0.0995 else 3 if size < 9.995 else 2}f}"


def with_error(score: str, mean: float | None, error: float | None) -> str:
    """`mean ± standard error`, both with the digits of the mean."""
    text = number(score, mean)
    if not text or error is None or score.startswith(("seconds", "cpu")):
        return text
    scale = 100 if score == "accuracy" else 1
    return f"{text} ± {scale * error:.{len(text.partition('.')[2])}f}"


def suite_tables(suite: Suite, records: Iterable[Record]) -> list[Table]:
    """The table of a suite, and tables of ranks and tests if several methods can be compared."""
    group = entries(suite, records)
    if not group:
        return []
    return [main_table(suite, group), *_comparison_tables(suite, group)]


def main_table(suite: Suite, group: Sequence[Entry]) -> Table:
    """One row per data set, depth and method."""
    scores = list(suite.scores)
    extra = [s for s in ("coverage90", "cpu_seconds") if s not in scores and "rmse" in scores]
    best = {score: winners(group, score) for score in scores}
    columns = _paper_columns(suite, group, scores)
    several = len({entry.place.protocol for entry in group}) > 1
    headings = ["data set", *(["split"] if several else []), "L", "method", "splits"]
    for score in scores:
        headings += [HEADINGS.get(score, score), *(["paper"] if score in columns else [])]
    headings += [HEADINGS[score] for score in extra]
    blocks: list[list[list[Cell]]] = []
    for place in dict.fromkeys(entry.place for entry in group):
        here = {entry.label: entry for entry in group if entry.place == place}
        ghosts = printed_methods(suite.paper, place.dataset, place.layers) if columns else []
        ours = {without_steps(label) for label in here}
        block = []
        for label in [*here, *(name for name in ghosts if name not in ours)]:
            entry = here.get(label)
            first = [place.dataset, *([place.protocol] if several else [])] if not block else []
            first += [""] * (1 + several - len(first))
            row = [*first, "" if place.layers is None else str(place.layers), label, _count(entry)]
            cells = [Cell(text) for text in row]
            theirs = printed(suite.paper, place.dataset, label, place.layers)
            for score in scores:
                mean, error = (entry.mean(score), entry.error(score)) if entry else (None, None)
                cells.append(Cell(with_error(score, mean, error), (place, label) in best[score]))
                if score in columns:
                    cells.append(Cell(theirs[score].text(score) if score in theirs else ""))
            cells += [Cell(number(score, entry.mean(score) if entry else None)) for score in extra]
            block.append(cells)
        blocks.append(block)
    notes = _notes(suite, group, bool(columns))
    return Table(suite.title, headings, 3 + several, blocks, notes, len(extra))


def _paper_columns(suite: Suite, group: Iterable[Entry], scores: Iterable[str]) -> set[str]:
    """The scores for which the paper prints a number at one of our places."""
    if suite.paper is None:
        return set()
    found = set()
    for place in {entry.place for entry in group}:
        for method in printed_methods(suite.paper, place.dataset, place.layers):
            found |= set(printed(suite.paper, place.dataset, method, place.layers))
    return found & set(scores)


def _count(entry: Entry | None) -> str:
    if entry is None:
        return ""
    return f"{len(entry.records)}" + (f" ({entry.failures} failed)" if entry.failures else "")


def _notes(suite: Suite, group: Sequence[Entry], paper: bool) -> list[str]:
    notes = [suite.about, "Mean ± standard error over splits; best of each depth in bold."]
    if paper:
        notes.append("`paper` is what the paper prints, its deviation in brackets, on splits of its own.")
    steps = sorted({entry.fit.steps for entry in group if entry.fit.steps})
    inducing = sorted({entry.fit.inducing for entry in group if entry.fit.inducing})
    if steps:
        settings = f"{_listed(inducing)} inducing points, {_listed(steps)} steps"
        notes.append(f"Deep GPs have {settings}.")
    notes.append(machines(record for entry in group for record in entry.records.values()))
    return notes


def machines(records: Iterable[Record]) -> str:
    """Where the fits were run."""
    found: dict[str, int] = {}
    for record in records:
        m = record.get("machine", {})
        text = (
            f"{m.get('cores', '?')} core(s) of {m.get('cpu', '?')}, novidgp {m.get('novidgp', '?')}, "
            f"JAX {m.get('jax', '?')}, {m.get('jobs', 1)} fit(s) at once"
        )
        found[text] = found.get(text, 0) + 1
    return "Run on " + "; ".join(f"{text} ({count} fits)" for text, count in found.items()) + "."


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _comparison_tables(suite: Suite, group: Sequence[Entry]) -> list[Table]:
    """Average ranks and paired tests, for every depth and the first two scores."""
    ranks_blocks, test_blocks, notes = [], [], []
    for layers in depths(group):
        for score in [name for name in suite.scores if not name.startswith(("seconds", "rmse_train"))][:2]:
            ranks = average_ranks(group, score, layers)
            if ranks is None or len(ranks.places) < 2:
                continue
            sets = str(len(ranks.places))
            ranks_blocks.append(
                [
                    [Cell(text) for text in (heading, depth, label, f"{rank:.2f}", sets)]
                    for heading, depth, (label, rank) in _first_only(
                        HEADINGS.get(score, score), str(layers), ranks.ranks.items()
                    )
                ]
            )
            if ranks.absent:
                notes.append(
                    f"At L={layers} not ranked by {HEADINGS[score]}, for want of some data sets: "
                    f"{', '.join(ranks.absent)}."
                )
            rows = [
                [
                    *map(Cell, (heading, depth, f"{c.leader} against {c.other}", f"{c.wins}:{c.losses}")),
                    Cell(f"{c.pairs} {c.unit}"),
                    Cell(f"{c.p_value:.3f}", c.p_value < 0.05),
                ]
                for heading, depth, c in _first_only(
                    HEADINGS.get(score, score), str(layers), comparisons(group, score, layers)
                )
            ]
            if rows:
                test_blocks.append(rows)
    tables = []
    if ranks_blocks:
        headings = ["score", "L", "method", "average rank", "sets"]
        tables.append(
            Table("Average ranks", headings, 3, ranks_blocks, ["1 is best.", *dict.fromkeys(notes)])
        )
    if test_blocks:
        headings = ["score", "L", "the leading method", "wins:losses", "pairs", "p"]
        text = "Wilcoxon's signed-rank test, two-sided, Holm-adjusted; p below 0.05 in bold."
        tables.append(Table("Paired tests", headings, 3, test_blocks, [text]))
    return tables


def _first_only(heading: str, depth: str, items: Iterable) -> list[tuple]:
    """The items of a block, with the heading on the first row only."""
    return [(heading if index == 0 else "", depth, item) for index, item in enumerate(items)]
