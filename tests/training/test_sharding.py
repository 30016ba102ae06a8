"""Several devices: the model of one, but for rounding. In processes of their own: one that has four devices,
and a job of two."""

import contextlib
import json

import pytest

from novidgp.inference import METHODS
from novidgp.numerics.sharding import check_devices, make_layout
from support.devices import apart, job_environment, load, models_path
from support.processes import Process

CASES = ["dsvi:full", "dsvi:starts", "sghmc:weights", "novi:batches"]
SHARED = [case for case in CASES if not case.endswith(":starts")]
OTHERS = [f"{name}:batches" for name in METHODS if name not in ("dsvi", "sghmc", "novi")]


def distances(path, cases):
    with Process(code("compare_devices"), path, *cases, timeout=900.0, JAX_NUM_CPU_DEVICES="4") as process:
        status, _, errors = process.end()
    assert status == 0, errors
    return json.loads(path.read_text())


def code(name):
    return f"import sys; from support.devices import {name}; {name}(*sys.argv[1:])"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("devices") / "found.json"


@pytest.fixture(scope="module")
def found(path):
    return distances(path, CASES)


@pytest.fixture(scope="module")
def of_two_processes(found, tmp_path_factory):
    """A file of models that two processes have found together."""
    path = tmp_path_factory.mktemp("processes") / "models.npz"
    with contextlib.ExitStack() as stack:
        job = [
            stack.enter_context(Process(code("share_processes"), path, *SHARED, timeout=300.0, **variables))
            for variables in job_environment(2)
        ]
        for process in job:
            status, _, errors = process.end()
            assert status == 0, errors
    return path


@pytest.mark.parametrize("case", CASES)
def test_several_devices_find_the_model_of_one(found, case):
    """In double precision 50 steps turn rounding of 1e-16 into 1e-12 or so; a batch that a device did not
    see, a sum that was not made or other noise would show in the first digit."""
    own = {name: value for name, value in found.items() if name.startswith(case)}
    assert own
    assert max(own.values()) < 1e-4


@pytest.mark.parametrize("case", SHARED)
def test_two_processes_find_the_model_of_one_device(found, path, of_two_processes, case):
    one, two = load(models_path(path), case), load(of_two_processes, case)
    assert one
    assert apart(one, two) < 1e-4


@pytest.mark.slow
def test_several_devices_find_the_model_of_one_with_every_method(tmp_path):
    values = distances(tmp_path / "found.json", OTHERS)
    assert len(values) == 2 * len(OTHERS)
    assert max(values.values()) < 1e-4


def test_one_device_needs_no_layout():
    assert make_layout(None) is None
    assert make_layout(1, starts=3) is None


@pytest.mark.parametrize(
    ("devices", "error", "words"),
    [
        (0, ValueError, "devices=0 is too small"),
        (True, TypeError, "devices must be an integer or None"),
        (1.5, TypeError, "devices must be an integer or None"),
        ("gpu", ValueError, "devices='gpu' must be None, a number of devices, or 'all'"),
    ],
)
def test_what_is_no_number_of_devices_is_refused(devices, error, words):
    with pytest.raises(error, match=words):
        check_devices(devices)


def test_more_devices_than_there_are_are_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"devices=64, but JAX sees .*JAX_NUM_CPU_DEVICES=64"):
        make_layout(64)
