"""Descriptions of convolutional layers as plain values, and what fits on what.

A description is a dict with the `kind` of a layer and its settings, so that it can be a parameter of an
estimator and a line of a model file. Its errors are for users.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from novidgp.checks import check_choice, check_flag, check_integer
from novidgp.messages import unknown
from novidgp.model.patches import ImageShape, Patches

LAYER_KINDS: dict[str, dict[str, Any]] = {
    "conv": {"size": 5, "stride": 1, "maps": 10, "pool": 1, "directions": 0},
    "sum": {"size": 5, "stride": 1, "location": True, "directions": 0, "places": 3},
}
"""Kinds of layers with their settings: a convolutional layer, and the last layer, which sums over patches."""
PRESETS = ("conv",)
_GRID = 16
"""The preset's first layer has about so many patches down and across."""
_MOST_PATCHES = 1024
"""A last layer compares every patch of an image with every other."""

Layers = tuple[dict[str, Any], ...]


def check_layers(value: Any) -> Layers | str | None:
    """Descriptions with all their settings, from a sequence of dicts; None and a preset's name stay."""
    if value is None:
        return None
    if isinstance(value, str):
        check_choice("layers", value, PRESETS)
        return value
    if not isinstance(value, Sequence) or not value:
        raise TypeError(
            f"layers must be None, 'conv' or a list such as [{{'kind': 'conv', 'stride': 2}}, "
            f"{{'kind': 'sum'}}], got {value!r}."
        )
    layers = tuple(_complete(f"layers[{index}]", layer) for index, layer in enumerate(value))
    for index, layer in enumerate(layers):
        last = index == len(layers) - 1
        if (layer["kind"] == "sum") != last:
            raise ValueError(
                f"layers[{index}] is of the kind {layer['kind']!r}; the last layer is a 'sum', the others "
                "are 'conv'."
            )
    return layers


def _complete(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or "kind" not in value:
        raise TypeError(f"{name} must be a dict with a 'kind', such as {{'kind': 'conv'}}, got {value!r}.")
    check_choice(f"{name}['kind']", value["kind"], LAYER_KINDS)
    settings = LAYER_KINDS[value["kind"]]
    for key, number in value.items():
        if key == "kind":
            continue
        if key not in settings:
            raise ValueError(unknown(f"{name} key", key, ["kind", *settings]))
        if key == "location":
            check_flag(f"{name}[{key!r}]", number)
        else:
            check_integer(f"{name}[{key!r}]", number, least=0 if key == "directions" else 1)
    plain = {key: bool(v) if key == "location" else int(v) for key, v in value.items() if key != "kind"}
    return {"kind": value["kind"]} | settings | plain


def layers_for(value: Layers | str, shape: ImageShape, num_layers: int) -> Layers:
    """The layers for images of a shape, from checked descriptions or a preset; refused where they do not
    fit. A preset has `num_layers` layers."""
    layers = _preset(shape, num_layers) if isinstance(value, str) else value
    cut = layer_patches(layers, shape)[-1]
    if cut.count > _MOST_PATCHES:
        raise ValueError(
            f"layers[{len(layers) - 1}] sums over {cut.count} patches, of which every pair is compared; have "
            f"at most {_MOST_PATCHES} by a larger 'stride', or by a 'conv' layer with a stride before it."
        )
    return layers


def layer_patches(layers: Layers, shape: ImageShape) -> list[Patches]:
    """The patches that every layer sees in images of `shape` `(height, width, channels)`."""
    found = []
    for index, layer in enumerate(layers):
        size, pool = layer["size"], layer.get("pool", 1)
        patches = Patches((shape[0], shape[1], shape[2]), size, layer["stride"])
        if min(shape[:2]) < size:
            raise ValueError(
                f"layers[{index}]: patches of {size} x {size} do not fit into images of {shape[0]} x "
                f"{shape[1]}; lower its 'size', or 'stride' and 'pool' of the layers before it."
            )
        if min(patches.grid) < pool:
            raise ValueError(
                f"layers[{index}]: there are {patches.grid[0]} x {patches.grid[1]} patches and pool={pool}; "
                "lower 'pool'."
            )
        found.append(patches)
        shape = (patches.grid[0] // pool, patches.grid[1] // pool, layer.get("maps", 0))
    return found


def _preset(shape: ImageShape, num_layers: int) -> Layers:
    """Convolutional layers, the first with a stride that leaves about 16 x 16 places, and a sum."""
    side = min(shape[:2])
    stride = max(1, round(side / _GRID))
    size = 3 if side < _GRID else 2 * max(stride, 2) + 1
    layers = []
    for index in range(num_layers):
        last = index == num_layers - 1
        fitting = min(size if index in (0, num_layers - 1) else 3, side)
        settings = {"size": fitting, "stride": stride if index == 0 else 1}
        layers.append(_complete("layers", {"kind": "sum" if last else "conv"} | settings))
        side = (side - fitting) // settings["stride"] + 1
        size = min(size, 5)
    return tuple(layers)
