"""`novidgp doctor`."""

import numpy as np

from support.commands import houses, refused, run


def test_doctor_names_the_trouble_and_exits_1(tmp_path):
    frame = houses().assign(useless=1.0)
    frame.loc[3, "size"] = np.nan
    frame.to_csv(tmp_path / "h.csv", index=False)
    output = run("doctor", tmp_path / "h.csv", "--target", "price", code=1).output
    assert "1 values missing" in output
    assert "--drop useless" in output


def test_a_healthy_table_exits_0(tmp_path):
    houses().to_csv(tmp_path / "ok.csv", index=False)
    assert "nothing that would hurt" in run("doctor", tmp_path / "ok.csv").output


def test_what_a_fit_refuses_exits_1(tmp_path):
    frame = houses()
    frame[["price"]].to_csv(tmp_path / "alone.csv", index=False)
    frame.assign(price=2**60 + np.arange(60) % 2).to_csv(tmp_path / "float.csv", index=False)
    for name, words in {"alone.csv": "no feature", "float.csv": "constant"}.items():
        assert words in refused("fit", tmp_path / name, "-t", "price")
        assert words in run("doctor", tmp_path / name, "-t", "price", code=1).output
