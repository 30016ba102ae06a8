"""`novidgp fit`: from a table to a model file."""

from typing import Annotated, Any

import typer

from novidgp import distributed as jobs
from novidgp.cli.console import out, report_errors
from novidgp.cli.interrupts import leave
from novidgp.cli.options import (
    INFERENCE_METHODS,
    check_files,
    make_estimator,
    parse_layers,
    parse_options,
    parse_value,
)


@report_errors()
def fit_command(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A .csv, .parquet or .npz file (images too), a directory of tables, or a known data set.",
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            metavar="COL",
            help="Column to predict.",
            show_default="y, except in a .csv file",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="MODEL", help="Model file.", show_default="DATA.novidgp"),
    ] = None,
    task: Annotated[
        str, typer.Option(help="regression, classification, or auto: classification for text and true/false.")
    ] = "auto",
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="COL", help="Leave a column out; repeatable.", show_default="none"),
    ] = None,
    test_fraction: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of rows held out and scored after the fit.")
    ] = 0.0,
    inference: Annotated[
        str, typer.Option(help=f"Inference method: {', '.join(INFERENCE_METHODS)}.")
    ] = "novi",
    preset: Annotated[
        str, typer.Option(help="Settings of the method; novi has default and paper.")
    ] = "default",
    layers: Annotated[
        str, typer.Option(metavar="N", help="GP layers; 1 is a sparse GP. For images also conv.")
    ] = "2",
    inducing: Annotated[int, typer.Option(min=1, help="Inducing points per layer.")] = 100,
    hidden: Annotated[
        int | None, typer.Option(min=1, help="Width of hidden layers.", show_default="features, at most 30")
    ] = None,
    latent_dim: Annotated[
        str,
        typer.Option(metavar="N", help="Latent variables beside the inputs; auto: 1 for iwvi, else 0."),
    ] = "auto",
    features: Annotated[
        str | None,
        typer.Option(
            metavar="mlp",
            help="Network in front: mlp, or settings as JSON: '{\"width\": 32}'.",
            show_default="none",
        ),
    ] = None,
    kernel: Annotated[
        str, typer.Option(help="rq, rbf, matern12, matern32, matern52, or a sum or product: rq+matern12.")
    ] = "rq",
    likelihood: Annotated[
        str,
        typer.Option(help="gaussian, student-t, heteroscedastic, poisson; for classes bernoulli, softmax."),
    ] = "auto",
    local: Annotated[
        bool | None,
        typer.Option(
            "--local/--no-local",
            help="Local layer on the nearest training rows; the model file then holds the rows.",
            show_default="where it pays",
        ),
    ] = None,
    wide: Annotated[
        str,
        typer.Option(
            metavar="N", help="Inducing points of a wide last layer for classes; auto: for images. 0: none."
        ),
    ] = "auto",
    order: Annotated[
        str | None,
        typer.Option(
            metavar="time",
            help="Rows are in the order of time: leave out columns that mislead at their end.",
            show_default="none",
        ),
    ] = None,
    augment: Annotated[
        str | None, typer.Option(help="Of images: shift, flip or shift+flip.", show_default="none")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps.", show_default="what the method needs")
    ] = None,
    starts: Annotated[
        int, typer.Option(min=1, help="Models trained from different starts, to predict with their mixture.")
    ] = 1,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Rows per step.", show_default="what the method needs")
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(metavar="N", help="Devices that share the work, or all.", show_default="one"),
    ] = None,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="One of several processes, started by srun or mpirun.")
    ] = False,
    coordinator: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Process 0, if nothing else tells.", show_default="none"),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="How many processes, with --coordinator.", show_default="one")
    ] = None,
    process: Annotated[
        int | None, typer.Option(min=0, help="Which one this is, counted from 0.", show_default="none")
    ] = None,
    validation_fraction: Annotated[
        float | None,
        typer.Option(help="Share of rows that choose the best model.", show_default="none: the last"),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1, help="Stop after this many chunks of 100 steps without progress.", show_default="never"
        ),
    ] = None,
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="Measure and show the method's own diagnostics (novi: RSD).")
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Option of the inference method; repeatable.",
            show_default="those of the method",
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal models.")] = 0,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Save the run here, and resume from it.", show_default="none"),
    ] = None,
    checkpoint_every: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="Time between two writes of the checkpoint.")
    ] = 60.0,
) -> None:
    """Fit a deep Gaussian process to a table or to images and save it to one file.

    Ctrl-C saves the model as it is then.
    """
    import time
    from pathlib import Path

    import numpy as np

    from novidgp.cli.models import ENCODING
    from novidgp.cli.problems import read_problem
    from novidgp.cli.scores import score_table, scores

    options = parse_options(option or [])
    if distributed or coordinator or processes or process is not None:
        jobs.start(coordinator, processes, process)
    path = Path(output or f"{Path(data).name.split('.')[0].strip('*?') or 'model'}.novidgp")
    check_files({"--out": path, "--checkpoint": checkpoint}, {"DATA": data})
    problem = read_problem(data, target, task, drop or [])
    X, y = problem.X, problem.y
    if y is None:
        if test_fraction:
            raise typer.BadParameter(
                "rows on disk are not split; keep some in a file of their own for `novidgp evaluate`",
                param_hint="--test-fraction",
            )
        held_out, given, count = 0, (X,), ""
    else:
        held_out = round(test_fraction * len(X))
        shuffled = np.random.default_rng(seed).permutation(len(X))
        chosen = shuffled if order is None else np.arange(len(X))[::-1]  # in order, the last rows test
        test, train = np.sort(chosen[:held_out]), np.sort(chosen[held_out:])
        given, count = (X[train], y[train]), f"{len(train):,} "
    settings = {
        "inference": inference,
        "preset": preset,
        **parse_layers(layers),
        "augment": augment,
        "num_inducing": inducing,
        "hidden_dim": hidden,
        "latent_dim": parse_value(latent_dim),
        "features": None if features is None else parse_value(features),
        "kernel": kernel,
        "likelihood": likelihood,
        "local": "auto" if local is None else local,
        "wide": parse_value(wide) or None,
        "order": order,
        "max_steps": steps,
        "starts": starts,
        "diagnose": diagnose,
        "batch_size": batch_size,
        "devices": None if devices is None else parse_value(devices),
        "validation_fraction": validation_fraction,
        "patience": patience,
        "inference_options": options or None,
        "dtype": dtype,
        "random_state": seed,
        "checkpoint": checkpoint,
        "checkpoint_every": checkpoint_every,
    }
    console = out(quiet=not jobs.is_first())
    console.print(f"{problem.task} of {problem.target!r}: {count}{problem.rows}")
    start = time.perf_counter()
    model = _fitted(make_estimator(problem.task, settings), *given)
    seconds = time.perf_counter() - start
    from novidgp.training.interrupts import deferred_signals

    with deferred_signals():
        if jobs.is_first():
            model.save(path, extra={ENCODING: problem.encoding})
    if model.fit_status_ == "interrupted":
        kept = f"saved {path}" if checkpoint is None else f"saved {path}, and the run in {checkpoint}"
        wanted = "" if steps is None else f" of {steps:,}"
        leave(f"interrupted after {model.n_iter_:,}{wanted} steps: {kept}")
    console.print(f"{model.n_iter_:,} steps in {seconds:.1f} s: {model.fit_status_}")
    for line in [*mixing(model.posterior_), *discrepancies(model.history_), *model.fit_notes_]:
        console.print(line)
    rows = (
        "" if model.local_ is None else ", with the training rows (local layer; --no-local leaves them out)"
    )
    console.print(f"saved {path}{rows}")
    if held_out and jobs.is_first():
        assert X is not None
        assert y is not None
        values = scores(model, X[test], y[test])
        console.print(score_table(values, f"{held_out:,} rows held out"))


def _fitted(model: Any, *rows: Any) -> Any:
    """The model fitted to the rows; after Ctrl-C as far as it got, if it got anywhere."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    model.set_params(on_interrupt="return", verbose=True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Training was interrupted", ConvergenceWarning)
            model.fit(*rows)
    except KeyboardInterrupt:
        leave("interrupted before any steps were done: there is no model to save")
    return model.set_params(on_interrupt="raise", verbose=None)


def discrepancies(history: dict[str, Any]) -> list[str]:
    """A line with what `--diagnose` measured first and last; none if nothing was measured."""
    if "rsd" not in history:
        return []
    first, last = history["rsd"][0], history["rsd"][-1]
    return [f"regularised Stein discrepancy: {first:.4g} after the first chunk, {last:.4g} at the end"]


def mixing(posterior: Any) -> list[str]:
    """One line per layer on how well the chains of a sampled posterior mixed; none for other posteriors."""
    from novidgp.inference.mixing import summary
    from novidgp.posteriors.draws import Empirical

    if not isinstance(posterior, Empirical):
        return []
    return [
        f"layer {number}: {row.draws} draws, effective {row.ess_median:.0f} (least {row.ess_min:.0f}), "
        f"R-hat {row.rhat_median:.2f} (most {row.rhat_max:.2f})"
        for number, row in enumerate(summary(posterior), start=1)
    ]
