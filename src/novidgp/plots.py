"""Pictures of fits. Figures are made without pyplot: no window, no global state, safe in any thread."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

OURS, PEER, INK, MUTED, GRID = "#1f6f8b", "#b5562c", "#22262b", "#737a83", "#e3e6ea"
_SHADES = LinearSegmentedColormap.from_list("shades", ["white", OURS])


class Bands(NamedTuple):
    """A predictive distribution along a line: the median and central intervals by their coverage."""

    title: str
    x: np.ndarray
    median: np.ndarray
    intervals: Mapping[float, tuple[np.ndarray, np.ndarray]]
    color: str = OURS


class Density(NamedTuple):
    """A conditional density on a grid: `values` `(len(y), len(x))` is `p(y | x)`."""

    title: str
    x: np.ndarray
    y: np.ndarray
    values: np.ndarray


class Map(NamedTuple):
    """Values `(len(y), len(x))` on a grid of places."""

    title: str
    x: np.ndarray
    y: np.ndarray
    values: np.ndarray


class Sureness(NamedTuple):
    """A classifier's probabilities `(n, classes)` for some images."""

    title: str
    probabilities: np.ndarray
    color: str = OURS


def predictive_bands(
    panels: Sequence[Bands],
    x: np.ndarray,
    y: np.ndarray,
    *,
    truth: tuple[np.ndarray, np.ndarray] | None = None,
) -> Figure:
    """Panels side by side on common axes: data, median, and a shade per interval, palest for the widest."""
    figure, axes = _figure(columns=len(panels), width=5.4 * len(panels), height=4.2)
    for index, (ax, bands) in enumerate(zip(axes, panels, strict=True)):
        widest_first = sorted(bands.intervals, reverse=True)
        for depth, coverage in enumerate(widest_first):
            lower, upper = bands.intervals[coverage]
            ax.fill_between(
                bands.x,
                lower,
                upper,
                color=bands.color,
                alpha=0.18 + 0.17 * depth,
                linewidth=0,
                label=f"{coverage:.0%} of new points",
            )
        if truth is not None:
            ax.plot(*truth, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label="truth, without noise")
        ax.plot(bands.x, bands.median, color=bands.color, linewidth=1.8, label="median")
        ax.scatter(x, y, s=9, color=INK, alpha=0.55, linewidths=0, label="training data", zorder=3)
        ax.set_title(bands.title, loc="left", fontsize=11.5, color=INK)
        ax.set_xlabel("x")
        ax.set_ylabel("y" if index == 0 else "")
        ax.legend(loc="lower right", frameon=False, fontsize=8.5, ncols=2)
    low, high = float(np.min(y)), float(np.max(y))
    span = (high - low) or 1.0
    for ax in axes:
        ax.set_xlim(float(panels[0].x.min()), float(panels[0].x.max()))
        ax.set_ylim(low - 0.28 * span, high + 0.15 * span)
    return figure


def density_maps(panels: Sequence[Density], x: np.ndarray, y: np.ndarray) -> Figure:
    """Panels side by side: `p(y | x)` as a shade, on one scale for all panels, under the data points."""
    figure, axes = _figure(columns=len(panels), width=5.4 * len(panels), height=4.2)
    # The darkest shade is the highest panel's 99th percentile: one narrow peak would make the rest too pale.
    top = max(float(np.quantile(panel.values, 0.99)) for panel in panels)
    for index, (ax, panel) in enumerate(zip(axes, panels, strict=True)):
        ax.grid(False)
        ax.pcolormesh(panel.x, panel.y, panel.values, cmap=_SHADES, vmin=0.0, vmax=top, shading="gouraud")
        ax.scatter(x, y, s=7, color=INK, alpha=0.55, linewidths=0, label="data")
        ax.set_title(panel.title, loc="left", fontsize=11.5, color=INK)
        ax.set_xlim(float(panel.x.min()), float(panel.x.max()))
        ax.set_ylim(float(panel.y.min()), float(panel.y.max()))
        ax.set_xlabel("x")
        ax.set_ylabel("y" if index == 0 else "")
    return figure


def maps(panels: Sequence[Map]) -> Figure:
    """Panels side by side on one scale of shades."""
    figure, axes = _figure(columns=len(panels), width=4.6 * len(panels), height=4.3)
    low, high = np.quantile(panels[0].values, [0.005, 0.995])
    for ax, panel in zip(axes, panels, strict=True):
        ax.grid(False)
        mesh = ax.pcolormesh(panel.x, panel.y, panel.values, vmin=low, vmax=high, shading="gouraud")
        ax.set_title(panel.title, loc="left", fontsize=11.5, color=INK)
        ax.set_aspect("equal")
    figure.colorbar(mesh, ax=axes, shrink=0.85, pad=0.01)
    return figure


def surest_first(
    curves: Sequence[Sureness], labels: np.ndarray, images: np.ndarray, least: int = 8
) -> Figure:
    """Left, the log loss over the images that each model is surest of, for every share of them; right, the
    images that the first model is least sure of, with its guess and its probability."""
    figure = Figure(figsize=(12.0, 4.2), layout="constrained")
    halves: Any = figure.subfigures(1, 2, width_ratios=[1.0, 1.15])
    left, right = halves
    ax = left.subplots()
    style_axes(ax)
    count = len(labels)
    for title, probabilities, color in curves:
        order = np.argsort(-probabilities.max(axis=1))
        truth = np.maximum(probabilities[np.arange(count), labels], 1e-12)
        running = np.cumsum(-np.log(truth[order])) / np.arange(1, count + 1)
        ax.plot(np.arange(1, count + 1) / count, running, color=color, linewidth=1.8, label=title)
    ax.set_xlabel("share of the images, the surest first")
    ax.set_ylabel("mean log loss of these")
    ax.xaxis.set_major_formatter("{x:.0%}")
    ax.set_title("what a model says of its own doubt", loc="left", fontsize=11.5, color=INK)
    ax.legend(loc="upper left", frameon=False, fontsize=9)
    guesses = curves[0].probabilities
    for place, index in zip(
        right.subplots(2, least // 2).ravel(), guesses.max(axis=1).argsort(), strict=False
    ):
        place.imshow(images[index], cmap="gray_r")
        place.set_axis_off()
        guess = int(guesses[index].argmax())
        right_or_wrong = OURS if guess == labels[index] else PEER
        place.set_title(
            f"{guess}? {guesses[index, guess]:.0%}; is {labels[index]}", fontsize=9, color=right_or_wrong
        )
    right.suptitle(f"least sure of ({curves[0].title})", fontsize=11.5, color=INK)
    return figure


def training_curve(losses: Mapping[str, np.ndarray], ylabel: str = "negative ELBO per row") -> Figure:
    """One panel per fit: the loss of every step in a pale line, and its running median."""
    figure, axes = _figure(columns=len(losses), width=5.4 * len(losses), height=3.6)
    for index, (ax, (title, loss)) in enumerate(zip(axes, losses.items(), strict=True)):
        loss = np.asarray(loss, np.float64)
        steps = np.arange(1, len(loss) + 1)
        smooth = _running_median(loss, max(len(loss) // 40, 1))
        ax.plot(steps, loss, color=OURS, alpha=0.25, linewidth=0.8, label="each step")
        ax.plot(steps, smooth, color=OURS, linewidth=1.8, label="running median")
        ax.set_title(title, loc="left", fontsize=11.5, color=INK)
        ax.set_xlabel("step")
        ax.set_ylabel(ylabel if index == 0 else "")
        ax.legend(loc="upper right", frameon=False, fontsize=8.5)
        finite = loss[np.isfinite(loss)]
        if len(finite):
            top, bottom = np.quantile(finite, [0.995, 0.0])
            margin = 0.05 * max(top - bottom, 1e-6)
            ax.set_ylim(bottom - margin, top + margin)
        ax.set_xlim(0, max(len(loss), 1))
    return figure


def save_png(figure: Figure, path: str | Path) -> Path:
    """Draw a figure to a PNG file and return its path."""
    path = Path(path)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", dpi=150, facecolor="white")
    return path


def _running_median(values: np.ndarray, half: int) -> np.ndarray:
    padded = np.pad(values, half, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)


def _figure(columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = [figure.add_subplot(1, columns, index + 1) for index in range(columns)]
    for ax in axes:
        style_axes(ax)
    return figure, axes


def style_axes(ax: Axes) -> None:
    """Give axes the style of all pictures: two muted spines, a pale grid behind the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(MUTED)
    ax.tick_params(colors=MUTED, labelsize=9, labelcolor=INK)
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)
    ax.grid(color=GRID, linewidth=0.7)
    ax.set_axisbelow(True)


def posterior_slices(
    draws: Mapping[str, np.ndarray], first: int, second: int, labels: Sequence[str]
) -> Figure:
    """Posteriors of two coordinates, all methods in the same panels: both marginals, then the joint density.

    `draws` maps a name to draws `(s, d)`. The first entry is the reference and is filled in grey.
    """
    figure, axes = _figure(columns=3, width=14.0, height=4.2)
    colors = (MUTED, OURS, PEER, "#6a4c93", "#3d7c3f")
    for index, (name, rows) in enumerate(draws.items()):
        color, pair = colors[index % len(colors)], rows[:, [first, second]].T
        for ax, values, label in zip(axes[:2], pair, labels, strict=True):
            low, high = np.quantile(values, [0.001, 0.999])
            grid = np.linspace(low, high, 200)
            density = gaussian_kde(values)(grid)
            if index == 0:
                ax.fill_between(grid, density, color=color, alpha=0.25, linewidth=0, label=name)
            else:
                ax.plot(grid, density, color=color, linewidth=1.9, label=name)
            ax.set_xlabel(label)
        low, high = np.quantile(pair, [0.001, 0.999], axis=1)
        x, y = np.meshgrid(np.linspace(low[0], high[0], 70), np.linspace(low[1], high[1], 70))
        density = gaussian_kde(pair)(np.stack([x.ravel(), y.ravel()])).reshape(x.shape)
        levels = density_levels(density, (0.9, 0.5))
        if index == 0:
            axes[2].contourf(x, y, density, [*levels, density.max()], colors=["#dfe1e4", "#c3c7cb"])
        else:
            axes[2].contour(x, y, density, levels, colors=[color], linewidths=1.7)
    axes[0].set_ylabel("density")
    axes[0].legend(loc="upper right", frameon=False, fontsize=9)
    axes[2].set_xlabel(labels[0])
    axes[2].set_ylabel(labels[1])
    axes[2].set_title("joint: regions of 50 % and 90 %", loc="left", fontsize=11.5, color=INK)
    axes[0].set_title("marginals", loc="left", fontsize=11.5, color=INK)
    return figure


def density_levels(density: np.ndarray, masses: Sequence[float]) -> list[float]:
    """The heights above which a density on a regular grid has the given masses."""
    ordered = np.sort(density.ravel())[::-1]
    mass_above = np.cumsum(ordered) / ordered.sum()
    return [float(ordered[np.searchsorted(mass_above, mass)]) for mass in masses]
