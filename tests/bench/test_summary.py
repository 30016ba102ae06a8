"""Means, ranks and tests, against numbers worked out by hand or by SciPy."""

import numpy as np
import pytest
from scipy import stats

from novidgp.bench import summary
from novidgp.bench.figures import cliques
from novidgp.bench.spec import Fit
from novidgp.bench.suites import SUITES, narrowed
from support import fake

SETS = ("boston", "energy", "concrete", "yacht", "qsar", "kin8nm")


def group(values):
    """Entries of the suite uci at L=2 from `values[method][dataset] = [a score per split]`."""
    records = []
    for method, sets in values.items():
        layers = None if method in ("exact-gp", "hist-gb") else 2
        for dataset, scores in sets.items():
            for seed, value in enumerate(scores):
                settings = (layers, 100, 1000) if layers else ()
                records.append(fake.record(Fit(dataset, "random", seed, method, *settings), rmse=value))
    return summary.entries(SUITES["uci"], records)


def test_mean_and_standard_error_over_splits():
    (entry,) = group({"novi": {"boston": [1.0, 2.0, 4.0]}})
    assert entry.mean("rmse") == pytest.approx(7 / 3)
    assert entry.error("rmse") == pytest.approx(stats.sem([1.0, 2.0, 4.0]))
    (single,) = group({"novi": {"boston": [1.0]}})
    assert single.error("rmse") is None
    assert single.mean("no such score") is None


def test_a_score_that_is_not_finite_does_not_count():
    (entry,) = group({"novi": {"boston": [1.0, float("nan"), 3.0]}})
    assert entry.mean("rmse") == 2.0


def test_ranks_are_averaged_over_data_sets_with_ties_shared():
    entries = group(
        {
            "novi": {"boston": [1.0], "energy": [2.0], "yacht": [3.0]},
            "dsvi": {"boston": [2.0], "energy": [1.0], "yacht": [3.0]},
            "ml": {"boston": [3.0], "energy": [3.0], "yacht": [1.0]},
            "exact-gp": {"boston": [0.1]},
        }
    )
    ranks = summary.average_ranks(entries, "rmse", 2)
    assert ranks is not None
    assert ranks.ranks == pytest.approx({"novi": 5.5 / 3, "dsvi": 5.5 / 3, "ml": 7 / 3})
    assert ranks.absent == ["exact-gp"]
    assert len(ranks.places) == 3


def test_accuracy_ranks_the_other_way():
    fits = [Fit("german", "random", 0, method, 2, 100, 1000) for method in ("novi", "dsvi")]
    records = [fake.record(fit, accuracy=value) for fit, value in zip(fits, (0.9, 0.8), strict=True)]
    ranks = summary.average_ranks(summary.entries(SUITES["uci-class"], records), "accuracy", 2)
    assert ranks is not None
    assert ranks.ranks == {"novi": 1.0, "dsvi": 2.0}


def test_critical_difference_is_demsars():
    """His Table 5: q = 2.569 for four methods, 2.728 for five."""
    assert summary.critical_difference(4, 14) == pytest.approx(2.569 * np.sqrt(20 / 84), abs=1e-3)
    assert summary.critical_difference(5, 30) == pytest.approx(2.728 * np.sqrt(30 / 180), abs=1e-3)


def test_cliques_are_the_longest_stretches_within_the_difference():
    assert cliques([1.0, 1.5, 2.2, 4.0], 1.0) == [(1.0, 1.5), (1.5, 2.2)]
    assert cliques([1.0, 1.5, 1.9], 1.0) == [(1.0, 1.9)]
    assert cliques([1.0, 3.0], 1.0) == []


def test_few_data_sets_are_compared_split_by_split():
    mine, theirs = [1.0, 1.1, 1.2, 1.05, 0.9, 1.3], [1.2, 1.0, 1.5, 1.45, 1.4, 1.9]
    few = group({"novi": {"boston": mine[:5]}, "dsvi": {"boston": theirs[:5]}})
    assert not summary.comparisons(few, "rmse", 2), "five pairs cannot give p < 0.05"
    entries = group({"novi": {"boston": mine}, "dsvi": {"boston": theirs}})
    (test,) = summary.comparisons(entries, "rmse", 2)
    assert (test.leader, test.other, test.wins, test.losses, test.pairs) == ("novi", "dsvi", 5, 1, 6)
    assert test.unit == "splits"
    assert test.p_value == pytest.approx(stats.wilcoxon(mine, theirs).pvalue)


def test_six_data_sets_are_compared_by_their_means_on_common_splits():
    generator = np.random.default_rng(0)
    novi = {name: generator.uniform(0.9, 1.0, 3).tolist() for name in SETS}
    dsvi = {name: generator.uniform(1.0, 1.1, 2).tolist() for name in SETS}
    (test,) = summary.comparisons(group({"novi": novi, "dsvi": dsvi}), "rmse", 2)
    assert (test.pairs, test.unit, test.wins) == (6, "data sets", 6)
    assert test.p_value == pytest.approx(2 / 2**6)  # all six one way: the smallest there is


def test_equal_methods_have_p_one():
    assert summary.signed_rank_p(np.zeros(5)) == 1.0


def test_holm_by_hand():
    assert summary.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert summary.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert summary.holm([]) == []


def test_best_of_a_depth_wins_and_a_baseline_only_if_it_beats_every_depth():
    suite = narrowed(SUITES["uci"], datasets=["boston"], layers=[2, 3])
    base = Fit("boston", "random", 0, "novi", 2, 100, 1000)
    fits = [
        base,
        base._replace(method="dsvi"),
        base._replace(layers=3),
        base._replace(method="dsvi", layers=3),
    ]
    tree = Fit("boston", "random", 0, "hist-gb")

    def best(tree_score):
        records = [fake.record(f, rmse=v) for f, v in zip(fits, (0.3, 0.4, 0.6, 0.5), strict=True)]
        found = summary.entries(suite, [*records, fake.record(tree, rmse=tree_score)])
        return {(place.layers, label) for place, label in summary.winners(found, "rmse")}

    assert best(0.35) == {(2, "novi"), (3, "dsvi")}
    assert best(0.2) == {(2, "novi"), (3, "dsvi"), (None, "hist-gb")}
