"""Checkpoints: a resumed run repeats an uninterrupted one bit for bit, and another run's file is refused."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference import DSVI
from novidgp.model.dgp import Batch
from novidgp.storage import ModelFileError, load, save
from novidgp.training.checkpoint import digest
from support.training import DATA, DESCENT, METHOD, ROWS, Scaled, assert_same, fit, toy

TESTS = Path(__file__).resolve().parents[1]


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
    code = textwrap.dedent(
        """
        import os, sys
        from support.training import fit
        die = lambda progress: progress.step == 20 and os._exit(9)
        fit(batch_size=8, checkpoint=sys.argv[1], checkpoint_every=10, callbacks=[die])
        """
    )
    path = tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    dead = subprocess.run([sys.executable, "-c", code, str(path)], check=False, env=environment)
    assert dead.returncode == 9
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
        fit(method, **options, checkpoint=path, checkpoint_every=20, callbacks=[kill])
    assert load(path)[1]["step"] == 20
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


def test_a_digest_tells_values_types_and_shapes_apart():
    values = np.arange(6.0)
    assert digest(values) == digest(values.copy())
    others = (values + 1e-15, values.astype(np.float32), values.reshape(2, 3), values[:5])
    assert len({digest(values), *map(digest, others)}) == 5
