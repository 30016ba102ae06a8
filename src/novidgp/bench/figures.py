"""Pictures of results, as small panels that a page can arrange."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from novidgp.bench.paper import printed
from novidgp.bench.scoring import COVERAGE_LEVELS
from novidgp.bench.suites import Suite
from novidgp.bench.summary import Entry, Ranks
from novidgp.plots import INK, MUTED, style_axes

_STYLES = {
    "novi": ("#0072b2", "o"),
    "dsvi": ("#d55e00", "s"),
    "sghmc": ("#009e73", "^"),
    "ipvi": ("#cc79a7", "v"),
    "flow": ("#2a9d8f", "d"),
    "iwvi": ("#8c6d1f", "D"),
    "iwvi-dreg": ("#b39b00", "P"),
    "ml": ("#5b4a8a", "X"),
    "exact-gp": ("#3d434b", "*"),
    "hist-gb": ("#80868e", "h"),
    "gpytorch-dsvi": ("#a63d40", "p"),
}
DASHES = {"exact-gp": (5, 2), "hist-gb": (1, 2)}
"""Methods without layers are drawn as dashed lines across a figure by depth."""
_SPARE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d1f", "#5b4a8a", "#2a9d8f", "#b5562c", "#3d434b")
_MARKERS = "os^vDPX*h"


class Style(NamedTuple):
    """Colour and marker. They differ together, so that a print in grey is readable."""

    color: str
    marker: str


class Panel(NamedTuple):
    """A picture, its title, and a description for screen readers."""

    title: str
    figure: Figure
    alt: str


def styles(labels: Sequence[str]) -> dict[str, Style]:
    """A style for every label: methods have fixed styles, variants get spare ones."""
    labels = list(dict.fromkeys(labels))
    found = {label: Style(*_STYLES[label]) for label in labels if label in _STYLES}
    taken = {style.color for style in found.values()}
    spare = [(c, m) for c, m in zip(_SPARE, _MARKERS, strict=True) if c not in taken] or list(
        zip(_SPARE, _MARKERS, strict=True)
    )
    for index, label in enumerate(label for label in labels if label not in found):
        found[label] = Style(*spare[index % len(spare)])
    return {label: found[label] for label in labels}


def panel(width: float = 3.7, height: float = 2.7) -> tuple[Figure, Axes]:
    """An empty picture with styled axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    ax = figure.add_subplot()
    style_axes(ax)
    return figure, ax


def depth_panels(suite: Suite, group: Sequence[Entry], score: str, heading: str) -> list[Panel]:
    """A score by depth, one panel per data set, with the paper's values as hollow marks."""
    looks = styles([entry.label for entry in group])
    panels = []
    for dataset in dict.fromkeys(entry.place.dataset for entry in group):
        here = [entry for entry in group if entry.place.dataset == dataset and entry.mean(score) is not None]
        deep = [label for label in looks if any(e.label == label and e.place.layers for e in here)]
        if not deep:
            continue
        figure, ax = panel()
        depths = sorted({entry.place.layers for entry in here if entry.place.layers})
        for index, label in enumerate(deep):
            look = looks[label]
            dodge = 0.09 * (index - (len(deep) - 1) / 2)
            mine = sorted((e for e in here if e.label == label), key=lambda e: e.place.layers or 0)
            x = [float(e.place.layers or 0) + dodge for e in mine]
            means = [e.mean(score) for e in mine]
            errors = [e.error(score) or 0.0 for e in mine]
            ax.errorbar(
                x,
                means,  # pyright: ignore[reportArgumentType]
                errors,
                color=look.color,
                marker=look.marker,
                markersize=5.5,
                linewidth=1.5,
                elinewidth=1.1,
            )
            theirs = [(e.place.layers, printed(suite.paper, dataset, label, e.place.layers)) for e in mine]
            hollow = [(float(L or 0) + dodge, p[score].mean) for L, p in theirs if score in p]
            if hollow:
                ax.scatter(
                    *np.array(hollow).T,
                    s=34,
                    marker=look.marker,
                    facecolors="none",
                    edgecolors=look.color,
                    linewidths=1.1,
                    alpha=0.75,
                )
        for entry in here:
            value = entry.mean(score)
            if entry.label in DASHES and value is not None:
                line = ax.axhline(value, color=looks[entry.label].color, linewidth=1.2, zorder=1)
                line.set_dashes(DASHES[entry.label])
        ax.set_xticks(depths, [str(depth) for depth in depths])
        ax.set_xlim(depths[0] - 0.5, depths[-1] + 0.5)
        ax.set_xlabel("layers")
        ax.set_ylabel(heading)
        panels.append(Panel(dataset, figure, f"{heading} on {dataset} by depth, {len(deep)} methods"))
    return panels


def cost_panels(group: Sequence[Entry], heading: str, score: str = "rmse") -> list[Panel]:
    """CPU seconds of a fit against its error, one panel per data set; the number at a mark is the depth."""
    looks = styles([entry.label for entry in group])
    panels = []
    for dataset in dict.fromkeys(entry.place.dataset for entry in group):
        here = [entry for entry in group if entry.place.dataset == dataset]
        points = [(e, e.mean("cpu_seconds"), e.mean(score)) for e in here]
        points = [(e, x, y) for e, x, y in points if x is not None and y is not None]
        if len(points) < 2:
            continue
        figure, ax = panel()
        for entry, x, y in points:
            look = looks[entry.label]
            ax.scatter([x], [y], s=42, color=look.color, marker=look.marker, zorder=3, linewidths=0)
            if entry.place.layers:
                ax.annotate(
                    str(entry.place.layers), (x, y), (4, 3), textcoords="offset points", fontsize=8, color=INK
                )
        seconds = np.array([x for _, x, _ in points])
        ax.set_xscale("log")
        low, high = seconds.min() / 1.6, seconds.max() * 1.6
        ax.set_xlim(low, high)
        steps = (1, 2, 5) if high / low < 30 else (1, 3) if high / low < 300 else (1,)
        ticks = [step * 10.0**e for e in range(-3, 7) for step in steps if low <= step * 10.0**e <= high]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.margins(y=0.18)
        ax.set_xlabel("CPU seconds of a fit")
        ax.set_ylabel(heading)
        panels.append(Panel(dataset, figure, f"{heading} on {dataset} against CPU seconds"))
    return panels


def calibration_panels(group: Sequence[Entry], layers: int) -> list[Panel]:
    """Share of test targets within central intervals minus the nominal share, averaged over data sets."""
    looks = styles([entry.label for entry in group])
    figure, ax = panel()
    ax.axhline(0.0, color=INK, linewidth=1.0)
    nominal = 100 * np.array(COVERAGE_LEVELS)
    drawn = 0
    for label, look in looks.items():
        mine = [e for e in group if e.label == label and e.place.layers in (layers, None)]
        curves = [
            np.mean(
                [r["scores"]["coverage"] for r in e.records.values() if "coverage" in r["scores"]], axis=0
            )
            for e in mine
            if any("coverage" in r["scores"] for r in e.records.values())
        ]
        if curves:
            ax.plot(
                nominal,
                100 * np.mean(curves, axis=0) - nominal,
                color=look.color,
                marker=look.marker,
                markersize=4.5,
                linewidth=1.4,
            )
            drawn += 1
    ax.set_xlim(0, 100)
    low, high = ax.get_ylim()
    ax.set_ylim(min(low, -5.0), max(high, 5.0))
    ax.set_xlabel("nominal, %")
    ax.set_ylabel("observed − nominal, points")
    alt = f"observed against nominal coverage of central intervals, {drawn} methods, {layers} layers"
    return [Panel(f"{layers} layers", figure, alt)] if drawn else []


def curve_panels(group: Sequence[Entry], along: Literal["step", "seconds"] = "step") -> list[Panel]:
    """Test (solid) and training (dashed) error during training, mean over splits, one panel per data set.

    Seconds are those of the steps alone: the time of compilation depends on what was compiled before.
    """
    looks = styles([entry.label for entry in group])
    panels = []
    for dataset in dict.fromkeys(entry.place.dataset for entry in group):
        figure, ax = panel()
        lowest, highest = [], []
        for entry in group:
            scores = [r["scores"] for r in entry.records.values() if r["scores"].get("curve")]
            if entry.place.dataset != dataset or not scores:
                continue
            curves = [values["curve"] for values in scores]
            kind = "rmse" if "rmse_test" in curves[0] else "error"
            length = min(len(curve["step"]) for curve in curves)
            pace = np.mean([values["seconds_per_step"] for values in scores]) if along == "seconds" else 1.0
            way = pace * np.array(curves[0]["step"][:length])
            look = looks[entry.label]
            for part, dash, width in (("test", "solid", 1.8), ("train", (0, (4, 2)), 1.3)):
                values = np.array([curve[f"{kind}_{part}"][:length] for curve in curves])
                mean = values.mean(0)
                ax.plot(way, mean, color=look.color, linestyle=dash, linewidth=width)
                if part == "test" and len(values) > 1:
                    ax.fill_between(
                        way, values.min(0), values.max(0), color=look.color, alpha=0.13, linewidth=0
                    )
                lowest.append(mean.min())
                highest.append(np.quantile(mean, 0.9))
        if not lowest:
            continue
        margin = 0.12 * (max(highest) - min(lowest) or 1.0)
        ax.set_ylim(max(0.0, min(lowest) - margin), max(highest) + 2 * margin)
        if along == "seconds":
            ax.set_xscale("log")
        ax.set_xlabel(along)
        ax.set_ylabel("RMSE")
        panels.append(Panel(dataset, figure, f"test and training error on {dataset} along the {along}"))
    return panels


def critical_difference_panel(ranks: Ranks, looks: Mapping[str, Style], heading: str) -> Panel:
    """Demsar's diagram: average ranks on a line, methods that could be equal joined by a bar."""
    names, values = list(ranks.ranks), list(ranks.ranks.values())
    count, half = len(names), (len(names) + 1) // 2
    groups = cliques(values, ranks.critical)
    depth = 0.55 + 0.3 * len(groups)
    figure = Figure(figsize=(4.7, 0.7 + 0.27 * (half + len(groups))), layout="constrained")
    ax = figure.add_subplot()
    ax.set_axis_off()
    ax.set_xlim(1 - 0.42 * (count - 1) - 0.3, count + 0.42 * (count - 1) + 0.3)
    ax.set_ylim(-depth - 0.55 * half, 1.35)
    ax.plot([1, count], [0, 0], color=INK, linewidth=1.2)
    for tick in range(1, count + 1):
        ax.plot([tick, tick], [0, 0.16], color=INK, linewidth=1.0)
        ax.text(tick, 0.24, str(tick), ha="center", va="bottom", fontsize=9, color=INK)
    ax.plot([1, min(1 + ranks.critical, count)], [0.95, 0.95], color=MUTED, linewidth=2.2)
    reach = "" if 1 + ranks.critical <= count else ", beyond the axis"
    ax.text(
        1, 1.04, f"critical difference {ranks.critical:.2f}{reach}", fontsize=8.5, color=MUTED, va="bottom"
    )
    for index, (name, value) in enumerate(zip(names, values, strict=True)):
        left = index < half
        row = index if left else count - 1 - index
        y = -depth - 0.55 * row
        edge = 1 - 0.1 if left else count + 0.1
        color = looks[name].color if name in looks else INK
        ax.plot([value, value, edge], [0, y, y], color=color, linewidth=1.2)
        ax.scatter([value], [0], s=22, color=color, zorder=3)
        text = f"{name}  {value:.2f}" if left else f"{value:.2f}  {name}"
        gap = 0.03 * count
        place = {"ha": "right" if left else "left", "va": "center"}
        ax.text(edge - gap if left else edge + gap, y, text, fontsize=9.5, color=INK, **place)  # pyright: ignore[reportArgumentType]
    for index, (low, high) in enumerate(groups):
        y = -0.28 - 0.3 * index
        ax.plot([low - 0.04, high + 0.04], [y, y], color=INK, linewidth=3.4, solid_capstyle="round")
    title = f"{heading}, {ranks.layers} layers, {len(ranks.places)} data sets"
    alt = f"average ranks by {heading}: " + ", ".join(f"{n} {v:.2f}" for n, v in ranks.ranks.items())
    return Panel(title, figure, alt)


def cliques(values: Sequence[float], critical: float) -> list[tuple[float, float]]:
    """The longest stretches of sorted ranks within `critical` of one another, of two methods or more."""
    found: list[tuple[float, float]] = []
    for index, low in enumerate(values):
        high = max(value for value in values[index:] if value - low <= critical)
        if high > low and not any(a <= low and high <= b for a, b in found):
            found.append((low, high))
    return found
