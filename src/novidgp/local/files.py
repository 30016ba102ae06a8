"""Local layers as plain arrays, for model files."""

from collections.abc import Mapping

import numpy as np

from novidgp.local.gp import LEAST_DF, LocalGP
from novidgp.local.layer import LocalLayer, LocalTarget
from novidgp.local.rows import ConditionedGP, Rows
from novidgp.local.scales import LEVELS, t_scales
from novidgp.numerics.scaling import Standardiser
from novidgp.storage import ModelFileError

PREFIX = "local/"
_ROWS = ("inputs", "residuals", "deep_variance", "noise_factor")
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
        arrays[f"{number}/scales"] = target.scales
        arrays |= {f"{number}/{name}": np.asarray(getattr(rows, name)) for name in _ROWS}
        arrays |= {f"{number}/{name}": np.asarray(getattr(gp, name)) for name in _GP}
    return {PREFIX + name: array for name, array in arrays.items()}


def layer_from_arrays(arrays: Mapping[str, np.ndarray]) -> LocalLayer | None:
    """The layer that `layer_to_arrays` wrote, or None if it wrote none."""
    own = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
    if not own:
        return None

    own = _with_scales(own)
    _check_shapes(own)

    def target(number: int) -> LocalTarget:
        rows = Rows(*(own[f"{number}/{name}"] for name in _ROWS))
        gp = LocalGP(*(own[f"{number}/{name}"] for name in _GP))
        return LocalTarget(ConditionedGP(gp, rows), own[f"{number}/scales"])

    return LocalLayer(
        Standardiser(own["shift"], own["scale"]),
        int(own["neighbours"]),
        tuple(target(number) if there else None for number, there in enumerate(own["targets"])),
    )


def _with_scales(own: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """With scales where an older version kept one factor of those of a t distribution."""
    for number in np.flatnonzero(own["targets"]):
        if (factor := own.get(f"{number}/calibration")) is not None:
            df = LEAST_DF + float(np.exp(own[f"{number}/log_excess_df"]))
            own = own | {f"{number}/scales": factor * t_scales(df)}
    return own


def _check_shapes(own: Mapping[str, np.ndarray]) -> None:
    """Refuse arrays that cannot be of one layer, before anything is made of them."""
    columns = own["shift"].size
    wanted = {"shift": (columns,), "scale": (columns,), "neighbours": ()}
    for number in np.flatnonzero(own["targets"]):
        rows = len(np.atleast_1d(own[f"{number}/residuals"]))
        shapes = ((rows, columns), (rows,), (rows,), (rows,), (LEVELS,), (columns,), (2,), (), (), (), ())
        wanted |= {
            f"{number}/{name}": shape for name, shape in zip((*_ROWS, "scales", *_GP), shapes, strict=True)
        }
    for name, shape in wanted.items():
        if own[name].shape != shape or not np.all(np.isfinite(own[name]) | (name == "scale")):
            raise ModelFileError(f"Array {PREFIX + name!r} is not finite numbers of shape {list(shape)}.")
    for number in np.flatnonzero(own["targets"]):
        if np.any(own[f"{number}/scales"] <= 0.0):
            raise ModelFileError(f"Array '{PREFIX}{number}/scales' has a scale that is not above zero.")
    if own["neighbours"] < 1:
        raise ModelFileError(f"The local layer has {own['neighbours']} neighbours.")
