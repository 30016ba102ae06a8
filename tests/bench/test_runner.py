"""The runner: what is done is done, whatever happens to the process."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from novidgp.bench import runner
from novidgp.bench.methods import make_estimator, unavailable_reason
from novidgp.bench.results import finished, fit_of, read_records
from novidgp.bench.spec import Fit
from novidgp.cli import app
from support import fake

QUICK = [Fit("steps", "random", seed, "exact-gp") for seed in range(4)]
START = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"  # a background shell's is deaf
    "from novidgp.cli import app; app()"
)


def bench(out, *, splits, jobs=1):
    """`novidgp bench run` in a process of its own, on fits of a fraction of a second."""
    arguments = ["bench", "run", "uci", "--datasets", "steps", "--methods", "exact-gp"]
    arguments += ["--splits", str(splits), "--jobs", str(jobs), "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-c", START, *arguments], stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for_lines(path, count, process):
    while process.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < count):
        time.sleep(0.01)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_run_loses_nothing_and_repeats_nothing(tmp_path, jobs):
    """SIGKILL at random moments after the next finished fit; then to the end."""
    path, splits = tmp_path / "uci.jsonl", 8
    chance = random.Random(jobs)
    kept: list[bytes] = []
    for _ in range(3 - jobs):
        process = bench(tmp_path, splits=splits, jobs=jobs)
        wait_for_lines(path, len(kept) + 1, process)
        time.sleep(chance.uniform(0.0, 0.4))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        lines = path.read_bytes().split(b"\n")[:-1]
        assert lines[: len(kept)] == kept, "a finished fit was lost or changed"
        assert len(lines) > len(kept)
        kept = lines
    last = bench(tmp_path, splits=splits, jobs=jobs)
    _, told = last.communicate(timeout=120)
    assert last.returncode == 0, told
    assert f"{splits - len(kept)} fits to run; {len(kept)} already" in told
    records = read_records(path)
    assert path.read_bytes().split(b"\n")[: len(kept)] == kept
    assert sorted(fit_of(record).seed for record in records) == list(range(splits)), (
        "none twice, none missing"
    )
    assert {record["status"] for record in records} == {"ok"}


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_stops_politely_and_the_next_run_goes_on(tmp_path, jobs):
    """A terminal sends it to the whole group: this process and its workers."""
    path = tmp_path / "uci.jsonl"
    process = bench(tmp_path, splits=40, jobs=jobs)
    wait_for_lines(path, 2, process)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on from there" in told
    assert "Traceback" not in told
    assert 2 <= len(read_records(path)) < 40


def test_a_failed_fit_is_recorded_and_the_rest_goes_on(tmp_path, tiny):
    path = tmp_path / "uci.jsonl"
    bad = tiny._replace(options={"kernel": "no-such-kernel"})
    assert runner.run([bad, QUICK[0]], path, suite="uci") == 2
    first, second = read_records(path)
    assert (first["status"], second["status"]) == ("failed", "ok")
    assert first["error"].startswith("ValueError: ")
    assert "no-such-kernel" in first["error"]
    assert "Traceback" in first["traceback"]
    assert runner.run([bad, QUICK[0]], path) == 0, "failed fits are not tried again by themselves"
    assert runner.run([bad, QUICK[0]], path, retry_failed=True) == 1
    assert list(finished(read_records(path))) == [QUICK[0].key]


def test_a_fit_of_ours_has_all_its_scores(tmp_path, tiny):
    path = tmp_path / "x.jsonl"
    fits = [tiny._replace(steps=9, chunk=3, curve=True), tiny._replace(dataset="iris", curve=True)]
    runner.run(fits, path, suite="x")
    regression, classification = (record["scores"] for record in read_records(path))
    assert {"rmse", "nll", "rmse_raw", "nll_raw", "coverage90", "seconds", "cpu_seconds"} <= set(regression)
    assert len(regression["coverage"]) == 10
    assert regression["coverage"] == sorted(regression["coverage"])
    assert regression["fit_status"] == "finished"
    assert regression["seconds_per_step"] > 0
    curve = regression["curve"]
    assert curve["step"] == [3, 6, 9]
    assert curve["rmse_test"][-1] == pytest.approx(regression["rmse"], rel=0.05)  # other draws of the paths
    assert curve["seconds"] == sorted(curve["seconds"])
    assert {"accuracy", "error", "nll", "brier", "ece"} <= set(classification)
    assert classification["accuracy"] + classification["error"] == 1
    assert "error_test" in classification["curve"]
    assert {"novidgp", "source", "jax", "cores", "jobs"} <= set(read_records(path)[0]["machine"])


def test_a_worker_that_dies_costs_its_own_fit_only(tmp_path, monkeypatch):
    def run_fit(fit, *, jobs, child):
        if fit.seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"key": fit.key, "status": "ok", "fit": fit._asdict(), "scores": {"seconds": 0.1}}

    monkeypatch.setattr(runner, "run_fit", run_fit)
    runner.run(QUICK, tmp_path / "x.jsonl", jobs=2)
    status = {fit_of(record).seed: record["status"] for record in read_records(tmp_path / "x.jsonl")}
    assert status == {0: "ok", 1: "failed", 2: "ok", 3: "ok"}


def test_dask_runs_the_fits_on_a_local_cluster(tmp_path):
    path = tmp_path / "uci.jsonl"
    events = []
    assert runner.run(QUICK, path, backend="dask", jobs=2, on_event=events.append) == 4
    records = read_records(path)
    assert sorted(fit_of(record).seed for record in records) == [0, 1, 2, 3]
    assert {record["status"] for record in records} == {"ok"}
    assert [event.finished for event in events] == [1, 2, 3, 4]
    here = tmp_path / "here.jsonl"
    runner.run(QUICK[:1], here, backend="sequential")
    (far,) = [record for record in records if fit_of(record).seed == 0]
    assert read_records(here)[0]["scores"]["rmse"] == pytest.approx(far["scores"]["rmse"], rel=1e-6)


def test_what_cannot_be_run_is_left_out_with_the_reason(tiny, monkeypatch):
    monkeypatch.setattr("novidgp.datasets.is_available", lambda name: True)
    assert "at most 2,000 rows" in (unavailable_reason(QUICK[0]._replace(dataset="protein")) or "")
    assert "exact-gp is for regression" in (unavailable_reason(QUICK[0]._replace(dataset="iris")) or "")
    work = runner.plan([tiny, QUICK[0]._replace(dataset="iris"), tiny], [])
    assert work.todo == [tiny]
    assert list(work.skipped.values()) == [1]


def test_a_baseline_whose_package_is_missing_is_left_out(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'novidgp[peers]'" in (
        unavailable_reason(Fit("steps", "random", 0, "gpytorch-dsvi", 2)) or ""
    )


def test_gpytorchs_deep_gp_is_scored_like_ours():
    pytest.importorskip("gpytorch")
    from novidgp.bench.gpytorch_dsvi import fit_dsvi
    from novidgp.bench.problems import load_problem
    from novidgp.bench.scoring import score

    problem = load_problem(Fit("steps", "random", 0, "gpytorch-dsvi", 2))
    scores = score(fit_dsvi(problem, seed=0, steps=30), problem)
    assert scores["rmse"] < 1.0
    assert scores["coverage"] == sorted(scores["coverage"])


def test_gpytorchs_sparse_gp_finds_a_step():
    pytest.importorskip("gpytorch")
    from novidgp.bench.gpytorch_svgp import fit_svgp
    from novidgp.bench.problems import load_problem
    from novidgp.bench.scoring import score

    problem = load_problem(Fit("steps", "random", 0, "gpytorch-svgp"))
    scores = score(fit_svgp(problem, seed=0, inducing=20, steps=300), problem)
    assert scores["rmse"] < 0.7
    assert scores["coverage"] == sorted(scores["coverage"])


def test_a_data_set_that_is_not_here_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setenv("NOVIDGP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "is not on this machine" in (unavailable_reason(Fit("year", "official", 0, "dsvi", 2)) or "")


def test_time_left_is_what_equal_fits_took(tiny):
    done = fake.record(tiny, seconds=10.0)
    todo = [tiny._replace(seed=1), tiny._replace(seed=2), tiny._replace(seed=3, layers=3)]
    clock = runner.Forecast([done], todo, jobs=2)
    slower = fake.record(todo[0], seconds=30.0)
    assert clock.after(slower) == pytest.approx((20 + 20) / 2)


def test_options_find_their_place(tiny):
    model = make_estimator(tiny._replace(options={"kernel": "rbf", "num_paths": 3}), "regression")
    assert model.kernel == "rbf"
    assert model.inference_options == {"num_paths": 3}
    assert (model.num_layers, model.num_inducing, model.max_steps, model.random_state) == (1, 5, 5, 0)


def test_a_dry_run_names_the_fits_and_writes_nothing(tmp_path):
    out = tmp_path / "r"
    answer = CliRunner().invoke(
        app, ["bench", "run", "split", "--datasets", "steps", "--dry-run", "--splits", "1", "--out", str(out)]
    )
    assert answer.exit_code == 0, answer.output
    assert "steps contiguous 0 hist-gb" in answer.output
    assert not out.exists()


def test_the_suites_are_listed():
    answer = CliRunner().invoke(app, ["bench", "list"])
    assert answer.exit_code == 0
    assert "uci-class" in answer.output


def test_lines_are_plain_json(tmp_path):
    runner.run(QUICK[:1], tmp_path / "x.jsonl", suite="x")
    (line,) = (tmp_path / "x.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert list(record)[:3] == ["key", "suite", "status"]
    assert record["fit"]["dataset"] == "steps"
