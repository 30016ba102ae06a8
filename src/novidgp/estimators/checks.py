"""Checks of an estimator's parameters and data, made before anything is compiled.

Every message names the argument, what was got and what to do about it.
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from novidgp.checks import check_choice, check_flag, check_integer
from novidgp.features.transformers import is_transformer
from novidgp.local.judgement import LocalSettings
from novidgp.messages import unknown
from novidgp.model.feature_map import NETWORKS
from novidgp.model.kernels import KERNELS, kernel_names
from novidgp.model.likelihoods import LIKELIHOODS
from novidgp.numerics.nets import ACTIVATIONS
from novidgp.numerics.scaling import is_constant

MEANS = ("zero", "linear", "linear-learned")
SHARINGS = ("auto", "separate", "shared")
ORDERS = ("time",)
DTYPES = ("float32", "float64")
_SEEDS = 2**31 - 1
_LOCAL_LIKELIHOODS = ("gaussian", "bernoulli", "softmax")


def check_likelihood(name: Any, task: str) -> None:
    """Refuse a likelihood that is unknown or belongs to the other estimator."""
    known = [likelihood for likelihood, kind in LIKELIHOODS.items() if kind.task == task]
    check_choice("likelihood", name, ["auto", *known])


def check_order(value: Any, task: str) -> None:
    """Refuse an order of the rows that is unknown, or that nothing could be made of."""
    if value is None:
        return
    check_choice("order", value, ORDERS)
    if task != "regression":
        raise ValueError(f"order={value!r} is for regression; leave columns out by hand, or use order=None.")


def check_latent(name: str, value: Any) -> None:
    """Refuse anything but a number of latent variables, 0 or more, or `auto`."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(
                f"{name}={value!r} is unknown. Pass a number of latent variables (0: none), or 'auto'."
            )
        return
    check_integer(name, value, least=0)


def check_features(value: Any) -> dict[str, Any] | None:
    """All settings of a feature network, from its name or a dict of some of them; None for no network, with a
    transformer or without."""
    if value is None:
        return None
    if isinstance(value, str):
        check_choice("features", value, NETWORKS)
        value = {"network": value}
    if isinstance(value, type):
        raise TypeError(f"features={value.__name__} is a class; pass an object, {value.__name__}(...).")
    if not isinstance(value, Mapping):
        if is_transformer(value):
            return None
        raise TypeError(
            "features must be None, 'mlp', 'cnn', a dict such as {'width': 64}, or an object with "
            f"transform(X), got {value!r}."
        )
    network = value.get("network", "mlp")
    check_choice("features['network']", network, NETWORKS)
    for name in value:
        if name not in NETWORKS[network]:
            raise ValueError(unknown("features key", name, NETWORKS[network]))
    settings = NETWORKS[network] | dict(value)
    for name in ("width", "depth", "outputs"):
        check_integer(f"features[{name!r}]", settings[name], optional=name == "outputs")
        settings[name] = None if settings[name] is None else int(settings[name])
    check_choice("features['activation']", settings["activation"], ACTIVATIONS)
    check_flag("features['trainable']", settings["trainable"])
    return settings | {"trainable": bool(settings["trainable"])}


def check_inducing(value: Any, layers: int) -> int | tuple[int, ...]:
    """Numbers of inducing points: one for all layers, or a tuple with one for each."""
    if not isinstance(value, tuple | list):
        check_integer("num_inducing", value)
        return int(value)
    if len(value) != layers:
        raise ValueError(
            f"num_inducing={value!r} has {len(value)} numbers and num_layers={layers}; pass one number for "
            "each layer, or a single one."
        )
    for index, count in enumerate(value):
        check_integer(f"num_inducing[{index}]", count)
    return tuple(int(count) for count in value)


def check_local(value: Any, likelihood: str, *, latent: bool = False) -> LocalSettings | None:
    """The settings of a local layer, from `auto`, a bool or a dict of some of them; None for no layer."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(
                f"local={value!r} is unknown. Pass 'auto', True, False or a dict like {{'neighbours': 64}}."
            )
        return LocalSettings() if likelihood in _LOCAL_LIKELIHOODS and not latent else None
    if isinstance(value, bool | np.bool_):
        if not value:
            return None
        value = {}
    if not isinstance(value, Mapping):
        raise TypeError(
            f"local must be 'auto', True, False or a dict such as {{'neighbours': 64}}, got {value!r}."
        )
    if likelihood not in _LOCAL_LIKELIHOODS:
        raise ValueError(
            f"local={value or True!r} needs likelihood='gaussian', got {likelihood!r}; pass local=False. "
            "(The local layer has heavy tails of its own.)"
        )
    if latent:
        raise ValueError(
            f"local={value or True!r} is for models without latent variables; pass local=False, or "
            "latent_dim=0."
        )
    known = ("neighbours", "steps")
    for name, number in value.items():
        if name not in known:
            raise ValueError(unknown("local key", name, known))
        check_integer(f"local[{name!r}]", number)
    return LocalSettings(True, **{name: int(number) for name, number in value.items()})


def check_kernel(spec: Any) -> None:
    """Refuse a kernel expression with an unknown name; names are joined by `+` and `*`."""
    if not isinstance(spec, str):
        raise TypeError(f"kernel must be a name or an expression such as 'rq+matern12', got {spec!r}.")
    for name in kernel_names(spec):
        if name not in KERNELS:
            context = "" if name == spec else f" (in kernel={spec!r})"
            raise ValueError(unknown("kernel", name, KERNELS) + context)


def check_quantiles(q: Any) -> np.ndarray:
    """Quantile levels as a flat array, refused outside (0, 1)."""
    levels = np.asarray(q, np.float64)
    if levels.ndim > 1 or levels.size == 0:
        raise ValueError(f"q must be a number or a flat sequence of numbers, got {q!r}.")
    if not np.all((levels > 0) & (levels < 1)):
        raise ValueError(f"q={q!r} must lie strictly between 0 and 1; for a 90 % interval use [0.05, 0.95].")
    return levels


def check_regression_targets(y: np.ndarray, likelihood: str) -> None:
    """Refuse targets `(n, t)` that cannot be learned from: missing, constant, or impossible under the
    likelihood."""
    if y.shape[1] == 0:
        raise ValueError("y has 0 columns; pass one target value per row.")
    missing = np.isnan(y)
    if y.shape[1] == 1 and missing.any():
        raise ValueError(
            f"Input y contains NaN in {int(missing.sum())} of {len(y)} rows; drop these rows. "
            "(Missing targets are allowed where y has several columns.)"
        )
    for column in range(y.shape[1]):
        where = "y" if y.shape[1] == 1 else f"y[:, {column}]"
        observed = y[~missing[:, column], column]
        if observed.size == 0:
            raise ValueError(f"{where} holds only NaN; drop this target column.")
        if is_constant(observed):
            raise ValueError(
                f"{where} is constant ({observed[0]:g} in every row, but for rounding); there is nothing to "
                "learn. Check that the right column was passed as the target, and subtract a large offset."
            )
        refusal = LIKELIHOODS[likelihood].refusal(observed)
        if refusal is not None:
            raise ValueError(f"{where} holds {refusal}")


def check_weights(weights: Any, rows: int) -> np.ndarray | None:
    """The weights of the rows as a column `(n, 1)`, refused where they are no numbers of at least zero."""
    if weights is None:
        return None
    values = np.asarray(weights, np.float64)
    if values.ndim == 0:
        values = np.full(rows, float(values))
    if values.shape != (rows,):
        raise ValueError(f"sample_weight has shape {values.shape}; pass one weight for each of {rows} rows.")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError("sample_weight holds negative numbers, NaN or infinity; weights are 0 or more.")
    if (values > 0).sum() < 2:
        raise ValueError(
            "sample_weight is zero in all rows but one, or in all; at least two rows must count."
        )
    return values[:, None]


def weighted_rows(
    X: np.ndarray, y: np.ndarray, weights: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The rows that count, and how often each does `(n, 1)`; None if all do once."""
    weight = check_weights(weights, len(X))
    if weight is None:
        return X, y, None
    kept = weight[:, 0] > 0
    return X[kept], y[kept], weight[kept]


def check_labels(y: Any) -> None:
    """Refuse labels that have no order: missing ones, and text among numbers."""
    values = np.asarray(y)
    if y is None or values.dtype.kind != "O":
        return
    flat = values.ravel().tolist()
    missing = sum(label is None or label != label for label in flat)
    if missing:
        raise ValueError(
            f"y holds no label (None or NaN) in {missing} of {len(flat)} rows; drop these rows or give them "
            "a label of their own."
        )
    texts = [label for label in flat if isinstance(label, str)]
    others = [label for label in flat if not isinstance(label, str)]
    if texts and others:
        raise ValueError(
            f"y mixes text and other labels ({texts[0]!r} and {others[0]!r}); make them all text: "
            "y.astype(str)."
        )


def check_rows(X: Any) -> None:
    """Refuse what is no table of numbers: a path, dates, two columns of one name."""
    if isinstance(X, str | PathLike):
        raise TypeError(
            f"X={str(X)!r} is a path. Read the file first, for example with pandas, or use the command "
            "`novidgp predict`."
        )
    seen: set[str] = set()
    for name in getattr(X, "columns", ()):
        if isinstance(name, str) and name in seen:
            raise ValueError(
                f"X has two columns named {name!r}; rename or remove one: X.loc[:, ~X.columns.duplicated()]."
            )
        seen.add(name)
    refuse_dates(X, "X")


def refuse_dates(values: Any, argument: str) -> None:
    """Refuse dates and durations: their number depends on a unit that nobody chose."""
    columns = values.items() if hasattr(values, "columns") and hasattr(values, "items") else [(None, values)]
    for name, column in columns:
        kind = getattr(getattr(column, "dtype", None), "kind", "")
        if kind in ("M", "m"):
            what = "dates" if kind == "M" else "durations"
            where = argument if name is None else f"{argument}[{name!r}]"
            raise TypeError(
                f"{where} holds {what}. Turn them into numbers of a unit you choose, for example days: "
                "(t - t.min()) / numpy.timedelta64(1, 'D')."
            )


def seed_of(random_state: Any) -> int:
    """A seed from what scikit-learn takes as `random_state`, or from a NumPy generator."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(_SEEDS))
    try:
        return int(check_random_state(random_state).randint(_SEEDS))
    except ValueError:
        raise ValueError(
            f"random_state={random_state!r} is no seed. Pass an integer from 0 to 2**32 - 1, a NumPy "
            "Generator or RandomState, or None."
        ) from None


def explain_text(error: Exception, argument: str) -> Exception:
    """A clearer error where scikit-learn or NumPy says that something could not become a number."""
    detail = str(error)
    if "setting an array element with a sequence" in detail:
        return type(error)(
            f"{argument} holds sequences of unequal length, or arrays as elements ({detail.rstrip('.')}). "
            f"Make it one array of numbers: numpy.stack({argument})."
        )
    if "could not convert string" not in detail and "must be a string or a real number" not in detail:
        return error
    cure = {
        "X": "Encode text columns first, for example with sklearn.preprocessing.OneHotEncoder.",
        "y": "Pass numbers, or use DGPClassifier for labels.",
    }
    return type(error)(f"{argument} holds text or other objects ({detail}). {cure[argument]}")
