"""Features from a network in an ONNX file: what PyTorch, Keras and most model hubs export.

onnxruntime is an extra: `pip install 'novidgp[onnx]'`.
"""

import hashlib
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

_INPUT_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(uint8)": np.uint8}


class OnnxFeatures(TransformerMixin, BaseEstimator):
    """An output of an ONNX network as features.

    The network gets X as it is, in blocks of rows, converted to the type of its input. What it expects beyond
    that (channels first, a size, a range of pixels) has to be done before, or be part of the export.

    Parameters
    ----------
    path : path
        The file.
    output : str, default=None
        The name of the output to take; None is the first. Outputs of more than two axes are flattened.
    batch_size : int, default=64
        Rows that go through the network together. A network with a fixed batch axis keeps its own.
    """

    def __init__(self, path: str | PathLike, *, output: str | None = None, batch_size: int = 64):
        self.path = path
        self.output = output
        self.batch_size = batch_size

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Nothing is learned from X; the file is read, so that a missing one is found here."""
        self._session()
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The network's output for every row of X, `(n, features)`."""
        session = self._session()
        (inlet,) = session.get_inputs()[:1]
        if inlet.type not in _INPUT_TYPES:
            raise ValueError(f"{self.path} takes {inlet.type}; features are made from {list(_INPUT_TYPES)}.")
        rows = np.asarray(X).astype(_INPUT_TYPES[inlet.type], copy=False)
        fixed = inlet.shape[0] if inlet.shape and isinstance(inlet.shape[0], int) else None
        if rows.ndim != len(inlet.shape) or any(
            isinstance(size, int) and size != found
            for size, found in zip(inlet.shape[1:], rows.shape[1:], strict=False)
        ):
            raise ValueError(
                f"X has shape {rows.shape}, and {self.path} takes {list(inlet.shape)}. Images of most "
                "exports have channels first: X.transpose(0, 3, 1, 2)."
            )
        parts, size = [], fixed or int(self.batch_size)
        for start in range(0, len(rows), size):
            block = rows[start : start + size]
            missing = 0 if fixed is None else size - len(block)
            padded = np.concatenate([block, np.repeat(block[:1], missing, axis=0)])
            (output,) = session.run([self._output(session)], {inlet.name: padded})
            parts.append(np.asarray(output)[: len(block)].reshape(len(block), -1))
        return np.concatenate(parts)

    def fingerprint(self) -> tuple[str, str | None]:
        """What the features depend on: the file's contents and the output's name."""
        return hashlib.sha256(Path(self.path).read_bytes()).hexdigest(), self.output

    def _output(self, session: Any) -> str:
        names = [outlet.name for outlet in session.get_outputs()]
        if self.output is not None and self.output not in names:
            raise ValueError(f"output={self.output!r} is none of the outputs of {self.path}: {names}.")
        return names[0] if self.output is None else self.output

    def _session(self) -> Any:
        try:
            import onnxruntime  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ImportError("OnnxFeatures needs onnxruntime: pip install 'novidgp[onnx]'.") from None
        if not Path(self.path).is_file():
            raise FileNotFoundError(f"There is no file {Path(self.path).absolute()}. Check path.")
        return onnxruntime.InferenceSession(str(self.path), providers=["CPUExecutionProvider"])

    def __sklearn_is_fitted__(self) -> bool:
        return True
