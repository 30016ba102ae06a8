"""Files of models and checkpoints: safetensors, with everything that is not an array as JSON in the header.

Nothing in such a file can run code. The JSON is under the key `novidgp` of the header's `__metadata__`:
`{"format_version": ..., "checksum": ..., "metadata": {...}}`. The checksum covers the metadata and the names,
types, shapes and bytes of the arrays, so that a damaged file is refused.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import safetensors.numpy

FORMAT_VERSION = 2
_KEY = "novidgp"


class ModelFileError(ValueError):
    """A file exists but cannot be used; the message says why and what to do."""


@contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """A binary file to write to that takes the place of `path` when the block ends without an error.

    The file is written beside `path` and moved there, so that a reader sees the old file or the whole new
    one, even after a power cut. If the block raises, the old file stays and the new one is removed. What a
    killed process left beside `path` is removed too. A symbolic link stays one: the file it names is
    replaced. The file's mode follows the umask.
    """
    path = _destination(Path(path))
    _remove_abandoned(path)
    file = _open_temporary(path)
    temporary = Path(file.name)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "posix":  # moved while it is locked, so that nobody takes it for abandoned
                os.replace(temporary, path)
        if os.name != "posix":
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # the move itself must survive a power cut too
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def check_writable(path: str | os.PathLike, *, size: int = 0) -> None:
    """Refuse a path that `atomic_write` could not write `size` bytes to, and leave nothing there."""
    end = _destination(Path(path))
    free = shutil.disk_usage(end.parent).free
    if free <= size:
        raise OSError(
            f"Cannot write {path}: it needs {size / 1e6:.1f} MB, and {end.parent} has {free / 1e6:.1f} MB. "
            f"Make room or choose another directory."
        )
    try:
        file = _open_temporary(end)
    except PermissionError as error:
        raise PermissionError(
            f"Cannot write {path}: there is no permission to create files in {end.parent}. Choose another "
            f"directory."
        ) from error
    file.close()
    os.unlink(file.name)


def _destination(path: Path) -> Path:
    """The file that `path` names, at the end of all symbolic links."""
    end = Path(os.path.realpath(path))
    if end.is_symlink():
        raise OSError(f"Cannot write {path}: it is a symbolic link that leads to itself. Remove it.")
    if end.exists() and not end.is_file():
        what = "a directory" if end.is_dir() else "a device or a pipe"
        raise OSError(f"Cannot write {path}: it is {what}. Give the path of a file.")
    if not end.parent.is_dir():
        raise FileNotFoundError(
            f"Cannot write {path}: the directory {end.parent} does not exist. Create it first."
        )
    return end


def _open_temporary(path: Path) -> IO[bytes]:
    """A new file beside `path`, locked for as long as it is open."""
    while True:
        file = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp").open("xb")
        if _lock(file, wait=True) and not os.path.exists(file.name):
            file.close()  # another process took it for abandoned before it was locked
            continue
        return file


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files for `path` whose writers are dead: locks end with the process that held them."""
    ours = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{8}\.tmp")
    for name in filter(ours.fullmatch, os.listdir(path.parent)):
        temporary = path.with_name(name)
        with contextlib.suppress(OSError), temporary.open("rb") as file:
            if _lock(file, wait=False):
                temporary.unlink()


def _lock(file: IO[bytes], *, wait: bool) -> bool:
    """Lock an open file, which ends when it is closed; False where another process has it, or none can."""
    try:
        import fcntl
    except ImportError:  # Windows does not remove a file that is open
        return False
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def save(
    path: str | os.PathLike, arrays: Mapping[str, np.ndarray | np.generic], metadata: Mapping[str, Any]
) -> None:
    """Write `arrays` and JSON-able `metadata` to `path`, atomically."""
    # Not np.ascontiguousarray, which gives scalars an axis.
    plain = {
        name: np.asarray(a, np.asarray(a).dtype.newbyteorder("="), order="C") for name, a in arrays.items()
    }
    for name, array in plain.items():
        if array.dtype.kind not in "biufc":
            raise TypeError(f"arrays[{name!r}] has dtype {array.dtype}; only numbers can be saved.")
    text = _canonical(metadata)
    header = {
        "format_version": FORMAT_VERSION,
        "checksum": _checksum(plain, text),
        "metadata": json.loads(text),
    }
    with atomic_write(path) as file:
        file.write(safetensors.numpy.save(plain, {_KEY: _canonical(header)}))


def load(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the metadata of a file that `save` wrote; refuses anything else."""
    path = _existing(path)
    header = _read_header(path)
    try:
        arrays = safetensors.numpy.load_file(path)
    except safetensors.SafetensorError as error:
        raise _damaged(path, str(error)) from error
    if _checksum(arrays, _canonical(header["metadata"])) != header["checksum"]:
        raise _damaged(path, "its checksum does not match its contents")
    return arrays, header["metadata"]


def tree_to_arrays(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """The leaves of a pytree, named by their paths: `prefix.layers[0].inducing`."""
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def arrays_to_tree(template: Any, arrays: Mapping[str, np.ndarray], prefix: str = "") -> Any:
    """The pytree with `template`'s structure and the values of `arrays`.

    The template's leaves may be arrays or `jax.ShapeDtypeStruct`s. Every leaf must be in `arrays` with the
    template's shape and dtype, and no array under the same prefix may be left over.
    """
    import jax

    paths, structure = jax.tree_util.tree_flatten_with_path(template)
    expected = {prefix + jax.tree_util.keystr(path): leaf for path, leaf in paths}
    leaves = []
    for name, leaf in expected.items():
        if name not in arrays:
            raise ModelFileError(
                f"There is no array {name!r}: the file was saved from another kind of model."
            )
        value = arrays[name]
        shape, dtype = np.shape(leaf), getattr(leaf, "dtype", np.asarray(leaf).dtype)
        if value.shape != shape or value.dtype != dtype:
            raise ModelFileError(
                f"Array {name!r} is {value.dtype}{list(value.shape)} in the file but {dtype}{list(shape)} in "
                f"the model: the file was saved from a model of another size or dtype."
            )
        array = jax.device_put(value)
        if array.dtype != value.dtype:
            raise ModelFileError(
                f"Array {name!r} is {value.dtype}, which JAX would cut to {array.dtype}: load it inside "
                f"`with jax.enable_x64(True):`."
            )
        leaves.append(array)
    for name in arrays:
        if name not in expected and name.startswith((prefix + ".", prefix + "[")):
            raise ModelFileError(
                f"The model has no place for array {name!r}: it was saved from another kind of model."
            )
    return jax.tree_util.tree_unflatten(structure, leaves)


def _canonical(value: Any) -> str:
    """JSON in one canonical form, so that equal values have equal checksums."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"metadata must be plain JSON (text, finite numbers, lists, dicts): {error}"
        ) from error


def _checksum(arrays: Mapping[str, np.ndarray], text: str) -> int:
    total = zlib.crc32(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        total = zlib.crc32(f"{name}:{array.dtype.str}:{array.shape}".encode(), total)
        total = zlib.crc32(array.tobytes(), total)
    return total


def _existing(path: str | os.PathLike) -> Path:
    path = Path(path)
    if path.is_dir():
        raise ModelFileError(f"{path} is a directory, not a novidgp file. Give the file's own path.")
    if not path.exists():
        raise FileNotFoundError(
            f"There is no file {path.absolute()}. Check the path, or save a model there first."
        )
    return path


def _read_header(path: Path) -> dict[str, Any]:
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            stored = file.metadata() or {}
    except safetensors.SafetensorError as error:
        if _looks_like_safetensors(path):
            raise _damaged(path, str(error)) from error
        raise ModelFileError(
            f"{path} is not a novidgp file (nor any safetensors file). Give a file that novidgp saved."
        ) from error
    if _KEY not in stored:
        raise ModelFileError(
            f"{path} is a safetensors file of another program. Give a file that novidgp saved."
        )
    try:
        header = json.loads(stored[_KEY])
        version = int(header["format_version"])
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, "its header cannot be read") from error
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format {version}, and this novidgp reads up to {FORMAT_VERSION}. "
            f"Upgrade novidgp to load it."
        )
    if "checksum" not in header or not isinstance(header.get("metadata"), dict):
        raise _damaged(path, "its header is incomplete")
    return header


def _looks_like_safetensors(path: Path) -> bool:
    """Whether a file that cannot be opened is damaged rather than foreign.

    It then starts with a plausible header length and, if it is long enough, the header's opening brace.
    """
    with path.open("rb") as file:
        start = file.read(9)
    return int.from_bytes(start[:8], "little") < 100_000_000 and start[8:9] in (b"{", b"")


def _damaged(path: Path, reason: str) -> ModelFileError:
    return ModelFileError(
        f"{path} is damaged or cut short ({reason}). Copy it again from its source, or make it anew."
    )


__all__ = [
    "FORMAT_VERSION",
    "ModelFileError",
    "arrays_to_tree",
    "atomic_write",
    "check_writable",
    "load",
    "save",
    "tree_to_arrays",
]
