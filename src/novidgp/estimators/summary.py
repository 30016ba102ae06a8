"""What a model is made of, as text: layers with their shapes, parameters, method, steps."""

from typing import Any

import jax

from novidgp.estimators.images import described, num_layers
from novidgp.features.fingerprints import name_of
from novidgp.local.class_layer import ClassLayer
from novidgp.local.layer import LocalLayer
from novidgp.model.conv_layers import ConvGPLayer, Located, PatchSumLayer
from novidgp.model.image_layers import check_layers
from novidgp.model.kernels import Kernel, Product, Stationary, Sum
from novidgp.model.layers import Layer
from novidgp.model.patches import Patches

Row = tuple[str, str, str, str, str]
_HEAD: Row = ("layer", "input", "output", "inducing", "parameters")


def summary_text(estimator: Any) -> str:
    """A fitted estimator's layers, method and training; of an unfitted one what its parameters say."""
    if not hasattr(estimator, "model_"):
        return "\n".join(_unfitted(estimator))
    model, config = estimator.model_, estimator.config_
    lines = [f"{type(estimator).__name__}, {estimator.fit_status_} after {estimator.n_iter_:,} steps"]
    lines += _table([_HEAD, *_layer_rows(estimator), _likelihood_row(estimator)])
    count = 1 if estimator.ensemble_ is None else 1 + len(jax.tree.leaves(estimator.ensemble_)[0])
    sizes = _size(model), _size(estimator.posterior_)
    lines.append(f"parameters: {sizes[0]:,} of the model, {sizes[1]:,} of the posterior, {config.dtype}")
    if count > 1:
        lines.append(f"mixture: {count} models with equal weights (snapshots and other starts)")
    whitened = "whitened" if config.whiten else "not whitened"
    lines.append(f"inference: {estimator.method_.name}, inducing outputs {whitened}")
    augment = "" if estimator.augment is None else f", augmented by {estimator.augment}"
    lines.append(f"training: {estimator.num_data_:,} rows{augment}")
    if estimator.wide_ is not None:
        lines.append(f"wide last layer: {len(estimator.wide_.weights):,} inducing points")
    lines.append(_local_line(estimator.local_))
    return "\n".join(lines)


def _unfitted(estimator: Any) -> list[str]:
    layers = num_layers(estimator)
    kind = "dense" if estimator.layers is None else "convolutional"
    checked = check_layers(estimator.layers)
    listed = checked if isinstance(checked, tuple) else ()
    points = estimator.num_inducing
    points = points if isinstance(points, int) else ", ".join(map(str, points))
    return [
        f"{type(estimator).__name__}, not fitted: shapes are known after fit",
        f"layers: {layers} {kind}, inducing points: {points}, kernel: {estimator.kernel}",
        *("  " + ", ".join(f"{name} {value}" for name, value in layer.items()) for layer in listed),
        f"likelihood: {estimator.likelihood}, features: {estimator.features}",
        f"inference: {estimator.inference}, steps: {_wanted(estimator.max_steps)}, rows of a step: "
        f"{_wanted(estimator.batch_size)}, {estimator.dtype}",
    ]


def _wanted(number: int | None) -> str:
    return "as many as needed" if number is None else f"{number:,}"


def _layer_rows(estimator: Any) -> list[Row]:
    model, shape = estimator.model_, estimator.image_shape_
    width = str(estimator.n_features_in_)
    if shape is not None:
        width = described(shape) if estimator.config_.layers is not None else f"{described(shape)} as {width}"
    rows: list[Row] = []
    if estimator.features_ is not None:
        rows.append((name_of(estimator.features_).rpartition(".")[2], "", width, "", ""))
    if model.feature_map is not None:
        outputs = str(model.feature_map.outputs)
        rows.append(("feature network", width, outputs, "", f"{_size(model.feature_map):,}"))
        width = outputs
    if model.local_variable is not None:
        rows.append(("latent variables", "", str(model.local_variable.width), "", "0"))
        width = f"{width} + {model.local_variable.width}"
    for layer in model.layers:
        outputs = str(layer.outputs)
        if isinstance(layer, ConvGPLayer):
            outputs = described(layer.image)
        rows.append((_name(layer), width, outputs, _inducing(layer), f"{_size(layer):,}"))
        width = outputs
    return rows


def _likelihood_row(estimator: Any) -> Row:
    targets, classes = estimator.config_.num_targets, estimator.config_.num_classes
    what = f"{targets} target{'s' if targets > 1 else ''}" if classes is None else f"{classes} classes"
    name = f"{estimator.config_.likelihood} likelihood"
    return name, "", what, "", f"{_size(estimator.model_.likelihood):,}"


def _name(layer: Layer) -> str:
    kernel = _kernel_name(layer.kernel)
    if isinstance(layer, ConvGPLayer):
        pooled = f", mean of {layer.pool} x {layer.pool}" if layer.pool > 1 else ""
        return f"conv {_cut(layer.patches)}{pooled}, {kernel}"
    if isinstance(layer, PatchSumLayer):
        return f"sum {_cut(layer.patches)}, {kernel}"
    units = layer.inducing.shape[0]
    return f"dense, {kernel}" + (f", {units} kernels" if units > 1 else "")


def _cut(patches: Patches) -> str:
    stride = f" every {patches.stride}" if patches.stride > 1 else ""
    return f"{patches.size} x {patches.size}{stride}, {patches.count} patches"


def _kernel_name(kernel: Kernel) -> str:
    match kernel:
        case Stationary():
            return kernel.profile
        case Located():
            return f"{_kernel_name(kernel.patch)} with places"
        case Sum():
            return "+".join(map(_kernel_name, kernel.parts))
        case Product():
            return "*".join(map(_kernel_name, kernel.parts))
    return type(kernel).__name__.lower()


def _inducing(layer: Layer) -> str:
    units, count, width = layer.inducing.shape
    return f"{count} x {width}" + (f", {units} times" if units > 1 else "")


def _local_line(layer: LocalLayer | ClassLayer | None) -> str:
    if layer is None:
        return "local layer: none; no training row is in the model"
    return (
        f"local layer: the {layer.neighbours} nearest of {layer.num_rows:,} training rows, which are in the "
        "model and in its file"
    )


def _size(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def _table(rows: list[Row]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append("  ".join([*cells, row[-1].rjust(widths[-1])]))
    rule = "-" * len(lines[0])
    return [lines[0], rule, *lines[1:], rule]
