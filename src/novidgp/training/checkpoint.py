"""A training run on disk between two chunks, so that it can go on as if it had never stopped."""

import hashlib
import math
import time
import warnings
from pathlib import Path
from typing import Any, get_args

import jax
import numpy as np

from novidgp import distributed, storage
from novidgp.checks import check_integer, check_number
from novidgp.inference.base import Inference, State
from novidgp.training.run import Run, Status


class Checkpoint:
    """The file of a run, rewritten every so many seconds. Making one tries whether it can be written."""

    def __init__(self, path: Path, every: float):
        check_number("checkpoint_every", every)
        storage.check_writable(path)
        self._path, self._every = path, every
        self._settings: dict[str, Any] = {}
        self._saved = time.monotonic()
        self._failed = False

    def open(
        self, settings: dict[str, Any], template: State, inference: Inference, *, resume: bool
    ) -> Run | None:
        """The run in the file, or None where there is none or it is not to be resumed.

        `settings` is what a resumed run must agree with, and is kept with what is saved from now on.
        """
        size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(template))
        storage.check_writable(self._path, size=size)
        self._settings = settings
        return self._load(template, inference) if resume and self._path.exists() else None

    def save_if_due(self, run: Run) -> None:
        """Replace the file, if it is old enough."""
        if time.monotonic() - self._saved >= self._every:
            self.save(run)

    def save(self, run: Run) -> None:
        """Replace the file. A failure costs the checkpoint, not the run: it is a warning, once.

        Of several processes the first one writes.
        """
        if not distributed.is_first():
            return
        arrays = storage.tree_to_arrays(run.state, "state")
        arrays |= {} if run.best is None else storage.tree_to_arrays(run.best, "best")
        arrays |= {f"history/{name}": values for name, values in run.history().items()}
        metadata = {"kind": "checkpoint", "settings": self._settings, "jax": jax.__version__}
        metadata |= {"step": run.step, "recoveries": run.recoveries, "validated": run.best is not None}
        metadata |= {"history": list(run.history()), "notes": list(run.notes), "verdict": run.verdict}
        try:
            storage.save(self._path, arrays, metadata)
        except OSError as error:
            if not self._failed:
                warnings.warn(
                    f"The checkpoint {self._path} could not be written after step {run.step} ({error}). "
                    f"Training goes on, and it is tried again.",
                    UserWarning,
                    stacklevel=3,
                )
            self._failed = True
        self._saved = time.monotonic()

    def _load(self, template: State, inference: Inference) -> Run:
        arrays, metadata = storage.load(self._path)
        try:
            return self._read(arrays, metadata, template, inference)
        except storage.ModelFileError as error:
            named = str(self._path) in str(error)
            raise error if named else storage.ModelFileError(f"{self._path}: {error}") from error
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise storage.ModelFileError(
                f"{self._path} is a checkpoint that this version of novidgp cannot read ({error!r}). Start "
                f"over: remove the file or name another."
            ) from error

    def _read(
        self,
        arrays: dict[str, np.ndarray],
        metadata: dict[str, Any],
        template: State,
        inference: Inference,
    ) -> Run:
        if metadata.get("kind") != "checkpoint":
            raise storage.ModelFileError(
                f"{self._path} is a saved model, not a checkpoint: there is nothing to resume."
            )
        theirs = metadata["settings"]
        differing = [
            f"{name} ({theirs.get(name)} there, {ours} here)" if isinstance(ours, int) else name
            for name, ours in self._settings.items()
            if theirs.get(name) != ours
        ]
        if differing:
            hint = (
                f" It was written with jax {metadata['jax']}." if metadata["jax"] != jax.__version__ else ""
            )
            raise storage.ModelFileError(
                f"Checkpoint {self._path} belongs to another run; different: {', '.join(differing)}.{hint} "
                f"Resume with the settings it was made with, or start over: remove the file or name another."
            )
        state = storage.arrays_to_tree(template, arrays, "state")
        best = None
        if metadata["validated"]:
            best = storage.arrays_to_tree(jax.eval_shape(inference.fitted, template), arrays, "best")
        check_integer("recoveries", metadata["recoveries"], least=0)
        check_integer("step", metadata["step"], least=0)
        if metadata["verdict"] not in (None, *get_args(Status)) or metadata["step"] > self._settings["steps"]:
            raise ValueError(f"step={metadata['step']} or verdict={metadata['verdict']!r}")
        done = metadata["step"] == self._settings["steps"]  # a second Ctrl-C came before the verdict
        history = {name: arrays[f"history/{name}"] for name in metadata["history"]}
        return Run(
            state,
            metadata["step"],
            metadata["recoveries"],
            best,
            (history,) if history else (),
            tuple(metadata["notes"]),
            metadata["verdict"] or ("finished" if done else None),
        )


def digest(*arrays: Any) -> str:
    """A fingerprint of types, shapes and values."""
    total = hashlib.blake2b(digest_size=16)
    for array in map(np.asarray, arrays):
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()
