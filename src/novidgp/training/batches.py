"""Rows for training: held out, padded, and in minibatches."""

import functools

import numpy as np

_ROW_MULTIPLE = 64


def hold_out(count: int, fraction: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the rows to train on and of those to validate on."""
    held = max(1, round(fraction * count))
    if count - held < 2:
        raise ValueError(
            f"validation_fraction={fraction} leaves {count - held} of {count} rows to train on; lower it."
        )
    order = rng.permutation(count)
    return np.sort(order[held:]), np.sort(order[:held])


def pad_rows(inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows up to a multiple of 64. Padding has no targets. Sets of similar size then share one compiled step."""
    missing = -len(inputs) % _ROW_MULTIPLE
    return (
        np.concatenate([inputs, np.repeat(inputs[:1], missing, axis=0)]),
        np.concatenate([targets, np.full((missing, targets.shape[1]), np.nan)]),
    )


@functools.lru_cache(maxsize=2)
def _epoch_order(rows: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(rows).astype(np.int32)


def batch_indices(rows: int, size: int, seed: int, chunk: int, start: int) -> np.ndarray | None:
    """Row numbers of `chunk` minibatches from step `start`; None where a batch is all the data.

    Every epoch has its own order, cut into consecutive batches. A last partial batch is dropped.
    """
    if size >= rows:
        return None
    per_epoch = rows // size
    places = (divmod(step, per_epoch) for step in range(start, start + chunk))
    return np.stack([_epoch_order(rows, seed, e)[i * size : (i + 1) * size] for e, i in places])
