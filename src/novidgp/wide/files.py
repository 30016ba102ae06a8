"""Wide layers as plain arrays, for model files."""

from collections.abc import Mapping

import numpy as np

from novidgp.model.conv_layers import Located, PatchSumLayer
from novidgp.model.layers import Layer
from novidgp.posteriors.wide import WideLayer, WidePoints
from novidgp.storage import ModelFileError

PREFIX = "wide/"
_NAMES = ("inducing", "places", "log_stretch", "weights", "spread")


def wide_to_arrays(layer: WideLayer | None) -> dict[str, np.ndarray]:
    """The arrays of a layer by name; none for None."""
    if layer is None:
        return {}
    points, *posterior = layer
    parts = dict(zip(_NAMES, (*points, *posterior), strict=True))
    return {PREFIX + name: np.asarray(part) for name, part in parts.items() if part is not None}


def wide_from_arrays(arrays: Mapping[str, np.ndarray], last: Layer) -> WideLayer | None:
    """The layer that `wide_to_arrays` wrote for a model with the layer `last`, or None if it wrote none."""
    own = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
    if not own:
        return None
    located = isinstance(last, PatchSumLayer) and isinstance(last.kernel, Located)
    names = [name for name in _NAMES if located or name != "places"]
    missing = set(names) ^ set(own)
    if missing:
        raise ModelFileError(f"The wide layer's arrays are not {', '.join(names)}: see {sorted(missing)}.")
    columns = last.inducing.shape[-1] - 2 * located
    places = len(np.atleast_1d(own["places"])) if located else 1
    count = own["inducing"].shape[1] if own["inducing"].ndim == 3 else 0
    total = count * places
    wanted = {
        "inducing": (1, count, columns),
        "places": (places, 2),
        "log_stretch": (),
        "weights": (total, last.outputs),
        "spread": (total, total),
    }
    for name in names:
        if own[name].shape != wanted[name] or own[name].dtype != last.inducing.dtype:
            raise ModelFileError(f"Array {PREFIX + name!r} is not numbers of shape {list(wanted[name])}.")
    points = WidePoints(own["inducing"], own.get("places"), own["log_stretch"])
    return WideLayer(points, own["weights"], own["spread"])
