"""How progress is described."""

import pytest

from novidgp.bench.display import describe, duration
from novidgp.bench.runner import Event
from novidgp.bench.spec import Fit
from support import fake

FIT = Fit("boston", "random", 3, "novi", 2, 100, 1000)


@pytest.mark.parametrize(
    ("seconds", "text"), [(40.0, "40 s"), (89.6, "90 s"), (720.0, "12 min"), (11_100.0, "3 h 05 min")]
)
def test_durations_are_written_as_people_write_them(seconds, text):
    assert duration(seconds) == text


def test_a_finished_fit_is_a_line_with_its_scores():
    line = describe(Event(fake.record(FIT, rmse=0.25, nll=1.5), 2, 8, 720.0))
    assert line.startswith("[2/8] boston random 3 novi L=2  rmse 0.25  nll 1.5")
    assert line.endswith("30 s  (12 min left)")


def test_a_failed_fit_is_one_line_with_its_error():
    line = describe(Event(fake.record(FIT, "failed") | {"error": "ValueError:\nbad"}, 1, 8, 0.0))
    assert line == "[1/8] boston random 3 novi L=2  failed: ValueError: bad"
