"""Keys, lines and the repair of a torn file."""

import json

import pytest

from novidgp.bench.results import Results, failed, finished, fit_of, read_records
from novidgp.bench.spec import Fit, fit_from_json
from support import fake

FIT = Fit("boston", "random", 3, "novi", 2, 100, 1000)


def test_the_key_of_a_fit_never_changes():
    """Result files outlive versions: these two were computed when the format was made."""
    assert FIT.key == "73fc5d3a36407f48"
    assert FIT._replace(options={"b": 1, "a": [1, 2]}, data={"rows": 10}).key == "c504a57be5a210ff"


def test_a_key_depends_on_every_field_and_not_on_the_order_of_options():
    other = Fit(
        "energy", "contiguous", 4, "dsvi", 3, 50, 10, "paper", {"a": 1}, {"rows": 9}, curve=True, chunk=5
    )
    changed = [FIT._replace(**{name: getattr(other, name)}) for name in Fit._fields]
    assert len({FIT.key, *(fit.key for fit in changed)}) == 1 + len(Fit._fields)
    assert FIT._replace(options={"a": 1, "b": 2}).key == FIT._replace(options={"b": 2, "a": 1}).key
    assert Fit(*FIT).shape == FIT._replace(seed=0).shape != FIT._replace(layers=3).shape


def test_a_fit_survives_json_and_unknown_fields():
    facts = json.loads(json.dumps(FIT._asdict())) | {"from_the_future": 1}
    assert fit_from_json(facts) == FIT
    assert fit_from_json(facts).key == FIT.key


def test_records_come_back_as_written(tmp_path):
    lines = [fake.record(FIT._replace(seed=seed)) for seed in range(3)]
    with Results(tmp_path / "deep" / "uci.jsonl") as results:
        for line in lines:
            results.append(line)
        assert not results.repaired
    assert read_records(tmp_path / "deep" / "uci.jsonl") == json.loads(json.dumps(lines))
    assert fit_of(lines[1]) == FIT._replace(seed=1)


@pytest.mark.parametrize("cut", [1, 20, -2])
def test_a_torn_last_line_is_dropped_and_the_file_goes_on(tmp_path, cut):
    path = tmp_path / "uci.jsonl"
    whole, torn = (json.dumps(fake.record(FIT._replace(seed=seed))) for seed in range(2))
    path.write_text(whole + "\n" + torn[:cut])
    assert len(read_records(path)) == 1
    with Results(path) as results:
        assert results.repaired
        results.append(fake.record(FIT._replace(seed=2)))
    assert [fit_of(record).seed for record in read_records(path)] == [0, 2]


def test_a_last_line_without_its_newline_is_kept(tmp_path):
    path = tmp_path / "uci.jsonl"
    path.write_text(json.dumps(fake.record(FIT)))
    with Results(path) as results:
        results.append(fake.record(FIT._replace(seed=4)))
    assert [fit_of(record).seed for record in read_records(path)] == [3, 4]


def test_a_spoilt_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "uci.jsonl"
    path.write_text("{]\n" + json.dumps(fake.record(FIT)) + "\n")
    with pytest.raises(ValueError, match=r"uci\.jsonl, line 1: not a record"):
        read_records(path)
    path.write_text('{"dataset": "boston"}\n' + json.dumps(fake.record(FIT)) + "\n")
    with pytest.raises(ValueError, match="no 'fit'"):
        read_records(path)


def test_one_run_at_a_time_writes_a_file(tmp_path):
    with Results(tmp_path / "uci.jsonl"), pytest.raises(ValueError, match="being written by another"):
        Results(tmp_path / "uci.jsonl")
    Results(tmp_path / "uci.jsonl").close()


def test_a_success_outweighs_an_earlier_failure():
    bad, good = fake.record(FIT, "failed"), fake.record(FIT)
    other = fake.record(FIT._replace(seed=9), "failed")
    assert list(finished([bad, good, other])) == [FIT.key]
    assert list(failed([bad, good, other])) == [other["key"]]
