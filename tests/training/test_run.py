"""A run between two chunks: what a chunk adds, how it recovers, and why it ends. No JAX in here."""

import numpy as np
import pytest

from novidgp.posteriors.fitted import Fitted
from novidgp.training.run import MAX_RECOVERIES, Run, extended, recovering, verdict


def chunk(run, losses, *, candidate=None, **measured):
    return extended(run, run.step, {"loss": np.asarray(losses, float)}, measured, 0.0, candidate)


def run_of(*losses, name="loss"):
    """A run with one step a chunk."""
    run = Run(None)
    for loss in losses:
        measured = {} if name == "loss" else {"candidate": Fitted(loss, None), "validation_nll": loss}
        run = chunk(run, [loss], **measured)
    return run


def test_a_chunk_adds_its_steps_and_its_means():
    run = chunk(chunk(Run(None), [3.0, 1.0], rsd=5.0), [0.0, 0.0, -3.0], rsd=4.0)
    history = run.history()
    assert run.step == 5
    np.testing.assert_array_equal(history["loss"], [3, 1, 0, 0, -3])
    np.testing.assert_array_equal(history["chunk_step"], [2, 5])
    np.testing.assert_array_equal(history["chunk_loss"], [2, -1])
    np.testing.assert_array_equal(history["rsd"], [5, 4])
    assert Run(None).history() == {}


def test_the_best_candidate_is_that_of_the_lowest_finite_score():
    assert run_of(3.0, 1.0, 2.0, name="score").best.model == 1.0
    assert np.isnan(run_of(np.nan, np.nan, name="score").best.model)
    assert run_of(np.nan, 4.0, np.nan, 5.0, name="score").best.model == 4.0


def test_recoveries_end_after_so_many_in_a_row():
    run = chunk(Run(None), [1.0])
    for attempt in range(1, MAX_RECOVERIES + 1):
        run = recovering(run, np.array([0.0, np.nan]))
        assert (run.failures, run.recoveries, run.verdict) == (attempt, attempt, None)
        assert run.notes[-1].startswith("non-finite loss at step 3: went back to step 1")
    good = chunk(run, [1.0])
    assert (good.failures, good.recoveries) == (0, MAX_RECOVERIES)
    assert recovering(good, np.array([0.0])).verdict is None
    given_up = recovering(run, np.array([0.0, 1.0]))
    assert given_up.verdict == "diverged"
    assert given_up.notes[-1].startswith("non-finite state by step 3: gave up")


def test_a_run_is_finished_after_its_steps():
    assert verdict(run_of(1.0, 1.0), 2, None, None) == "finished"
    assert verdict(run_of(1.0, 1.0), 3, None, None) is None


@pytest.mark.parametrize(
    ("scores", "ends"),
    [([3.0, 1.0, 2.0], False), ([3.0, 1.0, 2.0, 1.0], True), ([3.0, 1.0, 2.0, 0.0], False)],
)
def test_patience_counts_chunks_without_a_better_score(scores, ends):
    run = run_of(*scores, name="score")
    assert verdict(run, 100, 2, None) == ("early-stopped" if ends else None)


def test_a_plateau_is_a_smoothed_loss_that_no_longer_falls():
    assert verdict(run_of(*np.linspace(5, 0, 10)), 100, None, 2) is None
    assert verdict(run_of(1.0, 1.0, 1.0), 100, None, 2) == "plateau"
    assert verdict(run_of(1.0, 1.0, 1.0), 100, None, 3) is None
    # Noise around a falling loss is no plateau: the smoothed loss falls by 0.3 a chunk on average.
    falling = 10.0 - np.arange(20) + 0.5 * (-1.0) ** np.arange(20)
    assert verdict(run_of(*falling), 100, None, 2) is None
    # With a validation set patience decides, not the loss.
    assert verdict(run_of(1.0, 1.0, 1.0, name="score"), 100, None, 2) is None
