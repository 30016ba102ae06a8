"""Files: what goes in comes out, and everything else is refused with the reason."""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from novidgp import storage
from novidgp.storage import ModelFileError

ARRAYS = {
    "scalar": np.float32(2.5),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "counts": np.array([3, 1], np.int32),
    "flags": np.array([True, False]),
    "empty": np.zeros((0, 4)),
    "big-endian": np.array([1.0, 2.0], ">f8"),
}
METADATA = {"kind": "test", "nested": {"b": [1, 2.5, None], "a": "µ"}}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.novidgp"
    storage.save(path, ARRAYS, METADATA)
    return path


def test_arrays_and_metadata_come_back_as_they_were(file):
    arrays, metadata = storage.load(file)
    assert metadata == METADATA
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].shape == np.shape(array)
        assert arrays[name].dtype.kind == np.asarray(array).dtype.kind
        np.testing.assert_array_equal(arrays[name], array)


def test_the_file_is_safetensors_with_a_json_header_that_others_can_read(file):
    with safetensors.safe_open(file, framework="numpy") as opened:
        header = json.loads(opened.metadata()["novidgp"])
    assert header["format_version"] == storage.FORMAT_VERSION
    assert header["metadata"] == METADATA


def test_a_missing_file_and_a_missing_directory_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*absent"):
        storage.load(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"directory .* does not exist"):
        storage.save(tmp_path / "absent" / "model", ARRAYS, METADATA)
    with pytest.raises(ModelFileError, match="is a directory"):
        storage.load(tmp_path)


@pytest.mark.parametrize("length", [0, 5, 8, 9, 40, 0.5, -1])
def test_a_file_cut_short_anywhere_is_refused(file, length):
    content = file.read_bytes()
    file.write_bytes(content[: int(length * len(content)) if 0 < length < 1 else length])
    with pytest.raises(ModelFileError):
        storage.load(file)


def test_a_cut_file_is_called_damaged_and_a_foreign_one_foreign(file, tmp_path):
    content = file.read_bytes()
    file.write_bytes(content[:-3])
    with pytest.raises(ModelFileError, match="damaged or cut short"):
        storage.load(file)
    file.write_bytes(b"PK\x03\x04 not a tensor in sight, but long enough")
    with pytest.raises(ModelFileError, match="not a novidgp file"):
        storage.load(file)
    safetensors.numpy.save_file({"weight": np.ones(3)}, file)
    with pytest.raises(ModelFileError, match="another program"):
        storage.load(file)


def test_no_flipped_byte_goes_unnoticed(file):
    content = file.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x04
        file.write_bytes(damaged)
        try:
            arrays, metadata = storage.load(file)
        except ModelFileError:
            continue
        # A byte that carries no value (padding, say) may change.
        assert metadata == METADATA
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(arrays[name], array)


def test_a_newer_format_asks_for_an_upgrade(file, monkeypatch):
    newer = storage.FORMAT_VERSION + 1
    monkeypatch.setattr(storage, "FORMAT_VERSION", newer)
    storage.save(file, ARRAYS, METADATA)
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match=rf"format {newer}, .* Upgrade novidgp"):
        storage.load(file)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(file, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        storage.save(file, {"other": np.ones(2)}, {})
    monkeypatch.undo()
    assert storage.load(file)[1] == METADATA
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_written_file_has_the_mode_of_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        with storage.atomic_write(tmp_path / "f") as file:
            file.write(b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o666 & ~mask


def test_an_error_while_writing_leaves_no_file(tmp_path):
    with pytest.raises(TypeError, match="bytes"), storage.atomic_write(tmp_path / "f") as file:
        file.write("text")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_saved_is_refused_by_name(tmp_path):
    with pytest.raises(TypeError, match=r"arrays\['names'\] has dtype <U1"):
        storage.save(tmp_path / "f", {"names": np.array(["a"])}, {})
    with pytest.raises(ValueError, match="metadata must be plain JSON"):
        storage.save(tmp_path / "f", {}, {"score": float("nan")})
    with pytest.raises(TypeError, match="metadata must be plain JSON"):
        storage.save(tmp_path / "f", {}, {"score": np.float32(1)})
    assert not list(tmp_path.iterdir())


TREE = {"a": (jnp.ones((2, 3)), None), "b": [jnp.array(3, jnp.int32)]}


def test_a_tree_comes_back_through_shapes_alone():
    arrays = storage.tree_to_arrays(TREE, "state") | {"other": np.ones(1)}
    assert set(arrays) == {"state['a'][0]", "state['b'][0]", "other"}
    back = storage.arrays_to_tree(jax.eval_shape(lambda: TREE), arrays, "state")
    assert jax.tree.structure(back) == jax.tree.structure(TREE)
    for got, want in zip(jax.tree.leaves(back), jax.tree.leaves(TREE), strict=True):
        assert isinstance(got, jax.Array)
        assert got.dtype == want.dtype
        assert not got.weak_type
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"s['a'][0]": np.ones((2, 4), np.float32)}, r"\['a'\]\[0\].* is float32\[2, 4\] .* float32\[2, 3\]"),
        ({"s['a'][0]": np.ones((2, 3))}, r"\['a'\]\[0\].* is float64\[2, 3\] .* float32\[2, 3\]"),
        ({"s['c']": np.ones(1)}, r"no place for array \"s\['c'\]\""),
    ],
)
def test_another_tree_is_refused_by_the_name_of_a_leaf(change, message):
    with pytest.raises(ModelFileError, match=message):
        storage.arrays_to_tree(TREE, storage.tree_to_arrays(TREE, "s") | change, "s")


def test_a_missing_leaf_is_refused_by_name():
    with pytest.raises(ModelFileError, match=r"no array \"s\['a'\]\[0\]\""):
        storage.arrays_to_tree(TREE, {}, "s")


def test_double_precision_is_kept_inside_x64_and_never_cut_outside():
    arrays = {"x": np.array([1 / 3])}
    template = {"x": np.zeros(1)}
    named = {"['x']": arrays["x"]}
    with pytest.raises(ModelFileError, match="enable_x64"):
        storage.arrays_to_tree(template, named)
    with jax.enable_x64(True):
        assert storage.arrays_to_tree(template, named)["x"].dtype == np.float64


def test_reading_a_file_needs_no_jax(file):
    code = "import sys; from novidgp import storage;storage.load(sys.argv[1]);assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(file)], check=True)


def test_a_symbolic_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far/file")
    for content in (b"first", b"second"):  # at first the link leads to no file
        with storage.atomic_write(tmp_path / "link") as file:
            file.write(content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "far" / "file").read_bytes() == content
    assert len(list(tmp_path.iterdir())) == 2


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "lost").symlink_to("absent/file")
    for name, words in {"pipe": "a device or a pipe", "loop": "leads to itself", "lost": "not exist"}.items():
        with pytest.raises(OSError, match=words), storage.atomic_write(tmp_path / name):
            pass
    with pytest.raises(OSError, match="is a directory"), storage.atomic_write(tmp_path):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop", "lost", "pipe"]


WRITE_AND_WAIT = """
import sys, time
from novidgp import storage
with storage.atomic_write(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("written", flush=True)
    time.sleep(600)
"""


def test_the_temporary_file_of_a_killed_process_is_removed_by_the_next_write_and_no_other(tmp_path):
    path = tmp_path / "model [1]"
    others = [tmp_path / ".other.0123abcd.tmp", tmp_path / ".model [1].mine.tmp"]
    for other in others:
        other.write_bytes(b"")
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_WAIT, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        (temporary,) = set(tmp_path.iterdir()) - set(others)
        with storage.atomic_write(path) as file:
            file.write(b"mine")
        assert temporary.read_bytes() == b"half"  # its writer is alive
        process.kill()
        process.wait()
    with storage.atomic_write(path) as file:
        file.write(b"last")
    assert set(tmp_path.iterdir()) == {path, *others}
    assert path.read_bytes() == b"last"
