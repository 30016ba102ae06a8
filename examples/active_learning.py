# %% [markdown]
# # Where to measure next
#
# A measurement is expensive, a guess is cheap. There are 500 points to choose from, most of them in the
# middle, but we want to know the whole square. We start with 20 of them and then ask for five more, eight
# times: at random, or where the model is least sure.

# %%
import os
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from novidgp import DGPRegressor, plots

ROUNDS, REPEATS, QUERIES = 9, 3, 5
grid = np.stack(np.meshgrid(*2 * [np.linspace(-1, 1, 40)]), axis=-1).reshape(-1, 2)


def truth(X):
    """A hollow with a steep edge, on a slope."""
    return np.tanh(4 * (np.sum(X**2, axis=1) - 0.5)) + 0.5 * X[:, 1]


# %% [markdown]
# The most uncertain points of a pool lie close together, and five neighbours tell little more than one. So
# each of the five queries is the most uncertain of 40 points drawn at random.


# %%
def learn(by_variance, seed):
    """The error after every round, and the points measured in the end."""
    rng = np.random.default_rng(seed)
    pool = np.clip(0.35 * rng.standard_normal((500, 2)), -1, 1)
    y = truth(pool) + 0.05 * rng.standard_normal(len(pool))
    measured, errors = list(range(20)), []
    for _ in range(ROUNDS):
        model = DGPRegressor(inference="dsvi", num_inducing=20, max_steps=500, random_state=seed)
        model.fit(pool[measured], y[measured])
        errors.append(np.sqrt(np.mean((model.predict(grid) - truth(grid)) ** 2)))
        unknown = rng.permutation(np.setdiff1d(np.arange(len(pool)), measured))
        candidates = unknown[: 40 * QUERIES].reshape(QUERIES, 40)
        _, std = model.predict(pool[candidates.ravel()], return_std=True)
        best = std.reshape(QUERIES, 40).argmax(axis=1) if by_variance else 0
        measured += list(candidates[np.arange(QUERIES), best])
    return np.array(errors), pool[measured]


runs = {
    "by variance": [learn(True, seed) for seed in range(REPEATS)],
    "at random": [learn(False, seed) for seed in range(REPEATS)],
}

# %%
figure = Figure(figsize=(10.8, 4.2), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
rows = 20 + QUERIES * np.arange(ROUNDS)
for (name, results), color in zip(runs.items(), (plots.OURS, plots.PEER), strict=True):
    errors = np.array([errors for errors, _ in results])
    print(f"{name:12} mean error", " ".join(f"{error:.3f}" for error in errors.mean(axis=0)))
    left.plot(rows, errors.T, color=color, alpha=0.3, linewidth=0.9)
    left.plot(rows, errors.mean(axis=0), color=color, linewidth=2.2, label=f"queries {name}")
    right.scatter(*results[0][1][20:].T, s=14, color=color, clip_on=False, zorder=3)
right.pcolormesh(
    *grid.T.reshape(2, 40, 40), truth(grid).reshape(40, 40), cmap="Greys", alpha=0.4, linewidth=0
)
for ax, title in zip(
    (left, right), ("error on the whole square", "what was asked, first repeat"), strict=True
):
    plots.style_axes(ax)
    ax.set_title(title, loc="left", fontsize=11.5)
right.grid(False)
left.set(xlabel="points measured", ylabel="root mean squared error")
left.legend(frameon=False)
pictures = Path(os.environ.get("NOVIDGP_EXAMPLES_OUT", Path(__file__).parent / "pictures"))
plots.save_png(figure, pictures / "active_learning.png")

# %% [markdown]
# With 15 queries by variance the mean error falls from 0.80 to 0.20. At random it is 0.35 after all 40
# queries, because random queries go where most points are, which is the middle. Beyond 35 points the error by
# variance hardly falls any more. The gain comes from the uneven choice of points. When we spread the points
# evenly over the square and made the edge steeper, there was little between the two (0.139 and 0.158 in the
# end, and at random was ahead for part of the way).
