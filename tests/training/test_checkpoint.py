"""Checkpoints: a resumed run repeats an uninterrupted one bit for bit, and another run's file is refused."""

import itertools
import shutil
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference import DSVI
from novidgp.model.dgp import Batch
from novidgp.storage import ModelFileError, load, save
from novidgp.training import checkpoint
from novidgp.training.checkpoint import digest
from support.processes import Process
from support.training import DATA, DESCENT, METHOD, ROWS, Scaled, assert_same, fit, toy


@pytest.mark.parametrize("batch_size", [ROWS, 8])
@pytest.mark.parametrize("validated", [False, True])
def test_a_resumed_run_repeats_an_uninterrupted_one_bit_for_bit(tmp_path, batch_size, validated):
    options = {"batch_size": batch_size}
    if validated:
        options |= {"validation": Batch(DATA.x + 0.1, DATA.y), "patience": 5}
    whole = fit(**options)
    path = tmp_path / "run.checkpoint"
    part = fit(**options, checkpoint=path, callbacks=[lambda progress: progress.step == 10])
    assert (part.steps, part.status) == (10, "early-stopped")
    rest = fit(**options, checkpoint=path, resume=True)
    assert (rest.steps, rest.status) == (30, "finished")
    assert_same(rest.state, whole.state)
    assert_same(rest.fitted, whole.fitted)
    for name in whole.history.keys() - {"seconds"}:
        np.testing.assert_array_equal(rest.history[name], whole.history[name])
    again = fit(**options, checkpoint=path, resume=True)
    assert again.status == "finished"
    assert_same(again.state, whole.state)


def test_a_run_of_a_process_that_died_is_resumed_by_another(tmp_path):
    code = """
    import os, sys
    from support.training import fit
    die = lambda progress: progress.step == 20 and os._exit(9)
    fit(batch_size=8, checkpoint=sys.argv[1], checkpoint_every=0, callbacks=[die])
    """
    path = tmp_path / "run"
    with Process(code, path) as process:
        assert process.end()[0] == 9
    assert load(path)[1]["step"] == 20
    assert_same(fit(batch_size=8, checkpoint=path, resume=True).state, fit(batch_size=8).state)


def test_a_run_killed_after_a_checkpoint_resumes_and_recoveries_are_repeated(tmp_path):
    def make(scale):
        # Fails from step 12 on unless the step is small; noise enters the state.
        return toy(
            lambda w, t, key: (
                jnp.where((t >= 12) & (scale > 0.5), jnp.nan, w + scale * jax.random.normal(key)),
                w,
            )
        )

    class KilledError(Exception):
        pass

    def kill(progress):
        if progress.step == 30:
            raise KilledError

    method, options = Scaled(make), {"steps": 40, "chunk": 10}
    path = tmp_path / "run"
    whole = fit(method, **options)
    assert len(whole.notes) == 1
    with pytest.raises(KilledError):
        fit(method, **options, checkpoint=path, checkpoint_every=0, callbacks=[kill])
    assert load(path)[1]["step"] == 30
    rest = fit(method, **options, checkpoint=path, resume=True)
    assert_same(rest.state, whole.state)
    assert rest.notes == whole.notes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": jax.random.key(4)}, "different: seed"),
        ({"batch_size": 8}, r"batch_size \(20 there, 8 here\), method or model"),
        ({"data": Batch(DATA.x + 1e-6, DATA.y)}, "different: training data"),
        ({"method": DSVI(num_paths=2, learning_rate=0.019)}, "different: method or model"),
        ({"validation": DATA}, "different: validation data"),
        ({"plateau": 2}, "different: plateau"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, change, message):
    path = tmp_path / "run"
    fit(METHOD, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(ModelFileError, match=message):
        fit(**{"checkpoint": path, "resume": True} | change)
    assert path.read_bytes() == before


def test_resume_starts_where_there_is_no_file_and_refuses_a_model(tmp_path):
    path = tmp_path / "run"
    assert fit(DESCENT, steps=10, checkpoint=path, resume=True).steps == 10
    save(path, {}, {"kind": "model"})
    with pytest.raises(ModelFileError, match="not a checkpoint"):
        fit(DESCENT, steps=10, checkpoint=path, resume=True)


@pytest.mark.parametrize(
    "change",
    [
        {"settings": None},
        {"step": "ten"},
        {"step": 11, "verdict": None},
        {"verdict": ""},
        {"recoveries": -1},
        {"history": ["no such array"]},
        {"notes": 3},
        {"jax": 7, "settings": {}},
    ],
)
def test_a_checkpoint_that_somebody_made_by_hand_is_refused(tmp_path, change):
    path = tmp_path / "run"
    fit(DESCENT, steps=10, checkpoint=path)
    arrays, metadata = load(path)
    save(path, arrays, metadata | change)
    with pytest.raises(ModelFileError, match=f"{path}.*remove the file or name another"):
        fit(DESCENT, steps=10, checkpoint=path, resume=True)


def test_a_run_with_all_its_steps_is_finished(tmp_path):
    """Two signals may come between the last step and the verdict: the file then has all steps and none."""
    path = tmp_path / "run"
    whole = fit(DESCENT, checkpoint=path)
    arrays, metadata = load(path)
    save(path, arrays, metadata | {"verdict": None})
    again = fit(DESCENT, checkpoint=path, resume=True)
    assert (again.status, again.steps) == ("finished", whole.steps)
    assert_same(again.state, whole.state)


def test_the_file_is_written_by_the_clock(tmp_path, monkeypatch):
    """A chunk takes 25 seconds here, so that every third one is a minute after the last write."""
    clock = itertools.count(0.0, 25.0)
    seen: list[int | None] = []
    path = tmp_path / "run"
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    def look(progress):
        seen.append(load(path)[1]["step"] if path.exists() else None)

    fit(DESCENT, steps=70, checkpoint=path, callbacks=[look])
    assert seen == [None, None, 30, 30, 30, 60, 60]
    assert load(path)[1]["step"] == 70


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no/such/directory/run", "does not exist"),
        (".", "it is a directory"),
        ("/dev/null", "it is a device or a pipe"),
        ("/proc/run", "Cannot write /proc/run"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_first(tmp_path, monkeypatch, path, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match=message):
        fit(toy(None), checkpoint=path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 4))
    with pytest.raises(OSError, match="Make room"):
        fit(DESCENT, checkpoint=tmp_path / "run", callbacks=[pytest.fail])


def test_a_checkpoint_that_fails_during_the_run_warns_once_and_costs_nothing(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.warns(UserWarning, match="could not be written after step 20") as caught:
        result = fit(
            DESCENT,
            checkpoint=folder / "run",
            checkpoint_every=0,
            callbacks=[lambda progress: shutil.rmtree(folder, ignore_errors=True)],
        )
    assert len(caught) == 1
    assert_same(result.state, fit(DESCENT).state)


def test_a_digest_tells_values_types_and_shapes_apart():
    values = np.arange(6.0)
    assert digest(values) == digest(values.copy())
    others = (values + 1e-15, values.astype(np.float32), values.reshape(2, 3), values[:5])
    assert len({digest(values), *map(digest, others)}) == 5
