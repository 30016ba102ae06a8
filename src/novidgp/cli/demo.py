"""`novidgp demo`: fit, compare with scikit-learn's exact GP, draw, save and load, in under two minutes."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from novidgp.cli.console import out, report_errors


@report_errors()
def demo_command(
    output: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where pictures and the model go.")
    ] = Path("demo_output"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps of the curve.")] = 600,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal results.")] = 0,
) -> None:
    """Fit built-in data, compare with an exact GP, draw, save, load again and predict."""
    import time

    import numpy as np

    import novidgp
    from novidgp.cli import demo_fits, demo_posterior
    from novidgp.plots import save_png, training_curve

    console = out()
    start = time.perf_counter()
    output.mkdir(parents=True, exist_ok=True)
    examples = demo_fits.examples(steps)
    fits = {}
    table = demo_fits.empty_table()
    for example in examples:
        console.print(f"fitting {example.name}: {example.about}")
        fits[example.name] = pair = demo_fits.fit_both(example, seed)
        demo_fits.add_rows(table, example, pair)
    console.print(table)

    curve, pair = examples[0], fits[examples[0].name]
    bands = save_png(demo_fits.bands_figure(curve, pair), output / "bands.png")
    losses = {name: pair.ours.history_["loss"] for name, pair in fits.items()}
    training = save_png(training_curve(losses), output / "training.png")
    console.print("a posterior that is no Gaussian, by NOVI, by the best Gaussian and by a long SGHMC run")
    posterior = save_png(demo_posterior.figure(demo_posterior.draws(steps, seed)), output / "posterior.png")
    console.print(f"drew {bands}, {training} and {posterior}")

    path = output / "curve.novidgp"
    pair.ours.save(path)
    loaded = novidgp.load_model(path)
    before = pair.ours.predict(curve.X_test, return_std=True)
    after = cast(Any, loaded).predict(curve.X_test, return_std=True)
    difference = float(np.max(np.abs(np.subtract(before, after))))
    if not difference <= 1e-6 * float(np.std(curve.y)):
        raise ValueError(f"{path}: predictions of the loaded model differ by {difference:g}")
    agreement = "bit for bit" if difference == 0 else f"to {difference:.1g}"
    console.print(
        f"saved {path} ({path.stat().st_size / 1024:.0f} kB), loaded it again: "
        f"predictions of {len(curve.X_test):,} rows agree {agreement}"
    )
    console.print(f"done in {time.perf_counter() - start:.0f} s")
