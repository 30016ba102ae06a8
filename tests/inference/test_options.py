"""Options of methods: checked when a method is made, and equal options are equal methods."""

import dataclasses
from typing import ClassVar, Literal, final

import numpy as np
import pytest

from novidgp.inference import DSVI, IPVI, METHODS, NOVI, SGHMC, Method, NOVIPaper, make_method
from novidgp.inference.options import option, option_names


@final
@dataclasses.dataclass(frozen=True)
class Sample(Method):
    """A method with one option of every kind."""

    name: ClassVar[str] = "sample"
    choice: Literal["left", "right"] = "left"
    maybe: Literal["tanh", "relu"] | None = None
    flag: bool = False
    count: int = 3
    depth: int = option(2, least=0)
    rate: float = 0.1
    share: float = option(0.5, most=1.0)
    limits: tuple[float, float] | None = (0.5, 2.0)

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        raise NotImplementedError


@pytest.mark.parametrize(
    "accepted",
    [
        {"choice": "right"},
        {"maybe": "relu"},
        {"flag": np.True_},
        {"count": np.int64(1)},
        {"depth": 0},
        {"rate": 0},
        {"rate": 0.0},
        {"share": 1.0},
        {"limits": None},
        {"limits": (0, 5)},
    ],
    ids=str,
)
def test_what_fits_its_annotation_is_accepted(accepted):
    (name, value), *_ = accepted.items()
    assert getattr(Sample(**accepted), name) == value


@pytest.mark.parametrize(
    ("refused", "error", "message"),
    [
        ({"choice": "rihgt"}, ValueError, r"choice='rihgt' is unknown. Did you mean 'right'\?"),
        ({"maybe": "tahn"}, ValueError, r"maybe='tahn' is unknown. Did you mean 'tanh'\?"),
        ({"flag": 1}, TypeError, "flag must be True or False, got 1"),
        ({"count": 0}, ValueError, "count=0 is too small; it must be at least 1"),
        ({"count": 2.0}, TypeError, "count must be an integer, got 2.0 of type float"),
        ({"count": True}, TypeError, "count must be an integer, got True"),
        ({"depth": -1}, ValueError, "depth=-1 is too small; it must be at least 0"),
        ({"rate": -0.1}, ValueError, "rate=-0.1 must be a finite number, at least 0"),
        ({"rate": float("nan")}, ValueError, "rate=nan must be a finite number"),
        ({"rate": float("inf")}, ValueError, "rate=inf must be a finite number"),
        ({"rate": "fast"}, TypeError, "rate must be a number, got 'fast'"),
        ({"share": 1.5}, ValueError, "share=1.5 must be a finite number, between 0 and 1"),
        ({"limits": (1.0,)}, TypeError, "limits must be 2 numbers"),
        ({"limits": 3.0}, TypeError, "limits must be 2 numbers, got 3.0"),
        ({"limits": (1.0, -1.0)}, ValueError, "limits=-1.0 must be a finite number"),
        ({"count": {}}, TypeError, r"count=\{\} must be a plain value"),
    ],
    ids=str,
)
def test_what_does_not_is_refused_by_name(refused, error, message):
    with pytest.raises(error, match=message):
        Sample(**refused)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (NOVI, {"network": False, "width": 8}, "width=8 has no effect with network=False"),
        (NOVI, {"network": False, "critic_steps": 5}, "critic_steps=5 has no effect with network=False"),
        (NOVI, {"critic_steps": 0, "critic_rate": 0.1}, "critic_rate=0.1 has no effect with critic_steps=0"),
        (
            NOVIPaper,
            {"critic_steps": 0, "critic_rate": 0.1},
            "critic_rate=0.1 has no effect with critic_steps",
        ),
        (NOVI, {"covariance": "diagonal", "lower_rate": 0.1}, "lower_rate=0.1 has no effect with covariance"),
        (NOVI, {"last_layer": "gradient", "statistics_rate": 0.5}, "statistics_rate=0.5 has no effect"),
        (NOVI, {"last_layer": "closed-form", "covariance": "diagonal"}, "needs covariance='full'"),
        (NOVI, {"last_layer": "closed-form", "bound": "log_expected"}, "needs bound='expected_log'"),
        (NOVIPaper, {"trace": "exact", "probes": 3}, "probes=3 has no effect with trace='exact'"),
        (NOVIPaper, {"regularisation": 0.0}, "regularisation and output_limit must be above 0"),
        (IPVI, {"output_limit": 2.0}, "output_limit=2.0 has no effect with generator='smooth'"),
        (IPVI, {"generator": "implicit", "mean_rate": 0.1}, "mean_rate=0.1 has no effect with generator"),
        (
            IPVI,
            {"contrast": "prior", "reference_rate": 0.1},
            "reference_rate=0.1 has no effect with contrast",
        ),
    ],
)
def test_options_without_effect_are_refused(method, options, message):
    with pytest.raises(ValueError, match=message):
        method(**options)


def test_equal_options_are_equal_methods():
    """Compiled programs are shared by value: a list and a tuple are the same, other values are another
    method."""
    assert DSVI(num_paths=3) == DSVI(num_paths=3) != DSVI(num_paths=4)
    assert hash(DSVI(num_paths=3)) == hash(DSVI(num_paths=3))
    assert Sample(limits=[0.1, 10.0]) == Sample(limits=(0.1, 10.0))  # type: ignore[arg-type]
    assert hash(Sample(limits=[0.1, 10.0])) == hash(Sample(limits=(0.1, 10.0)))  # type: ignore[arg-type]
    assert len({method() for method in METHODS.values()}) == len(METHODS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        DSVI().num_paths = 5  # type: ignore[misc]


def test_a_method_is_made_by_name_with_its_options():
    assert make_method("sghmc", {"num_chains": 2}) == SGHMC(num_chains=2)
    assert make_method("dsvi") == make_method("dsvi", None) == DSVI()
    assert make_method("novi", {"critic_steps": 1}, preset="paper") == NOVIPaper(critic_steps=1)
    assert make_method("novi-paper", {"critic_steps": 1}) == NOVIPaper(critic_steps=1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("dsiv",), ValueError, r"inference='dsiv' is unknown. Did you mean 'dsvi'\?"),
        (("dsvi", {"learning_rat": 0.1}), ValueError, r"Did you mean 'learning_rate'\?.*inference='dsvi'"),
        (("dsvi", {"num_path": 0}), ValueError, r"Did you mean 'num_paths'\?"),
        (("dsvi", {"step_scale": 0.1}), ValueError, "inference_options key='step_scale' is unknown"),
        (("dsvi", {"num_paths": 0}), ValueError, "inference_options of 'dsvi': num_paths=0 is too small"),
        (("dsvi", {"num_paths": "many"}), TypeError, "of 'dsvi': num_paths must be an integer, got 'many'"),
        (("dsvi", "fast"), TypeError, "inference_options must be a dict"),
    ],
)
def test_bad_names_and_options_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        make_method(*arguments)


@pytest.mark.parametrize(("method", "preset"), [("novi", "papr"), ("dsvi", "paper")])
def test_presets_belong_to_methods(method, preset):
    with pytest.raises(ValueError, match=f"preset='{preset}' is unknown"):
        make_method(method, preset=preset)


@pytest.mark.parametrize("name", METHODS)
def test_the_options_of_a_method_are_its_fields_and_their_defaults_are_valid(name):
    method = METHODS[name]()
    assert option_names(METHODS[name]) == list(dataclasses.asdict(method))
    assert make_method(name, dataclasses.asdict(method)) == method
