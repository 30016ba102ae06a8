"""A training run on disk between two chunks, so that it can go on as if it had never stopped."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from novidgp import storage
from novidgp.inference.base import Inference, State
from novidgp.training.run import Run


class Checkpoint(NamedTuple):
    """A run on disk, with the settings it belongs to."""

    path: Path
    settings: dict[str, Any]

    def save(self, run: Run) -> None:
        """Replace the file."""
        arrays = storage.tree_to_arrays(run.state, "state")
        arrays |= {} if run.best is None else storage.tree_to_arrays(run.best, "best")
        arrays |= {f"history/{name}": values for name, values in run.history().items()}
        metadata = {"kind": "checkpoint", "settings": self.settings, "jax": jax.__version__}
        metadata |= {"step": run.step, "recoveries": run.recoveries, "validated": run.best is not None}
        metadata |= {"history": list(run.history()), "notes": list(run.notes), "verdict": run.verdict}
        storage.save(self.path, arrays, metadata)

    def load(self, template: State, inference: Inference) -> Run | None:
        """The run in the file, or None where there is none yet."""
        if not self.path.exists():
            return None
        arrays, metadata = storage.load(self.path)
        if metadata.get("kind") != "checkpoint":
            raise storage.ModelFileError(
                f"{self.path} is a saved model, not a checkpoint: there is nothing to resume."
            )
        theirs = metadata["settings"]
        differing = [
            f"{name} ({theirs.get(name)} there, {ours} here)" if isinstance(ours, int) else name
            for name, ours in self.settings.items()
            if theirs.get(name) != ours
        ]
        if differing:
            hint = (
                f" It was written with jax {metadata['jax']}." if metadata["jax"] != jax.__version__ else ""
            )
            raise storage.ModelFileError(
                f"Checkpoint {self.path} belongs to another run; different: {', '.join(differing)}.{hint} "
                f"Resume with the settings it was made with, or start over with resume=False."
            )
        state = storage.arrays_to_tree(template, arrays, "state")
        best = None
        if metadata["validated"]:
            best = storage.arrays_to_tree(jax.eval_shape(inference.fitted, template), arrays, "best")
        history = {name: arrays[f"history/{name}"] for name in metadata["history"]}
        return Run(
            state,
            metadata["step"],
            metadata["recoveries"],
            best,
            (history,) if history else (),
            tuple(metadata["notes"]),
            metadata["verdict"],
        )


def digest(*arrays: Any) -> str:
    """A fingerprint of types, shapes and values."""
    total = hashlib.blake2b(digest_size=16)
    for array in map(np.asarray, arrays):
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()
