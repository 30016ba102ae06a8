"""Draws `race.png` from `results/race.jsonl`: test RMSE by the second, the default and the paper's settings.

python docs/pictures/race.py

Prints how much sooner the default is where the paper's settings get to at best.
"""

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from novidgp.plots import save_png

ROOT = Path(__file__).parents[2]
LOOKS = {"default": ("#0072b2", "default"), "paper": ("#d55e00", "paper's settings")}

curves = {}
for line in (ROOT / "results" / "race.jsonl").read_text().splitlines():
    record = json.loads(line)
    fit, scores = record["fit"], record["scores"]
    steps = np.array(scores["curve"]["step"])
    curves[fit["dataset"], fit["preset"]] = steps * scores["seconds_per_step"], scores["curve"]["rmse_test"]


def reached(curve, level):
    """Seconds until the error is first at most `level`."""
    seconds, rmse = curve
    return next(second for second, error in zip(seconds, rmse, strict=True) if error <= level)


names = sorted({dataset for dataset, _ in curves}, reverse=True)
figure = Figure(figsize=(4.2 * len(names), 3.2), layout="constrained")
for ax, name in zip(np.ravel(figure.subplots(1, len(names))), names, strict=True):
    for preset, (color, label) in LOOKS.items():
        ax.plot(*curves[name, preset], color=color, label=label)
    best = min(curves[name, "paper"][1])
    paper, default = (reached(curves[name, preset], best) for preset in ("paper", "default"))
    print(
        f"{name}: RMSE {best:.3f} in {paper:.0f} s, the default in {default:.1f} s: {paper / default:.0f} x"
    )
    ax.axhline(best, color="#80868e", linewidth=0.8, linestyle="dashed")
    ax.set(title=name, xlabel="seconds, compilation left out", ylabel="test RMSE", xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    ax.legend(frameon=False)
save_png(figure, Path(__file__).with_name("race.png"))
