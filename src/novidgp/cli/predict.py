"""`novidgp predict`: predictions of a saved model for a table, as a table."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from novidgp.cli.console import err, report_errors
from novidgp.cli.models import images_of, load_with_encoding, predictives, warn_of_extra_columns
from novidgp.cli.options import check_files

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from novidgp.prediction.predictive import Predictive


@report_errors()
def predict_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A file written by `novidgp fit`.")],
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A .csv, .parquet or .npz file, or a directory.")
    ],
    output: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="A .csv or .parquet file; - for CSV on stdout.")
    ],
    quantiles: Annotated[
        str, typer.Option(help="Levels of the quantiles to write, comma separated; '' for none.")
    ] = "0.05,0.5,0.95",
    with_inputs: Annotated[
        bool, typer.Option("--with-inputs", help="Write the table's own columns before the predictions.")
    ] = False,
) -> None:
    """Predict every row: mean, standard deviation and quantiles, or class probabilities."""
    import sys

    import pandas as pd

    from novidgp.tables.errors import TableError
    from novidgp.tables.files import is_big
    from novidgp.tables.images import ImageEncoding
    from novidgp.tables.read import check_writable_table, read_table, write_table

    levels = parse_levels(quantiles)
    if output != "-":
        check_writable_table(output)
        check_files({"--out": output}, {"MODEL": model, "DATA": data})
    estimator, encoding = load_with_encoding(model)
    if isinstance(encoding, ImageEncoding):
        if with_inputs:
            raise TableError("--with-inputs: images have no columns to write; leave it out")
        frame, X = pd.DataFrame(), images_of(data).X
    elif is_big(data):
        count = _predict_in_blocks(estimator, encoding, data, output, levels, with_inputs)
        err().print(f"wrote {count:,} rows to {output}")
        return
    else:
        frame = read_table(data)
        if not with_inputs:
            warn_of_extra_columns(encoding, frame)
        X = encoding.encode(frame)
    predictions = predict_frame(estimator, X, levels)
    if with_inputs:
        predictions = beside(frame, predictions, data)
    if output == "-":
        predictions.to_csv(sys.stdout, index=False)
    else:
        write_table(predictions, output)
        err().print(f"wrote {len(predictions):,} rows to {output}: {', '.join(predictions.columns)}")


def _predict_in_blocks(
    model: Any, encoding: Any, data: str, output: str, levels: list[float], with_inputs: bool
) -> int:
    """From file to file, a block of rows at a time; the number of rows."""
    import contextlib
    import itertools
    import sys

    from novidgp.tables.files import encoded_parts, find_tables
    from novidgp.tables.read import table_writer

    blocks, count = itertools.count(), 0
    with contextlib.ExitStack() as stack:
        add: Any = None if output == "-" else stack.enter_context(table_writer(output))
        for part, X, _ in encoded_parts(find_tables(data), encoding, with_target=False):
            rows = predict_frame(model, X, levels)
            rows = beside(part.frame, rows, data) if with_inputs else rows
            if add is None:
                rows.to_csv(sys.stdout, index=False, header=next(blocks) == 0)
            else:
                add(rows)
            count += len(rows)
    return count


def beside(frame: "pd.DataFrame", predictions: "pd.DataFrame", data: str) -> "pd.DataFrame":
    """The table's own columns, then the predictions."""
    import pandas as pd

    from novidgp.tables.errors import TableError

    clash = [name for name in predictions.columns if name in frame.columns]
    if clash:
        raise TableError(f"{data} already has a column {clash[0]!r}; rename it or omit --with-inputs")
    return pd.concat([frame.reset_index(drop=True), predictions], axis=1)


def parse_levels(text: str) -> list[float]:
    """Quantile levels from comma-separated text."""
    try:
        levels = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        levels = [-1.0]
    if not all(0 < level < 1 for level in levels):
        message = f"{text!r} is no list of levels between 0 and 1, such as 0.05,0.5,0.95"
        raise typer.BadParameter(message, param_hint="--quantiles")
    return levels


def predict_frame(model: Any, X: "np.ndarray", levels: list[float]) -> "pd.DataFrame":
    """One row of predictions per row of `X`."""
    import numpy as np
    import pandas as pd

    def columns(block: "Predictive") -> dict[str, Any]:
        if hasattr(model, "classes_"):
            chances = block.probabilities()
            named = {f"p({label})": chances[:, index] for index, label in enumerate(model.classes_)}
            return {"prediction": model.classes_[chances.argmax(axis=1)]} | named
        quantiles = block.quantile(np.array(levels))[..., 0] if levels else np.empty((len(block), 0))
        named = {f"q{level:g}": quantiles[:, index] for index, level in enumerate(levels)}
        return {"mean": block.mean()[:, 0], "std": block.std()[:, 0]} | named

    return pd.concat([pd.DataFrame(columns(block)) for block in predictives(model, X)], ignore_index=True)
