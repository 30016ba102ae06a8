"""Pictures of what classifiers of images are sure of."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from novidgp.bench.certainty import LEAST
from novidgp.bench.figures import Panel, panel, styles
from novidgp.bench.summary import Entry
from novidgp.plots import INK, OURS, PEER


def reliability_panels(group: Sequence[Entry]) -> list[Panel]:
    """For every data set the share of right guesses against the largest probability; a larger mark is of more
    images."""
    panels = []
    looks = styles([entry.label for entry in group])
    for dataset in dict.fromkeys(entry.place.dataset for entry in group):
        figure, ax = panel()
        ax.plot([0, 100], [0, 100], color=INK, linewidth=1.0)
        drawn = 0
        for entry in group:
            curve = _first(entry, "reliability") if entry.place.dataset == dataset else None
            if curve is None:
                continue
            mean, right, share = 100 * np.array(curve).T
            look = looks[entry.label]
            ax.plot(mean, right, color=look.color, linewidth=1.2)
            ax.scatter(mean, right, s=6 + 0.8 * share, color=look.color, marker=look.marker)
            drawn += 1
        ax.set_xlabel("largest probability, %")
        ax.set_ylabel("right, %")
        alt = f"share of right guesses against the largest probability on {dataset}, {drawn} methods"
        if drawn:
            panels.append(Panel(dataset, figure, alt))
    return panels


def unsure_panels(group: Sequence[Entry]) -> list[Panel]:
    """For every entry the test images that it is least sure of."""
    panels = []
    for entry in group:
        found = _first(entry, "unsure")
        if found is None:
            continue
        figure = Figure(figsize=(4.6, 2.7), layout="constrained")
        for place, shown in zip(figure.subplots(2, LEAST // 2).ravel(), found["images"], strict=False):
            pixels = np.frombuffer(base64.b64decode(shown["pixels"]), np.uint8).reshape(found["shape"])
            place.imshow(pixels, cmap="gray_r" if pixels.ndim == 2 else None)
            place.set_axis_off()
            color = OURS if shown["guess"] == shown["label"] else PEER
            text = f"{shown['guess']}? {shown['chance']:.0%}; is {shown['label']}"
            place.set_title(text, fontsize=7.5, color=color)
        title = f"{entry.place.dataset}: {entry.label}"
        panels.append(Panel(title, figure, f"test images that {entry.label} is least sure of"))
    return panels


def _first(entry: Entry, name: str) -> Any:
    """What the first record that has it keeps under a name."""
    found = (record["scores"].get(name) for record in entry.records.values())
    return next((value for value in found if value is not None), None)
