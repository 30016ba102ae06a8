"""Inference methods: one file each, all behind the same small interface (`base.Method`, `base.Inference`)."""

from collections.abc import Mapping
from typing import Any

from novidgp.checks import check_choice
from novidgp.inference.base import Inference, Method
from novidgp.inference.dsvi import DSVI
from novidgp.inference.ensembles import prepare, with_snapshots, with_starts
from novidgp.inference.flow import Flow
from novidgp.inference.frozen import Frozen, with_frozen_model
from novidgp.inference.ipvi import IPVI
from novidgp.inference.iwvi import IWVI, IWVIDReG
from novidgp.inference.ml import MaximumLikelihood
from novidgp.inference.novi import NOVI, NOVIPaper
from novidgp.inference.options import option_names
from novidgp.inference.sghmc import SGHMC
from novidgp.messages import unknown
from novidgp.posteriors.fitted import Fitted

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (NOVI, NOVIPaper, DSVI, SGHMC, IPVI, Flow, MaximumLikelihood, IWVI, IWVIDReG)
}
"""The methods by name. Add one of your own here, and the estimators and the command know it."""

PRESETS = {"default": {}, "paper": {"novi": "novi-paper"}}
"""Other methods that a preset stands for: `preset="paper"` makes `novi` the published algorithm."""


def make_method(name: str, options: Any = None, *, preset: str = "default") -> Method:
    """The method called `name`, with a dict of some of its options. Errors name the option and the nearest
    known one."""
    check_choice("inference", name, METHODS)
    known = ("default", *(preset for preset in PRESETS if name in PRESETS[preset]))
    check_choice("preset", preset, known)
    method = METHODS[PRESETS[preset].get(name, name)]
    options = {} if options is None else options
    if not isinstance(options, Mapping):
        raise TypeError(
            f"inference_options must be a dict of options for inference={name!r}, got {options!r}."
        )
    names = option_names(method)
    for option in options:
        if option not in names:
            raise ValueError(
                unknown("inference_options key", option, names) + f" (options of inference={method.name!r})"
            )
    try:
        return method(**options)
    except (TypeError, ValueError) as error:
        raise type(error)(f"inference_options of {method.name!r}: {error}") from None


__all__ = [
    "DSVI",
    "IPVI",
    "IWVI",
    "METHODS",
    "NOVI",
    "PRESETS",
    "SGHMC",
    "Fitted",
    "Flow",
    "Frozen",
    "IWVIDReG",
    "Inference",
    "MaximumLikelihood",
    "Method",
    "NOVIPaper",
    "make_method",
    "prepare",
    "with_frozen_model",
    "with_snapshots",
    "with_starts",
]
