"""Fixtures of the commands' tests: two fitted models for all of them."""

from typing import NamedTuple

import jax
import numpy as np
import pytest

from support.commands import SMALL, houses, run
from support.data_fixtures import cache, expect  # noqa: F401


class Files(NamedTuple):
    """A table of houses and a model of their price; the same houses in two classes, and a model of those."""

    table: str
    model: str
    class_table: str
    class_model: str
    output: str
    """What the fit of the price printed."""


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> Files:
    directory = tmp_path_factory.mktemp("cli")
    frame = houses()
    frame.to_csv(directory / "houses.csv", index=False)
    band = np.where(frame["price"] > frame["price"].median(), "dear", "cheap")
    frame.drop(columns="price").assign(band=band).to_parquet(directory / "bands.parquet")
    names = ("houses.csv", "price.novidgp", "bands.parquet", "band.novidgp")
    table, model, class_table, class_model = (str(directory / name) for name in names)
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)  # compiling takes nearly all of the time
    output = run("fit", table, "-t", "price", "-o", model, *SMALL).output
    run("fit", class_table, "-t", "band", "-o", class_model, *SMALL)
    jax.config.update("jax_disable_most_optimizations", before)
    return Files(table, model, class_table, class_model, output)
