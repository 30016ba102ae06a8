"""`warm_start=True`: a fit that goes on from the last one, with more rows or the same.

Scalings are those of the first fit, because inducing points and hyper-parameters are in their units. What
cannot go on is refused in words, except for two things that rows alone decide: a column that was constant and
is not any more, and inducing points that were limited by the rows and are less than half of what the rows
allow now. These start anew, and `fit_notes_` tells.
"""

from typing import Any, NamedTuple

import numpy as np

from novidgp.model.build import ModelConfig
from novidgp.numerics.scaling import Standardiser, standardiser
from novidgp.posteriors.fitted import Fitted

STEPS = 50
"""Of a fit that goes on, where `max_steps` is None."""


class LastFit(NamedTuple):
    """What a fit goes on from."""

    start: Fitted
    """With several starts they are on a leading axis."""
    config: ModelConfig
    inputs: Standardiser
    targets: Standardiser


def goes_on(estimator: Any) -> bool:
    """Whether a fit of this estimator is to go on from another."""
    return bool(estimator.warm_start) and hasattr(estimator, "model_")


def last_fit(estimator: Any, method: Any, config: ModelConfig, X: np.ndarray) -> LastFit | str | None:
    """What to go on from; None where the fit is not to go on, a sentence where it cannot with these rows."""
    if not goes_on(estimator):
        return None
    before = estimator.config_
    _refuse_changes(method, estimator.method_, config, before)
    wanted, have = (part.inducing_counts() for part in (config, before))
    limits = [min(count, len(X)) for count in wanted]
    if config.layers is None and any(2 * had < limit for had, limit in zip(have, limits, strict=True)):
        return (
            f"Started anew: these rows allow {max(limits)} inducing points, and the last fit had {max(have)}."
        )
    if config.image is None and estimator.order is None:  # with an order, columns were left out on purpose
        varies = np.isinf(estimator.input_scaling_.scale) & np.isfinite(standardiser(X).scale)
        if varies.any():
            return (
                f"Started anew: column {np.argmax(varies)} was constant in the last fit and is not any more."
            )
    fitted = estimator._fitted()
    if int(estimator.starts) == 1:
        start = fitted._replace(ensemble=None)
    else:
        start = fitted.members()
        if len(start.model.layers[0].inducing) != int(estimator.starts):
            raise ValueError(
                f"warm_start=True with starts={estimator.starts} goes on from as many models, and the last "
                f"fit has {len(start.model.layers[0].inducing)}. Fit with warm_start=False."
            )
    return LastFit(start, before, estimator.input_scaling_, estimator.target_scaling_)


def _refuse_changes(method: Any, old_method: Any, config: ModelConfig, before: ModelConfig) -> None:
    """Other rates are fine; another model or another family of posteriors is not."""
    more = any(new < old for new, old in zip(*(c.inducing_counts() for c in (config, before)), strict=False))
    same: dict[str, Any] = {"count_rate": before.count_rate}
    if not more:  # fewer may have been all that the rows of the last fit allowed
        same["num_inducing"] = before.num_inducing
    changes = [
        f"{name}={new!r} instead of {old!r}"
        for name, new, old in zip(config._fields, config._replace(**same), before, strict=True)
        if new != old
    ]
    if type(method) is not type(old_method):
        changes.append(f"inference={method.name!r} instead of {old_method.name!r}")
    if changes:
        raise ValueError(
            f"warm_start=True goes on from the last fit, but the model is another one: {', '.join(changes)}. "
            "Fit with warm_start=False, or make a new estimator."
        )
