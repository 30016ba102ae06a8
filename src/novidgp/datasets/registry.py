"""Every known data set, and how to look one up by name."""

from novidgp.datasets.builtin import BUILTIN
from novidgp.datasets.classification_sets import CLASSIFICATION
from novidgp.datasets.errors import UnknownDatasetError
from novidgp.datasets.info import DatasetInfo
from novidgp.datasets.regression_sets import REGRESSION
from novidgp.messages import nearest

REGISTRY: dict[str, DatasetInfo] = {info.name: info for info in (*BUILTIN, *REGRESSION, *CLASSIFICATION)}
"""The built-in data sets first, then those read from files."""


def dataset_names() -> tuple[str, ...]:
    """The names `load_dataset` accepts."""
    return tuple(REGISTRY)


def dataset_info(name: str) -> DatasetInfo:
    """Look a data set up by name; the error for an unknown name offers the nearest known one."""
    try:
        return REGISTRY[name]
    except KeyError:
        near = nearest(name.lower(), REGISTRY)
        hint = f"known: {', '.join(REGISTRY)}" if near is None else f"did you mean {near!r}?"
        raise UnknownDatasetError(f"no data set is named {name!r}; {hint}") from None
