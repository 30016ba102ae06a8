"""Columns that mislead where rows are in the order of groups or of time."""

import numpy as np
import pytest

from novidgp.local.order import misleading_columns
from support.ordered_rows import NAMES, runs


def scaled(values):
    return (values - values.mean(0)) / values.std(0)


def found(inputs, targets):
    return misleading_columns(scaled(inputs), scaled(targets), NAMES, np.random.default_rng(0))


def test_a_tag_that_means_something_else_at_the_end_is_left_out():
    columns, note = found(*runs())
    assert 0 in columns
    assert 2 not in columns
    assert "Left out" in note
    assert "tag" in note


def test_shuffled_rows_keep_all_columns():
    inputs, targets = runs()
    order = np.random.default_rng(1).permutation(len(inputs))
    columns, note = found(inputs[order], targets[order])
    assert columns == ()
    assert "All columns kept" in note


def test_a_trend_in_time_keeps_its_column():
    rng = np.random.default_rng(0)
    time, angle = np.linspace(0.0, 5.0, 1200), rng.uniform(-2.0, 2.0, size=1200)
    targets = (time + np.sin(2.0 * angle) + 0.1 * rng.standard_normal(1200))[:, None]
    assert found(np.column_stack([time, time, angle]), targets).columns == ()


def test_targets_that_are_missing_do_not_count():
    inputs, targets = runs()
    gaps = np.concatenate([targets, targets], axis=1)
    gaps[::7, 1] = np.nan
    spread = np.nanstd(gaps, axis=0)
    columns, _ = misleading_columns(
        scaled(inputs), (gaps - np.nanmean(gaps, axis=0)) / spread, NAMES, np.random.default_rng(0)
    )
    assert 0 in columns


@pytest.mark.parametrize("rows", [2, 500])
def test_few_rows_judge_nothing(rows):
    inputs, targets = runs()
    columns, note = found(inputs[:rows] + 1e-9 * np.arange(rows)[:, None], targets[:rows])
    assert columns == ()
    assert "too few" in note
