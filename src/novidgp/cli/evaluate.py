"""`novidgp evaluate`: score a saved model on rows with known targets."""

from typing import Annotated

import typer

from novidgp.cli.console import out, report_errors


@report_errors()
def evaluate_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A file written by `novidgp fit`.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table with the target column.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Score a saved model: error, log density, coverage and CRPS, or accuracy and calibration."""
    import json

    from novidgp.cli.models import images_of, load_with_encoding, warn_of_extra_columns
    from novidgp.cli.scores import score_table, scores_in_blocks
    from novidgp.tables.encode import split_target, target_values
    from novidgp.tables.files import encoded_parts, find_tables, is_big
    from novidgp.tables.images import ImageEncoding
    from novidgp.tables.read import read_table

    estimator, encoding = load_with_encoding(model)
    if isinstance(encoding, ImageEncoding):
        images = images_of(data)
        blocks = [(images.X, images.target(data))]
    elif is_big(data):
        parts = encoded_parts(find_tables(data), encoding, with_target=True)
        blocks = ((X, y) for _, X, y in parts)
    else:
        inputs, target = split_target(read_table(data), encoding.target)
        warn_of_extra_columns(encoding, inputs)
        blocks = [(encoding.encode(inputs), target_values(target, encoding.task))]
    rows, values = scores_in_blocks(estimator, blocks)
    if as_json:
        typer.echo(json.dumps({"rows": rows, **values}))
    else:
        out().print(score_table(values, f"{model} on {rows:,} rows of {data}"))
