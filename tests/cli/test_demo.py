"""`novidgp demo`, from fits to pictures and a model file."""

from support.commands import run


def test_demo_goes_the_whole_way(tmp_path):
    output = run("demo", "--out", tmp_path / "demo", "--steps", "3").output
    assert "exact GP" in output
    assert "agree bit for bit" in output.replace("\n", " ")
    names = {path.name for path in (tmp_path / "demo").iterdir()}
    assert names == {"curve.png", "town.png", "digits.png", "town.novidgp"}
