"""Local layers as plain arrays, for model files."""

from collections.abc import Mapping

import numpy as np

from novidgp.local.gp import LocalGP
from novidgp.local.layer import LocalLayer, LocalTarget
from novidgp.local.rows import ConditionedGP, Rows
from novidgp.numerics.scaling import Standardiser

PREFIX = "local/"
_ROWS = ("inputs", "residuals", "deep_variance")
_GP = ("log_lengthscale", "log_variance", "log_stretch", "log_noise", "log_share", "log_excess_df")


def layer_to_arrays(layer: LocalLayer | None) -> dict[str, np.ndarray]:
    """The arrays of a layer by name; none for None."""
    if layer is None:
        return {}
    arrays = {
        "shift": layer.features.shift,
        "scale": layer.features.scale,
        "neighbours": np.asarray(layer.neighbours),
        "targets": np.asarray([target is not None for target in layer.targets]),
    }
    for number, target in enumerate(layer.targets):
        if target is None:
            continue
        rows, gp = target.conditioned.rows, target.conditioned.gp
        arrays[f"{number}/calibration"] = np.asarray(target.calibration)
        arrays |= {f"{number}/{name}": np.asarray(getattr(rows, name)) for name in _ROWS}
        arrays |= {f"{number}/{name}": np.asarray(getattr(gp, name)) for name in _GP}
    return {PREFIX + name: array for name, array in arrays.items()}


def layer_from_arrays(arrays: Mapping[str, np.ndarray]) -> LocalLayer | None:
    """The layer that `layer_to_arrays` wrote, or None if it wrote none."""
    own = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
    if not own:
        return None

    def target(number: int) -> LocalTarget:
        rows = Rows(*(own[f"{number}/{name}"] for name in _ROWS))
        gp = LocalGP(*(own[f"{number}/{name}"] for name in _GP))
        return LocalTarget(ConditionedGP(gp, rows), float(own[f"{number}/calibration"]))

    return LocalLayer(
        Standardiser(own["shift"], own["scale"]),
        int(own["neighbours"]),
        tuple(target(number) if there else None for number, there in enumerate(own["targets"])),
    )
