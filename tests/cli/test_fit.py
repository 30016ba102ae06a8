"""`novidgp fit`: what it prints, and what it refuses before anything is compiled."""

import pytest

from support.commands import SMALL, houses, refused, run


def test_the_table_is_described(files):
    assert "regression of 'price': 60 rows, 3 columns, 5 features" in files.output
    assert "4 steps in" in files.output


def test_held_out_rows_are_scored(files, tmp_path):
    arguments = ["--test-fraction", "0.2", "-o", tmp_path / "m.novidgp", *SMALL]
    output = run("fit", files.table, "-t", "price", *arguments).output
    assert "48 rows" in output
    assert "12 rows held out" in output
    assert "RMSE" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", "prise"], "did you mean 'price'"),
        (["-t", "price", "--drop", "nothing"], "no such column"),
        (["-t", "price", "-o", "no/such/directory/m.novidgp"], "create"),
        (["-t", "price", "--inference", "dsvo"], "Did you mean 'dsvi'"),
        (["-t", "price", "--kernel", "rqq"], "Did you mean 'rq'"),
        (["-t", "price", "--features", "mpl"], "Did you mean 'mlp'"),
        (["-t", "price", "--latent-dim", "-1"], "too small"),
        (["-t", "price", "--set", "modl_rate=0.1"], "model_rate"),
        (["-t", "price", "--set", "num_samples=0"], "too small"),
        (["-t", "price", "--order", "tine"], "Did you mean 'time'"),
    ],
)
def test_mistakes_are_told_in_one_line(files, arguments, message):
    assert message in refused("fit", files.table, *arguments)


def test_bad_tables_are_told_in_one_line(tmp_path):
    assert "no file" in refused("fit", tmp_path / "none.csv", "-t", "y")
    houses().assign(price="dear").to_csv(tmp_path / "one.csv", index=False)
    assert "one class" in refused("fit", tmp_path / "one.csv", "-t", "price")
    houses().assign(price=1.5).to_csv(tmp_path / "constant.csv", index=False)
    told = run("fit", tmp_path / "constant.csv", "-t", "price", code=1).stderr
    assert "y is constant" in told
    assert "two values" not in told


@pytest.mark.parametrize(
    "arguments", [[], ["-t", "price", "--layers", "0"], ["-t", "price", "--set", "nonsense"]]
)
def test_wrong_usage_exits_with_2(files, arguments):
    run("fit", files.table, *arguments, code=2)


def test_no_input_is_overwritten_and_no_file_is_written_twice(tmp_path):
    table = tmp_path / "h.csv"
    houses().to_csv(table, index=False)
    before = table.read_bytes()
    for arguments in (["-o", table], ["--checkpoint", table]):
        assert "is the same file as DATA" in refused("fit", table, "-t", "price", *arguments)
    arguments = ["-o", tmp_path / "m", "--checkpoint", tmp_path / "m"]
    assert "is the same file as --out" in refused("fit", table, "-t", "price", *arguments)
    assert "is a directory; give the path of a file" in refused("fit", table, "-t", "price", "-o", ".")
    assert table.read_bytes() == before
    assert list(tmp_path.iterdir()) == [table]


def test_rows_in_order_are_tested_by_the_last(files, tmp_path):
    arguments = ["-t", "price", "-o", tmp_path / "m.novidgp", "--no-local", "--order", "time", *SMALL]
    output = " ".join(run("fit", files.table, *arguments, "--test-fraction", "0.1").output.split())
    assert "All columns kept: 54 rows are too few to judge their order by." in output
    assert "6 rows held out" in output


def test_the_local_layer_is_told_of(files, tmp_path):
    arguments = ["-t", "price", "-o", tmp_path / "m.novidgp", *SMALL]
    output = " ".join(run("fit", files.table, *arguments).output.split())
    assert "No local layer: 60 rows are too few." in output
    output = " ".join(run("fit", files.table, "--local", *arguments).output.split())
    assert "Local layer kept" in output
    assert "with the training rows (local layer; --no-local leaves them out)" in output
    assert "ocal layer" not in run("fit", files.table, "--no-local", *arguments).output
