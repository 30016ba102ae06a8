"""The suites as data: what each holds, how it is narrowed, how its rows are called."""

import pytest

from novidgp.bench import suites
from novidgp.bench.methods import make_estimator
from novidgp.bench.paper import _rows, printed
from novidgp.bench.spec import Fit
from novidgp.bench.suites import SUITES, narrowed
from novidgp.datasets import dataset_info


def test_every_table_of_the_paper_has_a_suite_that_shows_it():
    shown = {suite.paper for suite in SUITES.values()} - {None}
    assert shown == {key[0] for key in _rows()}


@pytest.mark.parametrize("suite", SUITES.values(), ids=list(SUITES))
def test_a_suite_names_known_data_and_has_no_fit_twice(suite):
    fits = suite.fits()
    assert len({fit.key for fit in fits}) == len(fits) > 0
    for dataset in suite.datasets:
        dataset_info(dataset)
    labels = {(fit.dataset, fit.protocol, fit.layers, fit.seed, suite.label(fit)) for fit in fits}
    assert len(labels) == len(fits), "two fits of a suite share a row and a split"


@pytest.mark.parametrize("suite", [s for s in SUITES.values() if s.paper == s.name], ids=lambda s: s.name)
def test_the_papers_rows_have_a_place_in_our_table(suite):
    ours = {(fit.dataset, suite.label(fit), fit.layers) for fit in suite.fits()}
    theirs = {key[1:] for key in _rows() if key[0] == suite.name}
    assert theirs
    assert theirs <= ours
    scores = {score for key, row in _rows().items() if key[0] == suite.name for score in row}
    assert suite.scores[0] in scores


def test_the_paper_prints_what_we_say_it_prints():
    assert printed("uci", "boston", "novi", 2)["rmse"].text("rmse") == "0.20 (0.01)"
    assert printed("large", "airline", "dsvi", 5)["rmse_raw"].text("rmse_raw") == "24.10"
    assert printed("images", "mnist", "novi", 4)["accuracy"].text("accuracy") == "98.21"
    assert printed("lambda", "energy", "novi, lambda=10", 2)["rmse_train"].text("rmse") == "0.031 (0.001)"
    assert (
        printed("trace", "energy", "novi, exact", 2)["seconds_per_step"].text("seconds_per_step") == "0.454"
    )
    assert printed("uci", "steps", "novi", 2) == {}


def test_narrowing_replaces_axes_and_splits_stay_together():
    suite = narrowed(
        SUITES["uci"], methods=["novi", "exact-gp"], datasets=["yacht"], layers=[3], splits=[0, 4], steps=7
    )
    assert suite.fits() == [
        Fit("yacht", "random", seed, *rest)
        for rest in (("novi", 3, 100, 7), ("exact-gp",))
        for seed in (0, 4)
    ]
    assert suite.label(suite.fits()[0]) == "novi"
    assert SUITES["uci"].label(suite.fits()[0]) == "novi, 7 steps"


def test_narrowing_refuses_unknown_names():
    with pytest.raises(ValueError, match="method 'nuts' is unknown"):
        narrowed(SUITES["uci"], methods=["nuts"])
    with pytest.raises(Exception, match="did you mean 'boston'"):
        narrowed(SUITES["uci"], datasets=["bosten"])
    with pytest.raises(ValueError, match="Did you mean 'uci'"):
        suites.find_suite("uic")


def test_the_systems_of_the_paper_are_models_and_methods_of_ours():
    fits = {fit.method: fit for fit in SUITES["images-conv"].fits() if fit.dataset == "mnist"}
    dcgp, bdcgp, cnf, dkl = (
        make_estimator(fits[name], "classification") for name in ("dcgp", "bdcgp", "cnf", "dkl")
    )
    assert [model.inference for model in (dcgp, bdcgp, cnf, dkl)] == ["dsvi", "dsvi", "flow", "dsvi"]
    assert (dkl.layers, dkl.features, dkl.num_layers, dkl.num_inducing) == (None, "cnn", 1, 100)
    assert dcgp.layers == cnf.layers
    assert dcgp.layers[-1]["location"] is False
    assert (bdcgp.layers, bdcgp.num_inducing) == ("conv", [128, 384])
