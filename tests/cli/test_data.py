"""The commands of `novidgp data`, run in process."""

import numpy as np
import pytest
from typer.testing import CliRunner

from novidgp.cli.data import data_app
from novidgp.datasets import dataset_names

runner = CliRunner()
pytestmark = pytest.mark.usefixtures("cache")


def test_list_shows_every_set_and_whether_it_is_there(cache, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    cache.mkdir()
    (cache / "boston.npz").touch()
    result = runner.invoke(data_app, ["list"])
    assert result.exit_code == 0
    lines = {line.split()[1]: line for line in result.output.splitlines() if line.startswith("│")}
    assert set(dataset_names()) <= set(lines)
    assert "yes" in lines["boston"]
    assert "no" in lines["yacht"]
    assert "built in" in lines["iris"]


def test_info_names_source_licence_and_how_to_get_it():
    result = runner.invoke(data_app, ["info", "energy"])
    assert result.exit_code == 0
    for part in ("768 x 8", "CC BY 4.0", "archive.ics.uci.edu", "data import energy"):
        assert part in result.output


@pytest.mark.parametrize("command", [["info", "bostn"], ["fetch", "bostn"], ["import", "bostn", "file"]])
def test_unknown_names_are_answered_with_the_nearest(command):
    result = runner.invoke(data_app, command)
    assert result.exit_code == 1
    assert "did you mean 'boston'?" in result.output
    assert "Traceback" not in result.output


def test_import_stores_a_checked_file(expect, tmp_path, cache):
    values = np.random.default_rng(0).normal(size=(30, 7)).astype(np.float32)
    expect("yacht", values[:, :6], values[:, 6])
    np.savetxt(tmp_path / "y.data", values)
    result = runner.invoke(data_app, ["import", "yacht", str(tmp_path / "y.data")])
    assert result.exit_code == 0
    assert (cache / "yacht.npz").exists()
    refused = runner.invoke(data_app, ["import", "yacht", str(tmp_path / "missing")])
    assert refused.exit_code == 1
    assert "no file" in refused.output
