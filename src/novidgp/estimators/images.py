"""Images as inputs: `(n, height, width)` or `(n, height, width, channels)`, of any integer or float type.

Inside they are rows of numbers in the type they came in, so that a set of bytes takes bytes; what makes a row
an image is the shape beside it.
"""

import dataclasses
import math
from typing import Any, cast

import numpy as np
from sklearn.utils import check_consistent_length, column_or_1d

from novidgp.checks import check_choice
from novidgp.inference import METHODS, Method
from novidgp.inference.augmented import AUGMENTATIONS, Augmentation, Augmented, augmentation
from novidgp.inference.base import Budget
from novidgp.model.image_layers import Layers, check_layers, layers_for
from novidgp.model.patches import ImageShape

CONV_BUDGET = Budget(2000, 64)
"""Steps and images of a step of models with convolutional layers, where the caller does not say."""
_PATHS = 2
"""Draws per step of these models, where the caller does not say."""
_PER_STEP = ("num_samples", "num_paths", "num_chains")
_BLOCK = 1_024


def image_parameters(estimator: Any) -> dict[str, Any] | None:
    """Refuse bad `layers` and `augment`, and settings that have no meaning beside `layers`; the options of
    the inference method.

    With convolutional layers a step has two draws where the options say nothing: every draw goes through all
    patches of all images.
    """
    if estimator.augment is not None:
        check_choice("augment", estimator.augment, AUGMENTATIONS)
    if check_layers(estimator.layers) is None:
        return estimator.inference_options
    refused = {
        "features": (estimator.features is not None, "None"),
        "latent_dim": (estimator.latent_dim not in ("auto", 0), "0"),
        "kernel_sharing": (estimator.kernel_sharing == "separate", "'auto'"),
        "local": (estimator.local is not False and estimator.local != "auto", "False"),
    }
    for name, (wrong, cure) in refused.items():
        if wrong:
            raise ValueError(
                f"{name}={getattr(estimator, name)!r} has no place beside convolutional layers; use "
                f"{name}={cure}, or layers=None."
            )
    kind = METHODS.get("novi-paper" if estimator.preset == "paper" else estimator.inference)
    fields = () if kind is None else dataclasses.fields(kind)
    fewer = {f.name: _PATHS for f in fields if f.name in _PER_STEP and cast(int, f.default) > _PATHS}
    return fewer | (estimator.inference_options or {})


def num_layers(estimator: Any) -> int:
    """Those of `layers`, if it lists some."""
    return estimator.num_layers if isinstance(estimator.layers, str | None) else len(estimator.layers)


def image_layers(estimator: Any) -> Layers | None:
    """The convolutional layers for the shape of the images; None for dense ones."""
    layers = check_layers(estimator.layers)
    return None if layers is None else layers_for(layers, estimator.image_shape_, int(estimator.num_layers))


def augmentation_of(name: str | None, shape: ImageShape | None) -> Augmentation | None:
    """What a name does to images of a shape; None where there are none, or no name."""
    return None if name is None or shape is None else augmentation(name, shape)


def augmented(method: Method, name: str | None, shape: ImageShape | None) -> Method:
    """The method, with steps that see augmented batches where a name says how."""
    changed = augmentation_of(name, shape)
    return method if changed is None else Augmented(method, changed)


def image_inputs(estimator: Any, X: Any, y: Any, *, reset: bool) -> Any:
    """Images as rows, with `y` beside them unless it is a text; None where `X` is a table.

    With `reset` the estimator takes the shape of the images down, without it they must have that shape.
    """
    if not are_images(X):
        _check_table(estimator, X, reset=reset)
        return None
    flat, shape = read_images(X)
    if reset and len(flat) < 2:
        raise ValueError("Found array with 1 sample(s) in X; a fit needs two images or more.")
    if y is None:
        raise ValueError("y is None; pass a target for every image.")
    if not isinstance(y, str):
        y = column_or_1d(y, warn=True)
        check_consistent_length(flat, y)
    if not reset:
        _check_shape(estimator, X, shape)
    else:
        estimator.image_shape_, estimator.n_features_in_ = shape, flat.shape[1]
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    return flat if isinstance(y, str) else (flat, y)


def are_images(X: Any) -> bool:
    """Whether `X` has the three or four dimensions of a set of images, or is a list of images."""
    X = _listed(X)
    if isinstance(X, list | tuple) and X:
        return np.ndim(X[0]) >= 2 if isinstance(X[0], np.ndarray) else np.ndim(_first_number_list(X)) >= 2
    return getattr(X, "ndim", 2) >= 3


def _listed(X: Any) -> Any:
    """An array whose elements are arrays, as a list of these; anything else as it is."""
    one = isinstance(X, np.ndarray) and X.dtype.kind == "O" and X.ndim == 1 and len(X)
    return list(X) if one and isinstance(X[0], np.ndarray) else X


def _first_number_list(X: Any) -> Any:
    """The first row of nested lists; an empty one where its own rows have unequal lengths."""
    try:
        return np.asarray(X[0])
    except ValueError:
        return []


def read_images(X: Any) -> tuple[np.ndarray, ImageShape]:
    """Images as rows `(n, height * width * channels)` in their own type, and the shape of one."""
    X = _listed(X)
    if isinstance(X, list | tuple):
        X = _stacked(X)
    X = np.asarray(X)
    if X.ndim not in (3, 4):
        raise ValueError(
            f"X has shape {X.shape}; images are (rows, height, width) or (rows, height, width, channels)."
        )
    if X.dtype.kind == "b":
        X = X.astype(np.uint8)
    if X.dtype.kind not in "iuf":
        raise TypeError(f"X holds {X.dtype}; the pixels of images are integers or floating-point numbers.")
    shape = (X.shape[1], X.shape[2], X.shape[3] if X.ndim == 4 else 1)
    if 0 in X.shape:
        raise ValueError(f"X has shape {X.shape}, without a single pixel; pass at least one image.")
    flat = X.reshape(len(X), -1)
    if X.dtype.kind == "f":
        for start in range(0, len(flat), _BLOCK):
            finite = np.isfinite(flat[start : start + _BLOCK]).all(axis=1)
            if not finite.all():
                raise ValueError(
                    f"Input X contains NaN or infinity in image {start + int(np.argmin(finite))}; drop it, "
                    "or fill the pixels."
                )
    return flat, shape


def _stacked(images: Any) -> np.ndarray:
    """A list of images as one array, refused where one has another shape."""
    arrays = [np.asarray(image) for image in images]
    for index, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ValueError(
                f"X[{index}] has shape {array.shape} and X[0] {arrays[0].shape}; make all images of one size "
                "and one number of channels (grey to colour: np.repeat(image[..., None], 3, axis=-1))."
            )
    return np.stack(arrays)


def _check_shape(estimator: Any, X: Any, shape: ImageShape) -> None:
    """Refuse images of another shape than the model was fitted to, or at all."""
    fitted = estimator.image_shape_
    if fitted is None:
        raise ValueError(
            f"X has shape {np.shape(X)}; the model was fitted to tables of {estimator.n_features_in_} "
            "columns."
        )
    if shape != fitted:
        hint = "One image is X[None]." if np.shape(X) == fitted else "Bring them to that shape first."
        raise ValueError(
            f"X holds images of {described(shape)}; the model was fitted to {described(fitted)}. {hint}"
        )


def _check_table(estimator: Any, X: Any, *, reset: bool) -> None:
    """Refuse rows of numbers where images are wanted."""
    if reset:
        for name in ("layers", "augment"):
            value = getattr(estimator, name)
            if value is not None:
                raise ValueError(
                    f"{name}={value!r} is for images; pass X as (rows, height, width) or (rows, height, "
                    f"width, channels), or {name}=None."
                )
        return
    fitted = estimator.image_shape_
    if fitted is None:
        return
    found, hint = np.shape(X), ""
    if found == fitted[:2]:
        hint = " One image is X[None]."
    elif len(found) == 2 and found[1] == math.prod(fitted):
        hint = f" Rows of pixels are X.reshape(-1, {', '.join(map(str, fitted))})."
    raise ValueError(f"X has shape {found}; the model was fitted to images of {described(fitted)}.{hint}")


def described(shape: ImageShape) -> str:
    """A shape in words."""
    height, width, channels = shape
    return f"{height} x {width}" + ("" if channels == 1 else f" with {channels} channels")
