"""Fits to rows that stay on disk: what `DGPEstimator._train` does for arrays, for a file of rows."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from novidgp.estimators.checks import check_local, seed_of
from novidgp.estimators.fitting import budget_of, keep, limited, training_options
from novidgp.estimators.rehearsal import rehearsal
from novidgp.estimators.sources import ArrayRows, TableRows
from novidgp.estimators.warm import goes_on
from novidgp.features.transformers import is_transformer
from novidgp.inference import Method
from novidgp.model.build import ModelConfig, starting_models
from novidgp.model.dgp import Batch
from novidgp.numerics.compilation import precision, use_compilation_cache
from novidgp.numerics.forks import refuse_fork
from novidgp.numerics.random import Streams, seed_key
from novidgp.numerics.trees import on_device
from novidgp.training.batches import pad_rows
from novidgp.training.loop import Callback, fit
from novidgp.training.rowfile import Block, RowFile, write_rows

TABLE = "table"
"""Key of a table's encoding in what a model file has besides the model."""
_SAMPLE_ROWS = 10_000
_MOST_NEIGHBOURS = 1_000_000
"""Of a file with more rows, a sample of so many is what the local layer knows."""


class _Checked(NamedTuple):
    """A source whose targets go through a function."""

    source: TableRows | ArrayRows
    targets: Callable[[np.ndarray], np.ndarray]

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def identity(self) -> str:
        return self.source.identity

    def blocks(self) -> Iterator[Block]:
        for x, y in self.source.blocks():
            yield Block(x, self.targets(y))


def refuse_options(estimator: Any, sample_weight: Any) -> None:
    """Refuse what needs all rows in memory. What is for images or transformers only is None then."""
    estimator.features_ = estimator.image_shape_ = None
    for name in ("layers", "augment"):
        if getattr(estimator, name) is not None:
            raise ValueError(f"{name}={getattr(estimator, name)!r} is for images in memory; pass an array.")
    if is_transformer(estimator.features):
        raise ValueError(
            f"features={estimator.features!r} needs rows in memory. Write its output to a file and fit that."
        )
    if not isinstance(estimator.wide, str | None):
        raise ValueError(f"wide={estimator.wide!r} needs rows in memory; pass an array, or wide=None.")
    if sample_weight is not None:
        raise ValueError(
            "sample_weight needs rows in memory: read the table first, or repeat rows in the file."
        )
    if goes_on(estimator):
        raise ValueError("warm_start=True needs rows in memory, in every fit.")
    if estimator.order is not None:
        raise ValueError(f"order={estimator.order!r} needs rows in memory: read the table first.")
    if estimator.validation_fraction is not None:
        raise ValueError(
            f"validation_fraction={estimator.validation_fraction} needs rows in memory. Keep rows for "
            f"validation in a file of their own; patience watches the training loss without them."
        )


def open_rows(
    source: TableRows | ArrayRows,
    targets: Callable[[np.ndarray], np.ndarray],
    *,
    dtype: str,
    scale_targets: bool,
) -> RowFile:
    """The file of a source's rows, with `targets` applied to the target column of every block."""
    file = write_rows(_Checked(source, targets), dtype, scale_targets=scale_targets)
    if not np.isfinite(file.targets.scale).all():
        raise ValueError(f"the target in {source.name} is constant; there is nothing to learn.")
    return file


def fit_rows(
    estimator: Any,
    file: RowFile,
    method: Method,
    config: ModelConfig,
    *,
    callbacks: Iterable[Callback],
    chunk: int,
) -> None:
    """Train an estimator on a file of rows and give it its local layer.

    The model starts from a sample of the rows. A file that is one batch is read whole.
    """
    refuse_fork()
    local = check_local(estimator.local, config.likelihood, latent=config.latent_dim > 0)
    use_compilation_cache()
    seed = seed_of(estimator.random_state)
    streams = Streams(seed_key(seed))
    config = limited(estimator, config, len(file))
    sample = file.read(sample_of(len(file), _SAMPLE_ROWS, streams.numpy("rows to start from")))
    with precision(config.dtype):
        model = starting_models(
            config,
            np.asarray(sample.x, np.float64),
            key=streams.key("model"),
            starts=int(estimator.starts),
        )
        budget = budget_of(estimator, method, model, len(file))
        rows = file.inputs.original(np.asarray(sample.x, np.float64))
        data: Batch | RowFile = file
        full_batch = len(file) <= budget.batch_size
        if full_batch:
            x, y = file.read(np.arange(len(file)))
            data = Batch(*(on_device(part, config.dtype) for part in pad_rows(x, y)))
        result = fit(
            model,
            method,
            data,
            steps=budget.steps,
            key=streams.key("training"),
            batch_size=None if full_batch else budget.batch_size,
            num_data=len(file),
            plateau=estimator.patience,
            meanwhile=rehearsal(estimator, config, model, rows, file.inputs, file.targets, local),
            **training_options(estimator, callbacks, chunk),
        )
    keep(estimator, result, method, config, budget, seed, len(file), file.inputs, file.targets)
    if local is not None and result.status != "interrupted":
        known = file.read(sample_of(len(file), _MOST_NEIGHBOURS, streams.numpy("local rows")))
        x, y = np.asarray(known.x, np.float64), np.asarray(known.y, np.float64)
        estimator._fit_local(file.inputs.original(x), y, None, local, streams.numpy("local layer"))


def note_source(estimator: Any, source: TableRows | ArrayRows) -> None:
    """Keep what a source knows about its columns. A model file then knows them, as `novidgp fit` does it."""
    estimator.n_features_in_ = len(estimator.input_scaling_.shift)
    estimator.__dict__.pop("feature_names_in_", None)
    if isinstance(source, TableRows):
        estimator.extra_ = {TABLE: source.encoding.to_json()}
        if source.named:
            estimator.feature_names_in_ = np.array(source.encoding.matrix_columns, object)


def sample_of(rows: int, most: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of at most so many rows, in order."""
    return np.arange(rows) if rows <= most else np.sort(rng.choice(rows, most, replace=False, shuffle=False))


def learn_classes(source: TableRows | ArrayRows) -> np.ndarray:
    """The labels of a source, sorted."""
    found: set[Any] = set()
    for _, y in source.blocks():
        found |= set(np.unique(y).tolist())
    kind = None if any(isinstance(label, str) for label in found) else np.result_type(*map(type, found))
    return np.array(sorted(found), kind)
