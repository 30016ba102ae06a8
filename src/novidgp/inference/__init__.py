"""Inference methods: one file each, all behind the same small contract (`base.Inference`)."""

import functools
from collections.abc import Callable

from novidgp.inference.base import Fitted, Inference
from novidgp.inference.dsvi import dsvi
from novidgp.inference.ensembles import with_starts
from novidgp.inference.ipvi import ipvi
from novidgp.inference.iwvi import iwvi, iwvi_dreg
from novidgp.inference.ml import ml
from novidgp.inference.novi import PAPER, novi
from novidgp.inference.sghmc import sghmc

METHODS: dict[str, Callable[..., Inference]] = {
    "novi": novi,
    "dsvi": dsvi,
    "sghmc": sghmc,
    "ipvi": ipvi,
    "ml": ml,
    "iwvi": iwvi,
    "iwvi-dreg": iwvi_dreg,
}

LATENT_METHODS = ("iwvi", "iwvi-dreg")
"""Those that learn a proposal for a latent variable, and whose models have one unless told otherwise."""

PRESETS: dict[str, dict[str, dict]] = {"novi": {"default": {}, "paper": PAPER}}


def presets(name: str) -> dict[str, dict]:
    """The named sets of options of a method; every method has at least `default`."""
    return PRESETS.get(name, {"default": {}})


@functools.lru_cache(maxsize=64)
def make_inference(name: str, num_data: int, steps: int, *, starts: int = 1, **options) -> Inference:
    """The method called `name`, for models stacked on a leading axis if it has more than one of the `starts`.

    Equal arguments give the same object, so that its compiled step is reused.
    """
    method = METHODS[name](num_data, steps, **options)
    return method if starts == 1 else with_starts(method)


__all__ = ["LATENT_METHODS", "METHODS", "Fitted", "Inference", "make_inference", "presets"]
