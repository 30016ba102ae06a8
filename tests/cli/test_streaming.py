"""The commands on tables that are read in blocks: directories, patterns and large files."""

import json

import numpy as np
import pandas as pd
import pytest

from novidgp.tables import files
from novidgp.training import rowfile
from support.commands import SMALL, houses, refused, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("houses")
    houses()[:40].to_parquet(folder / "a.parquet", index=False)
    houses()[40:].to_parquet(folder / "b.parquet", index=False)
    return folder


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    monkeypatch.setenv(rowfile.VARIABLE, str(tmp_path / "rows"))
    monkeypatch.setattr(files, "_BLOCK_ROWS", 16)


@pytest.fixture
def model(folder, tmp_path):
    path = tmp_path / "model.novidgp"
    result = run("fit", folder, "--target", "price", "--out", path, "--no-local", *SMALL)
    assert "regression of 'price': rows on disk, 3 columns, 5 features" in result.output
    return path


def test_a_directory_is_fitted_predicted_and_scored(folder, model, tmp_path, monkeypatch):
    whole = tmp_path / "all.parquet"
    houses().to_parquet(whole, index=False)
    for ending in ("csv", "parquet"):
        for name, data in (("blocks", folder), ("memory", whole)):
            run("predict", model, data, "--out", tmp_path / f"{name}.{ending}", "--with-inputs")
    blocks, memory = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("blocks", "memory"))
    pd.testing.assert_frame_equal(blocks, memory)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "blocks.parquet"), blocks, rtol=1e-12)
    scored = [json.loads(run("evaluate", model, data, "--json").stdout) for data in (folder, whole)]
    assert scored[0].keys() == scored[1].keys()
    assert scored[0]["rows"] == 60
    for name, value in scored[0].items():
        np.testing.assert_allclose(value, scored[1][name], rtol=1e-10, err_msg=name)


def test_a_pattern_goes_to_stdout(folder, model):
    lines = run("predict", model, folder / "*.parquet", "--out", "-").stdout.splitlines()
    assert lines[0] == "mean,std,q0.05,q0.5,q0.95"
    assert len(lines) == 61


def test_what_needs_memory_is_refused(folder, tmp_path):
    result = run("fit", folder, "-t", "price", "--test-fraction", "0.1", *SMALL, code=2)
    assert "rows on disk are not split" in " ".join(result.stderr.split())
    (folder / "notes.md").write_text("x")
    try:
        assert "notes.md is no .parquet or .csv file" in refused("fit", folder, "-t", "price", *SMALL)
    finally:
        (folder / "notes.md").unlink()


def test_a_large_file_is_read_in_blocks(folder, monkeypatch):
    assert not files.is_big(folder / "a.parquet")
    monkeypatch.setattr(files, "_BIG_BYTES", 100)
    assert files.is_big(folder / "a.parquet")
