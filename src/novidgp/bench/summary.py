"""From result files to numbers: means over splits, ranks, paired tests, critical differences."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from novidgp.bench.results import Record, failed, finished, fit_of
from novidgp.bench.spec import BASELINES, Fit
from novidgp.bench.suites import Suite

HIGHER_IS_BETTER = ("accuracy", "auroc_fashion", "auroc_mnist", "auroc_noise")
FEWEST_PAIRS = 6
"""Fewer pairs cannot give p < 0.05. With fewer data sets, splits are compared; with fewer splits, nothing."""


class Place(NamedTuple):
    """Where methods are compared: a data set under a protocol, at a depth."""

    dataset: str
    protocol: str
    layers: int | None


class Entry(NamedTuple):
    """A method at a place: its records by split."""

    place: Place
    label: str
    fit: Fit
    records: dict[int, Record]
    failures: int

    def values(self, score: str) -> dict[int, float]:
        """The finite values of a score, by split."""
        found = {seed: record["scores"].get(score) for seed, record in self.records.items()}
        return {seed: float(value) for seed, value in found.items() if _number(value)}

    def mean(self, score: str) -> float | None:
        """Mean over splits."""
        values = list(self.values(score).values())
        return float(np.mean(values)) if values else None

    def error(self, score: str) -> float | None:
        """Standard error of the mean; None with a single split."""
        values = list(self.values(score).values())
        return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def entries(suite: Suite, records: Iterable[Record]) -> list[Entry]:
    """The methods of a suite at their places, in the suite's order."""
    records = list(records)
    found: dict[tuple[Place, str], Entry] = {}
    for bad, group in ((False, finished(records)), (True, failed(records))):
        for record in group.values():
            fit = fit_of(record)
            place, label = Place(fit.dataset, fit.protocol, fit.layers), suite.label(fit)
            entry = found.setdefault((place, label), Entry(place, label, fit, {}, 0))
            if bad:
                found[place, label] = entry._replace(failures=entry.failures + 1)
            else:
                entry.records[fit.seed] = record
    order = [suite.label(fit) for fit in suite.fits()]

    def position(entry: Entry) -> tuple:
        place = entry.place
        return (
            _index(suite.datasets, place.dataset),
            place.dataset,
            _index(suite.protocols, place.protocol),
            place.layers if place.layers is not None else np.inf,
            _index(order, entry.label),
            entry.label,
        )

    return sorted(found.values(), key=position)


def better(score: str, first: float, second: float) -> bool:
    """Whether `first` beats `second`."""
    return first > second if score in HIGHER_IS_BETTER else first < second


def winners(group: Sequence[Entry], score: str) -> set[tuple[Place, str]]:
    """The best entry of every place that has several.

    An entry without layers must also beat the best one of every depth.
    """
    best: dict[Place, tuple[float, str]] = {}
    rivals_at: dict[Place, int] = {}
    for entry in group:
        mean = entry.mean(score)
        rivals_at[entry.place] = rivals_at.get(entry.place, 0) + (mean is not None)
        if mean is not None and (entry.place not in best or better(score, mean, best[entry.place][0])):
            best[entry.place] = (mean, entry.label)
    chosen = set()
    for place, (mean, label) in best.items():
        rivals = [
            value
            for other, (value, _) in best.items()
            if other[:2] == place[:2] and other.layers is not None and place.layers is None
        ]
        contested = rivals_at[place] > 1 or rivals
        if contested and all(better(score, mean, rival) for rival in rivals):
            chosen.add((place, label))
    return chosen


# --- several data sets ----------------------------------------------------------------------------


class Ranks(NamedTuple):
    """Average ranks over data sets, best first, and Nemenyi's critical difference at the 5 % level."""

    score: str
    layers: int | None
    ranks: dict[str, float]
    places: list[Place]
    critical: float
    absent: list[str]
    """Methods left out because they lack some of the data sets."""


def depths(group: Iterable[Entry]) -> list[int]:
    """The depths of the entries."""
    return sorted({entry.place.layers for entry in group if entry.place.layers is not None})


def table_of_means(
    group: Iterable[Entry], score: str, layers: int | None
) -> dict[str, dict[tuple[str, str], float]]:
    """Means of the methods at a depth, and of those without depth, by data set and protocol."""
    means: dict[str, dict[tuple[str, str], float]] = {}
    for entry in group:
        mean = entry.mean(score)
        if mean is not None and entry.place.layers in (layers, None):
            means.setdefault(entry.label, {})[entry.place[:2]] = mean
    return means


def average_ranks(group: Iterable[Entry], score: str, layers: int | None) -> Ranks | None:
    """Ranks of the methods that have results on every data set at this depth; None for fewer than two."""
    from scipy.stats import rankdata

    means = table_of_means(group, score, layers)
    deep = [places for label, places in means.items() if label not in BASELINES]
    sets = list(dict.fromkeys(place for places in deep for place in places))
    complete = [label for label, places in means.items() if set(sets) <= set(places)]
    if len(complete) < 2 or not sets:
        return None
    sign = -1.0 if score in HIGHER_IS_BETTER else 1.0
    values = np.array([[sign * means[label][place] for label in complete] for place in sets])
    ranks = rankdata(values, axis=1).mean(0)
    ordered = sorted(zip(complete, ranks.tolist(), strict=True), key=lambda pair: pair[1])
    absent = [label for label in means if label not in complete]
    where = [Place(*place, layers) for place in sets]
    return Ranks(score, layers, dict(ordered), where, critical_difference(len(complete), len(sets)), absent)


def critical_difference(methods: int, sets: int, level: float = 0.05) -> float:
    """Nemenyi's critical difference: average ranks closer than this may differ by chance (Demsar 2006)."""
    from scipy.stats import studentized_range

    quantile = studentized_range.ppf(1.0 - level, methods, np.inf) / np.sqrt(2.0)
    return float(quantile * np.sqrt(methods * (methods + 1) / (6.0 * sets)))


class Comparison(NamedTuple):
    """The leading method against another: a paired Wilcoxon test."""

    leader: str
    other: str
    wins: int
    losses: int
    pairs: int
    p_value: float
    """Two-sided, adjusted for the number of comparisons (Holm)."""
    unit: str
    """What a pair is: `data sets` (means over common splits) or `splits`."""


def comparisons(group: Sequence[Entry], score: str, layers: int | None) -> list[Comparison]:
    """The method of the best average rank against every other one, at a depth."""
    group = [entry for entry in group if entry.place.layers in (layers, None)]
    ranks = average_ranks(group, score, layers)
    if ranks is None:
        return []
    leader = next(iter(ranks.ranks))
    found = []
    for other in dict.fromkeys(entry.label for entry in group):
        if other != leader:
            differences, unit = paired_differences(group, score, leader, other)
            if len(differences) >= FEWEST_PAIRS:
                gain = differences if score in HIGHER_IS_BETTER else -differences
                wins, losses = int(np.sum(gain > 0)), int(np.sum(gain < 0))
                p = signed_rank_p(differences)
                found.append(Comparison(leader, other, wins, losses, len(differences), p, unit))
    adjusted = holm([comparison.p_value for comparison in found])
    return [entry._replace(p_value=p) for entry, p in zip(found, adjusted, strict=True)]


def paired_differences(group: Sequence[Entry], score: str, first: str, second: str) -> tuple[np.ndarray, str]:
    """`first` minus `second` on the splits that both have, averaged by data set if there are enough sets."""
    values: dict[str, dict[tuple, dict[int, float]]] = {first: {}, second: {}}
    for entry in group:
        if entry.label in values:
            values[entry.label][entry.place[:2]] = entry.values(score)
    by_set = []
    for place, mine in values[first].items():
        theirs = values[second].get(place, {})
        shared = [mine[seed] - theirs[seed] for seed in mine if seed in theirs]
        if shared:
            by_set.append(shared)
    if len(by_set) >= FEWEST_PAIRS:
        return np.array([np.mean(shared) for shared in by_set]), "data sets"
    return np.array([difference for shared in by_set for difference in shared]), "splits"


def signed_rank_p(differences: np.ndarray) -> float:
    """Two-sided p-value of Wilcoxon's signed-rank test; 1 if all differences are zero."""
    from scipy.stats import wilcoxon

    differences = np.asarray(differences, float)
    if not np.any(differences):
        return 1.0
    return float(np.asarray(wilcoxon(differences).pvalue))  # pyright: ignore[reportAttributeAccessIssue]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment for several comparisons."""
    order = np.argsort(p_values)
    adjusted, highest = np.ones(len(p_values)), 0.0
    for step, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - step) * p_values[index]))
        adjusted[index] = highest
    return adjusted.tolist()


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def _index(sequence: Sequence[str], value: str) -> int:
    return list(sequence).index(value) if value in sequence else len(sequence)
