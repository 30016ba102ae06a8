"""Which rows train and judge a local layer, and whether their gain is enough to keep it.

Rows in the order of time, or of groups, have near relatives among the rows around them, and rows to come will
not. So the last tenth of the rows is also predicted from the others. If the layer does significantly worse
there than with single rows left out, the order means something, and the last tenth is what counts.
"""

from typing import NamedTuple

import numpy as np

LEAST_ROWS = 200
"""With fewer observed rows a target has no local layer, unless one is asked for: too few could judge it."""
_LEAST_REQUIRED = 10
_TRAINED_ROWS, _TRAINED_SHARE = (4_096, 8_192), 0.2
JUDGED_ROWS = 2_048
"""Most rows that are left out in turn, to train the layer (a share of all, within limits) and to judge it.
All rows are neighbours."""
MARGIN = 0.01
"""Gain in nats per row below which the simpler model is kept."""
_WEIGHTS = 1e-12, 1e12
"""Rows of less and of more weight are neighbours as if they had this: single precision has no further."""
LAST_ROWS = 0.1
_LEAST_END = 100
_ORDERED = 3.0
"""Share of the rows at the end, and the least number of them, that judge the layer once more; and the
standard errors by which they must differ from single rows, for the order of the rows to mean something."""


class LocalSettings(NamedTuple):
    """Settings of the local layer."""

    required: bool = False
    """Whether it is kept whatever the judgement."""
    neighbours: int = 64
    steps: int = 64
    """Evaluations of the leave-one-out loss in training."""

    def too_few(self, count: int) -> bool:
        """Whether so many rows can have no layer."""
        return count < (_LEAST_REQUIRED if self.required else LEAST_ROWS)


class Gains(NamedTuple):
    """What a layer adds to the log density of some rows, `(n,)`, each of which counts by its weight."""

    nats: np.ndarray
    weight: np.ndarray

    def mean_and_error(self) -> tuple[float, float]:
        """The mean, and its standard error."""
        share = self.weight / np.sum(self.weight)
        mean = float(share @ self.nats)
        return mean, float(np.sqrt(share @ (self.nats - mean) ** 2 / effective(share)))


class Judgement(NamedTuple):
    """Whether a layer is kept, and why."""

    kept: bool
    note: str


def row_weights(weight: np.ndarray | None, count: int) -> np.ndarray:
    """How often each of `count` rows counts, `(n,)`, within what single precision bears."""
    return np.ones(count) if weight is None else np.clip(weight[:, 0], *_WEIGHTS)


def trained_rows(count: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of the rows that a layer is trained on, in random order: the first ones judge it."""
    return rng.permutation(count)[: int(np.clip(_TRAINED_SHARE * count, *_TRAINED_ROWS))]


def end_of(count: int) -> np.ndarray:
    """Numbers of rows among the last of `count`, none where there are too few: evenly spaced, in order."""
    last = int(LAST_ROWS * count)
    if last < _LEAST_END:
        return np.array([], int)
    return np.linspace(count - last, count - 1, min(last, JUDGED_ROWS)).astype(int)


def judge(single: Gains, last: Gains | None, penalty: float, *, required: bool, name: str = "") -> Judgement:
    """Whether the gains of rows that are left out in turn, or of the `last` rows if their order means
    something, are enough for a layer of the target called `name`, after a penalty in nats per row."""
    gain, error = single.mean_and_error()
    told = f"with each of {len(single.nats):,} rows left out in turn"
    if last is not None:
        later, later_error = last.mean_and_error()
        if later < gain - _ORDERED * np.hypot(error, later_error):
            gain, error = later, later_error
            told = "the order of the rows means something, and with the last tenth of them left out"
    gain -= penalty
    kept = required or gain > max(MARGIN, 2.0 * error)
    note = (
        f"Local layer{name} {'kept' if kept else 'left out'}: {told}, it adds {gain:.3f} to the log "
        f"density of a row (standard error {error:.3f})."
    )
    return Judgement(kept, note)


def effective(weight: np.ndarray) -> float:
    """How many rows of equal weight give a mean as sure as rows of these weights do (Kish)."""
    return float(np.sum(weight) ** 2 / np.sum(weight**2))
