"""Fixtures for data sets: a cache directory of the test's own, and small data sets with facts to match."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from novidgp.datasets import DatasetInfo, Fingerprint, dataset_info
from novidgp.datasets.registry import REGISTRY


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, and no NOVIDGP_DATA: no test sees or writes the user's files."""
    directory = tmp_path / "cache"
    monkeypatch.delenv("NOVIDGP_DATA", raising=False)
    monkeypatch.setattr("novidgp.datasets.cache.cache_directory", lambda: directory)
    return directory


@pytest.fixture
def expect(monkeypatch: pytest.MonkeyPatch) -> Callable[..., DatasetInfo]:
    """Replace the recorded facts of a data set by those of the small arrays a test writes."""

    def replace(name: str, X: np.ndarray, y: np.ndarray, train_rows: int | None = None) -> DatasetInfo:
        info = dataset_info(name)
        if info.task == "regression":
            target: dict[str, Any] = {"target_mean": float(y.mean()), "target_sd": float(y.std())}
        else:
            classes = info.classes or 0
            target = {"class_counts": tuple(np.bincount(y, minlength=classes).tolist())}
        train = X[:train_rows].astype(np.float64)
        facts = Fingerprint(
            X.shape, **target, feature_mean=float(train.mean()), feature_sd=float(train.std())
        )
        small = dataclasses.replace(info, fingerprint=facts, official_train_rows=train_rows)
        monkeypatch.setitem(REGISTRY, name, small)
        return small

    return replace
