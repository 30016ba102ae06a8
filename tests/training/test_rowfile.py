"""Rows on disk: the file, its order, and a run on it."""

import itertools

import numpy as np
import pytest

from novidgp.numerics.random import Streams
from novidgp.numerics.scaling import RunningStandardiser, standardiser
from novidgp.training import batches, rowfile
from novidgp.training.batches import BlockOrder
from novidgp.training.loop import fit as fit_rows
from novidgp.training.rowfile import Block, write_rows
from support.training import METHOD, MODEL, assert_same

ROWS, STEPS, SIZE = 500, 30, 20


class Source:
    """Rows in blocks of 90. `limit` ends them early at the second reading."""

    def __init__(self, rows=ROWS, identity="", limit=None):
        rng = np.random.default_rng(0)
        self.x = 3.0 + 100.0 * rng.standard_normal((rows, 2))
        self.y = np.sin(self.x[:, :1])
        self.name, self.identity, self.limit = "rows", identity, limit
        self.readings = 0

    def blocks(self):
        self.readings += 1
        end = self.limit if self.limit and self.readings > 1 else len(self.x)
        for first in range(0, end, 90):
            rows = slice(first, min(first + 90, end))
            yield Block(self.x[rows], self.y[rows])


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    monkeypatch.setenv(rowfile.VARIABLE, str(tmp_path / "rows"))
    return tmp_path / "rows"


@pytest.fixture
def file():
    return write_rows(Source(), "float32", scale_targets=True)


def test_the_scaling_of_blocks_is_that_of_all_rows():
    rng = np.random.default_rng(0)
    scales = np.array([1.0, 1e-200, 1e200, 0.0, 1e6])
    offsets = np.array([0.0, 5.0, -3.0, 1.0, 1e4])
    values = scales * (offsets + rng.standard_normal((300, 5)))
    running = RunningStandardiser()
    for part in np.split(values, [1, 50, 51, 200]):
        running.add(part)
    running.add(values[:0])
    whole, pieces = standardiser(values), running.standardiser()
    # Two ways to sum 300 numbers; the fifth column loses four digits to its offset in both.
    np.testing.assert_allclose(pieces.shift, whole.shift, rtol=1e-12)
    np.testing.assert_allclose(pieces.scale, whole.scale, rtol=1e-9)
    assert np.isinf(whole.scale[3])


def test_a_file_has_the_scaled_rows(file):
    source = Source()
    numbers = np.array([499, 0, 7, 7])
    x, y = file.read(numbers)
    inputs, targets = standardiser(source.x), standardiser(source.y)
    np.testing.assert_allclose(x, inputs.inputs(source.x)[numbers], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y, targets.targets(source.y)[numbers], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(file.inputs.original(x), source.x[numbers], rtol=1e-4, atol=1e-4)
    assert len(file) == ROWS
    assert file.num_inputs == 2


def test_a_file_is_written_once_for_rows_that_can_be_told_apart(own_directory):
    first, again, other = Source(identity="a"), Source(identity="a"), Source(identity="b")
    files = [write_rows(source, "float32", scale_targets=True) for source in (first, again, other)]
    assert [source.readings for source in (first, again, other)] == [2, 0, 2]
    assert files[0].digest == files[1].digest
    assert len(list(own_directory.iterdir())) == 2


def test_a_file_of_other_rows_leaves_no_trace(own_directory, file):
    assert list(own_directory.iterdir()) == []
    assert file.read(np.arange(3)).x.shape == (3, 2)


def test_rows_that_change_between_two_readings_are_refused(own_directory):
    with pytest.raises(ValueError, match="changed while it was read: 500 rows, then 100"):
        write_rows(Source(limit=100), "float32", scale_targets=True)
    assert list(own_directory.iterdir()) == []


def test_a_full_disk_is_told_before_anything_is_written(monkeypatch, own_directory):
    usage = rowfile.shutil.disk_usage("/")
    monkeypatch.setattr(rowfile.shutil, "disk_usage", lambda path: usage._replace(free=1_000))
    with pytest.raises(OSError, match=r"take 0 MB on disk, and .* has 0 MB left.*NOVIDGP_ROWS"):
        write_rows(Source(), "float32", scale_targets=True)
    assert list(own_directory.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(rowfile.VARIABLE, str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"which cannot be written.*NOVIDGP_ROWS"):
        write_rows(Source(), "float32", scale_targets=True)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(batches, "_BLOCK_ROWS", 8)
    monkeypatch.setattr(batches, "_WINDOW_BLOCKS", 4)


@pytest.mark.parametrize(("rows", "size"), [(100, 7), (64, 64), (33, 10), (96, 32), (5, 2)])
def test_an_epoch_sees_every_row_once(small_blocks, rows, size):
    order = BlockOrder(rows, size, Streams(_key(0)))
    per_epoch = rows // size
    for epoch in range(2):
        seen = np.concatenate([order.at(epoch * per_epoch + step) for step in range(per_epoch)])
        assert len(seen) == per_epoch * size == len(set(seen.tolist()))
        assert 0 <= seen.min() <= seen.max() < rows


def test_batches_are_a_function_of_seed_and_step(small_blocks):
    first, second, other = (BlockOrder(100, 7, Streams(_key(seed))) for seed in (0, 0, 1))
    steps = [31, 2, 14, 2, 0]
    assert all(np.array_equal(first.at(step), second.at(step)) for step in reversed(steps))
    assert not np.array_equal(first.at(0), other.at(0))
    assert not np.array_equal(first.at(0), first.at(14))  # another epoch


def test_a_batch_comes_from_all_over_the_file(small_blocks):
    """Four of a hundred blocks of eight rows; their rows are spread as four uniform numbers are."""
    order = BlockOrder(800, 20, Streams(_key(0)))
    spans = [np.ptp(order.at(step)) for step in range(40)]
    assert np.mean(spans) > 300  # of 800; a window of neighbours would span 32


def test_a_batch_larger_than_the_file_is_refused():
    with pytest.raises(ValueError, match="batch_size=20 exceeds the 10 rows"):
        BlockOrder(10, 20, Streams(_key(0)))


def _key(seed):
    import jax

    return jax.random.key(seed)


# --- a run on a file ----------------------------------------------------------------------------------


def run(file, **options):
    settings = {"steps": STEPS, "key": _key(3), "chunk": 10, "batch_size": SIZE} | options
    return fit_rows(MODEL, METHOD, file, **settings)


class Stop(Exception):
    pass


def test_a_resumed_run_on_a_file_repeats_an_uninterrupted_one(file, tmp_path, small_blocks):
    whole = run(file)
    calls = itertools.count()

    def stop(progress):
        if next(calls) == 1:
            raise Stop

    path = tmp_path / "run"
    with pytest.raises(Stop):
        run(file, checkpoint=path, checkpoint_every=0.0, callbacks=[stop])
    again = write_rows(Source(), "float32", scale_targets=True)  # as a new process would
    resumed = run(again, checkpoint=path, resume=True)
    assert_same(resumed.fitted, whole.fitted)
    np.testing.assert_array_equal(resumed.history["loss"], whole.history["loss"])


def test_a_run_on_a_file_of_other_rows_is_no_continuation(file, tmp_path):
    run(file, checkpoint=tmp_path / "run", steps=10)
    other = write_rows(Source(rows=480), "float32", scale_targets=True)
    with pytest.raises(ValueError, match="training data"):
        run(other, checkpoint=tmp_path / "run", steps=10, resume=True)
