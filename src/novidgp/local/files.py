"""Local layers as plain arrays, for model files."""

from collections.abc import Mapping

import numpy as np

from novidgp.local.class_layer import ClassLayer
from novidgp.local.gp import LEAST_DF, LocalGP
from novidgp.local.layer import SPREADS, LocalLayer, LocalTarget
from novidgp.local.rows import ConditionedGP, Rows
from novidgp.local.scales import LEVELS, t_scales
from novidgp.numerics.scaling import Standardiser
from novidgp.storage import ModelFileError

PREFIX = "local/"
_CLASSES = "classes"
_ROWS = ("inputs", "residuals", "deep_variance", "noise_factor")
_GP = ("log_lengthscale", "log_variance", "log_stretch", "log_noise", "log_share", "log_excess_df")


def layer_to_arrays(layer: LocalLayer | ClassLayer | None) -> dict[str, np.ndarray]:
    """The arrays of a layer by name; none for None."""
    if layer is None:
        return {}
    arrays = {
        "shift": layer.features.shift,
        "scale": layer.features.scale,
        "neighbours": np.asarray(layer.neighbours),
    }
    if isinstance(layer, ClassLayer):
        arrays |= _conditioned_to_arrays(layer.conditioned, _CLASSES)
    else:
        arrays["targets"] = np.asarray([target is not None for target in layer.targets])
        for number, target in enumerate(layer.targets):
            if target is not None:
                arrays[f"{number}/scales"] = target.scales
                arrays[f"{number}/most_spread"] = np.asarray(target.most_spread)
                arrays |= _conditioned_to_arrays(target.conditioned, number)
    return {PREFIX + name: array for name, array in arrays.items()}


def layer_from_arrays(
    arrays: Mapping[str, np.ndarray], num_classes: int | None = None
) -> LocalLayer | ClassLayer | None:
    """The layer that `layer_to_arrays` wrote, of a classifier if there are classes; None if it wrote none."""
    own = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
    if not own:
        return None
    if num_classes is None:
        own = _completed(own)
    _check_shapes(own, num_classes)
    features, neighbours = Standardiser(own["shift"], own["scale"]), int(own["neighbours"])
    if num_classes is not None:
        return ClassLayer(features, neighbours, _conditioned(own, _CLASSES))

    def target(number: int) -> LocalTarget:
        spread = float(own[f"{number}/most_spread"])
        return LocalTarget(_conditioned(own, number), own[f"{number}/scales"], spread)

    targets = tuple(target(number) if there else None for number, there in enumerate(own["targets"]))
    return LocalLayer(features, neighbours, targets)


def _conditioned_to_arrays(conditioned: ConditionedGP, name: int | str) -> dict[str, np.ndarray]:
    """Rows and parameters of a target, which has a number, or of the classes."""
    parts = {field: getattr(conditioned.rows, field) for field in _ROWS}
    parts |= {field: getattr(conditioned.gp, field) for field in _GP}
    return {f"{name}/{field}": np.asarray(array) for field, array in parts.items()}


def _conditioned(own: Mapping[str, np.ndarray], name: int | str) -> ConditionedGP:
    rows = Rows(*(own[f"{name}/{field}"] for field in _ROWS))
    return ConditionedGP(LocalGP(*(own[f"{name}/{field}"] for field in _GP)), rows)


def _completed(own: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """With what older versions did not write: the most spread, and scales in the place of one factor of those
    of a t distribution."""
    for number in np.flatnonzero(own["targets"]):
        own = {f"{number}/most_spread": np.asarray(SPREADS[0])} | own
        if (factor := own.get(f"{number}/calibration")) is not None:
            df = LEAST_DF + float(np.exp(own[f"{number}/log_excess_df"]))
            own = own | {f"{number}/scales": factor * t_scales(df)}
    return own


def _check_shapes(own: Mapping[str, np.ndarray], num_classes: int | None) -> None:
    """Refuse arrays that cannot be of one layer, before anything is made of them."""
    columns = own["shift"].size
    wanted = {"shift": (columns,), "scale": (columns,), "neighbours": ()}
    targets = [_CLASSES] if num_classes is not None else np.flatnonzero(own["targets"]).tolist()
    for name in targets:
        rows = np.atleast_1d(own[f"{name}/residuals"]).shape[:1]
        shapes = ((*rows, columns), rows if num_classes is None else (*rows, num_classes), rows, rows)
        wanted |= {f"{name}/{field}": shape for field, shape in zip(_ROWS, shapes, strict=True)}
        shapes = ((columns,), (2,), (), (), (), ())
        wanted |= {f"{name}/{field}": shape for field, shape in zip(_GP, shapes, strict=True)}
        if num_classes is None:
            wanted |= {f"{name}/scales": (LEVELS,), f"{name}/most_spread": ()}
    for name, shape in wanted.items():
        if own[name].shape != shape or not np.all(np.isfinite(own[name]) | (name == "scale")):
            raise ModelFileError(f"Array {PREFIX + name!r} is not finite numbers of shape {list(shape)}.")
    for name in targets if num_classes is None else ():
        if np.any(own[f"{name}/scales"] <= 0.0):
            raise ModelFileError(f"Array '{PREFIX}{name}/scales' has a scale that is not above zero.")
        if not 0.0 <= own[f"{name}/most_spread"] < 1.0:
            raise ModelFileError(f"Array '{PREFIX}{name}/most_spread' is no share of a variance.")
    if own["neighbours"] < 1:
        raise ModelFileError(f"The local layer has {own['neighbours']} neighbours.")
