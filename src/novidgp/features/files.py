"""Transformers in model files. A file holds no code: `PatchFeatures` is kept whole, as arrays and parameters;
of any other transformer a file keeps the name and the fingerprint, and asks for it again."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from novidgp.features.fingerprints import fingerprint, name_of
from novidgp.features.patches import PatchFeatures
from novidgp.features.transformers import is_fitted, is_transformer
from novidgp.storage import ModelFileError

_PREFIX = "features."


def transformer_to_file(transformer: Any) -> tuple[dict[str, np.ndarray], dict[str, Any] | None]:
    """The arrays of a fitted transformer, and its description as JSON; None where there is none."""
    if transformer is None:
        return {}, None
    description: dict[str, Any] = {"name": name_of(transformer), "fingerprint": fingerprint(transformer)}
    if not isinstance(transformer, PatchFeatures):
        return {}, description
    params = transformer.get_params()
    if not isinstance(params["random_state"], Integral):
        params["random_state"] = None
    description["params"] = {name: None if v is None else int(v) for name, v in params.items()}
    return {_PREFIX + name: array for name, array in transformer.to_arrays().items()}, description


def transformer_from_file(
    arrays: Mapping[str, np.ndarray], description: Mapping[str, Any] | None, given: Any
) -> Any:
    """The transformer of a file, or the one that was `given` for it, if it is the same."""
    if description is None:
        if given is not None:
            raise ModelFileError("the model has no transformer; load it without features=.")
        return None
    if given is None and "params" in description:
        learned = {k.removeprefix(_PREFIX): v for k, v in arrays.items() if k.startswith(_PREFIX)}
        return PatchFeatures(**description["params"]).with_arrays(learned)
    return _check_given(description, given)


def _check_given(description: Mapping[str, Any], given: Any) -> Any:
    name, expected = description["name"], description["fingerprint"]
    if given is None:
        raise ModelFileError(
            f"the model's inputs go through {name}, which is code and therefore not in the file. Pass it: "
            "load_model(path, features=transformer)."
        )
    if not is_transformer(given):
        raise ModelFileError(f"features={given!r} is no transformer; the model was fitted with {name}.")
    if not is_fitted(given):
        raise ModelFileError(
            f"features={given!r} is not fitted. Pass the one that the model was fitted with: its features_, "
            "kept for example with joblib.dump."
        )
    if expected is not None and fingerprint(given) != expected:
        raise ModelFileError(
            f"features={given!r} is not the transformer that the model was fitted with ({name}, fingerprint "
            f"{expected}): its class, its parameters or what it learned differ."
        )
    return given
