"""Checks of a table for what hurts a Gaussian process, with a cure for each finding. No model is needed.

The estimators centre and scale every column and use one kernel for all of them. Harm comes from what scaling
cannot repair: cells that are no numbers, constant or duplicate columns, single values that determine the
scale of a column, and targets that Gaussian noise does not describe.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from novidgp.numerics.scaling import is_constant
from novidgp.tables.encode import (
    MAX_CATEGORIES,
    Kind,
    TableEncoding,
    check_target,
    choose_task,
    column_kind,
    input_kind,
    pick,
    split_target,
    target_values,
)
from novidgp.tables.errors import TableError
from novidgp.tables.numbers import floats

Severity = Literal["error", "warning", "note"]

OUTLIER_Z = 10.0
"""Robust z-score (distance from the median in units of 1.4826 MAD) beyond which a value is an outlier."""
MOST_OUTLIERS = 0.05
"""A larger share of such values is not reported: it is a heavy tail or a column of few levels."""
NEAR_DUPLICATE = 0.999
"""Absolute correlation beyond which two columns count as one."""
FEW_ROWS = 50
_WIDE_COLUMNS = 500
"""Pairs of columns are compared only up to this many columns."""
_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


class Finding(NamedTuple):
    """One thing wrong with a table. An `error` stops a fit, a `warning` costs accuracy."""

    severity: Severity
    column: str
    """The column's name, empty if the finding is about the whole table."""
    problem: str
    cure: str


def diagnose(frame: pd.DataFrame, target: str | None = None) -> list[Finding]:
    """All findings in a table, the most severe first."""
    if target is not None:
        check_target(frame, target)
    findings: list[Finding] = []
    kinds: dict[str, Kind] = {}
    for name in map(str, frame.columns):
        column = pick(frame, name)
        try:
            if name != target:
                kinds[name] = input_kind(column)
                continue
            kinds[name] = column_kind(column, target=True)
            if column.notna().any():
                choose_task(column.dropna())
        except TableError as error:
            kinds.pop(name, None)
            findings.append(_refusal(error, name))
    inputs: dict[str, Kind] = {name: kind for name, kind in kinds.items() if name != target}
    findings += _rows(frame, target)
    if len(kinds) == len(frame.columns):  # cells of other columns may not be comparable
        findings += _copies(frame)
    for name, kind in inputs.items():
        findings += _missing(pick(frame, name))
        findings += _text(pick(frame, name)) if kind == "category" else _numbers(pick(frame, name), kind)
    findings += _pairs(frame, inputs)
    findings += _scales(frame, [name for name, kind in inputs.items() if kind == "number"])
    if target is not None and target in kinds:
        findings += _target(pick(frame, target), kinds[target])
    if target is not None and not any(finding.severity == "error" for finding in findings):
        findings += _fit(frame, target)
    return sorted(findings, key=lambda finding: _ORDER[finding.severity])


def _refusal(error: TableError, name: str) -> Finding:
    """The finding that an error says, about the column `name`."""
    problem, _, cure = str(error).partition("; ")
    for column in (f"column {name!r} ", f"target {name!r} "):
        problem = problem.removeprefix(column)
    return Finding("error", name, problem, cure)


def _fit(frame: pd.DataFrame, target: str) -> Iterator[Finding]:
    """What stops a fit and was not found by the other checks: the table is encoded as for a fit."""
    try:
        inputs, column = split_target(frame, target)
        task = choose_task(column)
        TableEncoding.learn(inputs, target, task).encode(inputs)
        target_values(column, task)
    except TableError as error:
        yield _refusal(error, target if str(error).startswith("target") else "")


def _finite(column: pd.Series) -> np.ndarray:
    values = floats(column)
    return values[np.isfinite(values)]


def _rows(frame: pd.DataFrame, target: str | None) -> Iterator[Finding]:
    rows, columns = len(frame), len(frame.columns) - (target is not None)
    if columns < 1 or (target is None and columns == 1):
        cure = "a model needs a target and at least one other column"
        yield Finding("error", "", "no feature column", cure)
    if rows < 2:
        yield Finding("error", "", f"{rows} row", "a model needs two rows, and many more to be of use")
    elif rows < max(FEW_ROWS, 2 * columns):
        yield Finding(
            "warning",
            "",
            f"{rows} rows for {columns} columns",
            "use one layer (--layers 1), fewer columns, or gather more rows",
        )


def _copies(frame: pd.DataFrame) -> Iterator[Finding]:
    rows, repeated = len(frame), int(np.sum(frame.duplicated()))
    if repeated:
        severity = "warning" if repeated > 0.05 * rows else "note"
        cure = "drop them, or keep all copies on one side of a train/test split: they flatter a test score"
        yield Finding(severity, "", f"{repeated} of {rows} rows are copies of others", cure)


def _missing(column: pd.Series) -> Iterator[Finding]:
    missing = int(np.sum(column.isna()))
    if missing == len(column):
        yield Finding("error", str(column.name), "no value at all", f"leave it out (--drop {column.name})")
    elif missing:
        share = missing / len(column)
        drop = f"leave the column out (--drop {column.name})"
        cure = drop if share > 0.4 else "drop those rows, or fill them (median, or a category of its own)"
        yield Finding("error", str(column.name), f"{missing} values missing ({share:.1%})", cure)


def _numbers(column: pd.Series, kind: Kind) -> Iterator[Finding]:
    name = str(column.name)
    values = _finite(column)
    infinite = int(np.isinf(floats(column)).sum())
    if infinite:
        yield Finding("error", name, f"{infinite} values are infinite", "drop those rows, or cap the values")
    if len(values) < 2:
        return
    if np.ptp(values) == 0:
        yield Finding("warning", name, f"constant ({values[0]:g})", f"leave it out (--drop {name})")
        return
    if kind == "boolean":
        return
    if _counts_rows(values, len(column)):
        cure = f"leave it out (--drop {name}) unless the order of rows means something"
        yield Finding("warning", name, "numbers the rows, like an id", cure)
    yield from _outliers(name, values, "warning", "check them; take logs or cap them: they set the scale")


def _outliers(name: str, values: np.ndarray, severity: Severity, cure: str) -> Iterator[Finding]:
    """Values far from the bulk of a column, unless there are many of them."""
    median = np.median(values)
    low, high = np.quantile(values, [0.25, 0.75])
    spread = max(1.4826 * np.median(np.abs(values - median)), (high - low) / 1.349)
    if spread == 0:
        return
    scores = np.abs(values - median) / spread
    count = int((scores > OUTLIER_Z).sum())
    if 0 < count <= max(1, MOST_OUTLIERS * len(values)):
        worst = values[int(np.argmax(scores))]
        noun = "value lies" if count == 1 else "values lie"
        problem = (
            f"{count} {noun} over {OUTLIER_Z:g} robust deviations off (worst {worst:g}, median {median:g})"
        )
        yield Finding(severity, name, problem, cure)


def _counts_rows(values: np.ndarray, rows: int) -> bool:
    """Whether a column holds consecutive integers, in any order, each once."""
    if rows < 20 or len(values) < rows or not np.array_equal(values, np.round(values)):
        return False
    return len(np.unique(values)) == rows and np.ptp(values) == rows - 1


def _text(column: pd.Series) -> Iterator[Finding]:
    name = str(column.name)
    texts = column.dropna().astype(str)
    distinct = texts.nunique()
    if distinct == 0:
        return
    unreadable = np.isnan(floats(texts))
    if unreadable.mean() <= 0.5:
        example = f" (but {texts.iloc[int(np.argmax(unreadable))]!r})" if unreadable.any() else ""
        cure = "write missing values as empty cells and numbers without units, so that it is read as numbers"
        yield Finding("warning", name, f"numbers stored as text{example}", cure)
    elif distinct == 1:
        problem = f"constant ({texts.iloc[0]!r})"
        yield Finding("warning", name, problem, f"leave it out (--drop {name})")
    elif distinct == len(column) and len(column) >= 20:
        problem = "a different text in every row, like a name or id"
        severity: Severity = "error" if distinct > MAX_CATEGORIES else "warning"
        yield Finding(severity, name, problem, f"leave it out (--drop {name})")
    elif distinct > MAX_CATEGORIES:
        cure = f"group rare ones, or leave it out (--drop {name})"
        yield Finding("error", name, f"{distinct} distinct texts (at most {MAX_CATEGORIES})", cure)
    elif distinct > max(20, 0.2 * len(column)):
        cure = "group rare ones: each text becomes a column"
        yield Finding("warning", name, f"{distinct} distinct texts in {len(column)} rows", cure)


def _pairs(frame: pd.DataFrame, inputs: dict[str, Kind]) -> Iterator[Finding]:
    """Columns that repeat an earlier one: equal in every cell, or almost perfectly correlated."""
    names = list(inputs)
    if len(names) > _WIDE_COLUMNS:
        return
    equal: set[str] = set()
    first: dict[int, str] = {}
    for name in names:
        column = pick(frame, name)
        if column.nunique(dropna=False) < 2:
            continue
        text = inputs[name] == "category"
        digest = hash("\x1f".join(map(repr, column.astype(object))) if text else floats(column).tobytes())
        if digest in first:
            equal.add(name)
            yield Finding("warning", name, f"the same as {first[digest]!r}", f"leave it out (--drop {name})")
        first.setdefault(digest, name)
    numeric = [name for name in names if inputs[name] != "category" and name not in equal]
    matrix = pd.DataFrame({name: floats(pick(frame, name)) for name in numeric})
    matrix = matrix.replace([np.inf, -np.inf], np.nan)
    matrix = matrix.loc[:, matrix.std() > 0]
    correlation = np.abs(matrix.corr(min_periods=3).to_numpy())
    for later in range(1, len(matrix.columns)):
        earlier = int(np.argmax(np.nan_to_num(correlation[later, :later])))
        if correlation[later, earlier] > NEAR_DUPLICATE:
            name, other = matrix.columns[later], matrix.columns[earlier]
            problem = f"all but the same as {other!r} (|correlation| {correlation[later, earlier]:.5f})"
            yield Finding("warning", name, problem, f"leave one of them out (--drop {name})")


def _scales(frame: pd.DataFrame, names: list[str]) -> Iterator[Finding]:
    """Columns whose values span many powers of ten, or vary little around a large mean.

    Different scales between columns are harmless, because columns are standardised.
    """
    spreads = {}
    for name in names:
        values = _finite(pick(frame, name))
        if len(values) < 2 or np.ptp(values) == 0:
            continue
        spreads[name] = float(np.std(values))
        low, high = np.quantile(values, [0.05, 0.95])
        if values.min() > 0 and high > 1e4 * low:
            problem = f"nine tenths of its values span {np.log10(high / low):.0f} powers of ten"
            yield Finding("warning", name, problem, "take logarithms")
        if np.abs(np.mean(values)) > 1e8 * spreads[name]:
            problem = f"varies by {spreads[name]:.3g} around {np.mean(values):.6g}: digits are lost"
            yield Finding("warning", name, problem, "subtract a reference value first")
    if spreads and max(spreads.values()) > 1e6 * min(spreads.values()):
        large, small = max(spreads, key=lambda n: spreads[n]), min(spreads, key=lambda n: spreads[n])
        problem = f"wild scales: {large!r} spreads {spreads[large]:.3g}, {small!r} {spreads[small]:.3g}"
        yield Finding("note", "", problem, "none needed (columns are scaled before the fit); check the units")


def _target(column: pd.Series, kind: Kind) -> Iterator[Finding]:
    name = str(column.name)
    missing = int(np.sum(column.isna()))
    if missing:
        yield Finding("error", name, f"target missing in {missing} rows", "drop those rows")
    distinct = column.dropna().nunique()
    if distinct < 2:
        what = "one class only" if kind != "number" else "target is constant"
        yield Finding("error", name, what, "choose another target: there is nothing to learn")
        return
    if kind != "number":
        yield from _classes(column)
        return
    values = _finite(column)
    infinite = len(column) - missing - len(values)
    if infinite:
        yield Finding("error", name, f"target infinite in {infinite} rows", "drop those rows")
    if not len(values) or is_constant(values):
        problem = (
            f"target is constant as a float ({values[0]:g})" if len(values) else "target is never finite"
        )
        yield Finding("error", name, problem, "choose another target, or subtract a reference value first")
        return
    if len(values) < 3:
        return
    if distinct <= min(20, max(2, len(values) // 10)) and np.array_equal(values, np.round(values)):
        problem = f"target has only {distinct} distinct values"
        yield Finding("note", name, problem, "if they are classes, use --task classification")
        return
    skew = float(np.mean(((values - values.mean()) / values.std()) ** 3))
    if abs(skew) > 3:
        cure = "take its logarithm" if values.min() > 0 and skew > 0 else "transform it"
        cure += ", or use --likelihood student-t"
        yield Finding("warning", name, f"target is heavily skewed (skewness {skew:.1f})", cure)
    yield from _outliers(name, values, "warning", "check them, or use --likelihood student-t")


def _classes(column: pd.Series) -> Iterator[Finding]:
    counts = column.value_counts()
    counts = counts[counts > 0]
    if len(counts) > min(MAX_CATEGORIES, len(column) // 2):
        problem = f"target has {len(counts)} classes in {len(column)} rows"
        yield Finding("warning", str(column.name), problem, "check that it is a class, not a name or number")
        return
    rare = [str(label) for label, count in counts.items() if count < 5]
    if rare:
        problem = f"fewer than five rows of class {', '.join(map(repr, rare[:5]))}"
        yield Finding("warning", str(column.name), problem, "join it with another class, or gather more rows")
