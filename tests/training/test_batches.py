"""Rows for training: minibatches by epoch, held-out rows, padding."""

import jax
import numpy as np
import pytest

from novidgp.numerics.random import Streams
from novidgp.training.batches import Minibatches, hold_out, pad_rows

STREAMS = Streams(jax.random.key(7))


def test_every_epoch_visits_every_row_once_in_its_own_order():
    epochs = Minibatches(20, 5, STREAMS).at(0, 12).reshape(3, 20)
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_key_decides_the_order():
    first, again, other = (Minibatches(20, 5, Streams(jax.random.key(seed))).at(0, 4) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_batches_depend_on_the_step_alone_and_a_partial_one_is_dropped():
    whole = Minibatches(20, 8, STREAMS).at(0, 9)
    assert whole.shape == (9, 8)
    np.testing.assert_array_equal(whole[4:], Minibatches(20, 8, STREAMS).at(4, 5))
    assert len(np.unique(whole[:2])) == 16


@pytest.mark.parametrize("size", [20, 30])
def test_a_batch_of_all_rows_needs_no_row_numbers(size):
    assert Minibatches(20, size, STREAMS).at(0, 9) is None


def test_held_out_rows_are_a_random_share_of_the_rows():
    kept, held = hold_out(20, 0.2, np.random.default_rng(0))
    assert len(held) == 4
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, held])), np.arange(20))
    others = hold_out(20, 0.2, np.random.default_rng(1))[1]
    assert not np.array_equal(held, others)
    assert len(hold_out(20, 0.001, np.random.default_rng(0))[1]) == 1


def test_too_few_rows_to_train_on_are_refused():
    with pytest.raises(ValueError, match=r"validation_fraction=0.9 leaves 1 of 10 rows"):
        hold_out(10, 0.9, np.random.default_rng(0))


@pytest.mark.parametrize(("rows", "size"), [(1, 64), (64, 64), (70, 128), (1030, 1152), (7372, 7680)])
def test_padding_repeats_an_input_and_has_no_targets(rows, size):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((rows, 3)), rng.standard_normal((rows, 2))
    inputs, targets = pad_rows(x, y)
    assert inputs.shape == (size, 3)
    assert targets.shape == (size, 2)
    np.testing.assert_array_equal(inputs[:rows], x)
    np.testing.assert_array_equal(targets[:rows], y)
    np.testing.assert_array_equal(inputs[rows:], np.repeat(x[:1], size - rows, axis=0))
    assert np.isnan(targets[rows:]).all()
