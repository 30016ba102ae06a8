"""`novidgp demo`: three things deep GPs are for, each beside what people use there, in under a minute."""

from pathlib import Path
from typing import Annotated

import typer

from novidgp.cli.console import out, report_errors


@report_errors()
def demo_command(
    output: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where pictures and the model go.")
    ] = Path("demo_output"),
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps.", show_default="what each model needs")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal results.")] = 0,
) -> None:
    """Fit built-in data, compare with what people use there, draw, save, load again and predict."""
    import time

    import numpy as np
    from rich.table import Table

    import novidgp
    from novidgp.cli import demo_scenes as scenes
    from novidgp.plots import save_png

    console = out()
    start = time.perf_counter()
    output.mkdir(parents=True, exist_ok=True)
    regression = ("error of the function", "NLL", "in 90 %")
    acts = {
        "curve": (scenes.curve, "200 noisy points: smooth, then a jump, then ever faster waves", regression),
        "town": (scenes.town, "4,000 houses in a town whose streets differ", regression),
        "digits": (scenes.digits, "1,347 images of digits", ("accuracy", "log loss", "errors, surest 90 %")),
    }
    pictures, played = [], {}
    for name, (scene, about, figures) in acts.items():
        console.print(f"fitting {name}: {about}")
        played[name] = scene(steps, seed)
        table = Table("model", title=f"{name}, on rows held out", title_justify="left")
        for heading in (*figures, "seconds"):
            table.add_column(heading, justify="right")
        for row in played[name].rows:
            table.add_row(*row)
        console.print(table)
        pictures.append(str(save_png(played[name].figure, output / f"{name}.png")))
    console.print(f"drew {', '.join(pictures[:-1])} and {pictures[-1]}")

    model, X_test = played["town"].model, played["town"].X_test
    path = output / "town.novidgp"
    model.save(path)
    loaded = novidgp.load_model(path)
    assert isinstance(loaded, novidgp.DGPRegressor)
    pairs = zip(*(m.predict(X_test, return_std=True) for m in (model, loaded)), strict=True)
    difference = max(float(np.max(np.abs(before - after))) for before, after in pairs)
    if not difference <= 1e-6:
        raise ValueError(f"{path}: predictions of the loaded model differ by {difference:g}")
    agreement = "bit for bit" if difference == 0 else f"to {difference:.1g}"
    console.print(
        f"saved {path} ({path.stat().st_size / 1024:.0f} kB), loaded it again: "
        f"predictions of {len(X_test):,} rows agree {agreement}"
    )
    console.print(f"done in {time.perf_counter() - start:.0f} s")
