"""The scripts of `examples/`, run as written but with few steps, rounds and repeats."""

import re
from pathlib import Path
from unittest import mock

import pytest

from novidgp.inference import METHODS

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "draw"))
def test_an_example_ends_prints_and_draws(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NOVIDGP_EXAMPLES_OUT", str(tmp_path))
    path = EXAMPLES / f"{name}.py"
    source, changed = re.subn(r"\bmax_steps=\d+", "max_steps=10", path.read_text())
    assert changed, "an example says max_steps= with a number, so that this test can lower it"
    source = re.sub(r"(np.linspace\(.*), 400\)", r"\1, 50)", source)
    source = source.replace("ROUNDS, REPEATS, QUERIES = 9, 3, 5", "ROUNDS, REPEATS, QUERIES = 2, 1, 5")
    with mock.patch.dict(METHODS):  # one example adds a method
        exec(compile(source, path, "exec"), {"__name__": "__main__", "__file__": str(path)})
    assert re.search(r"\d\.\d", capsys.readouterr().out), "prints what it measured"
    assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)
    assert [drawn.name for drawn in tmp_path.iterdir()] == [f"{name}.png"]


def test_every_example_has_its_picture_and_output():
    """`make examples` writes them; the site shows them."""
    for path in EXAMPLES.glob("*.py"):
        if path.stem != "draw":
            picture = EXAMPLES / "pictures" / f"{path.stem}.png"
            assert picture.read_bytes().startswith(PNG)
            assert picture.stat().st_size < 150_000
            assert picture.with_suffix(".txt").read_text()
