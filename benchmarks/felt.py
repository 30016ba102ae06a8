"""What a user feels: seconds of a first and of a second default fit, and how fast the model answers.

A new process with nothing cached fits 1,000 rows of 10 columns, then another set of nearly that size, and
predicts with the second model, with and without a local layer.

    python benchmarks/felt.py            # the last line is one JSON object
"""

import argparse
import json
import os
import subprocess
import sys
import time

ROWS, COLUMNS, MANY = 1_000, 10, 20_000


def data(seed, rows=ROWS):
    import numpy as np

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, COLUMNS))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=rows)


def seconds(function, repeats=1):
    """The least seconds of a few calls."""
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def run():
    """The figures of this process."""
    begin = time.perf_counter()
    from novidgp import DGPRegressor

    DGPRegressor(random_state=0, verbose=False).fit(*data(0)).predict(data(1)[0][:100])
    figures = {"first_fit_seconds": time.perf_counter() - begin}
    figures["second_fit_seconds"] = seconds(
        lambda: DGPRegressor(random_state=1, verbose=False).fit(*data(5, ROWS - 20))
    )
    for local, name in ((False, ""), (True, "_local")):
        model = DGPRegressor(random_state=0, verbose=False, local=local).fit(*data(0))
        many = data(2, MANY)[0]
        for rows in (many[:1], many):
            model.predict(rows[:200], return_std=True)
        taken = seconds(lambda model=model, many=many: model.predict(many, return_std=True), 3)
        figures[f"rows_per_second{name}"] = MANY / taken
        one = seconds(lambda model=model, many=many: model.predict(many[:1], return_std=True), 20)
        figures[f"one_row_milliseconds{name}"] = 1e3 * one
    return figures


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().run:
        print(json.dumps(run()))
        return
    command = [sys.executable, __file__, "--run"]
    printed = subprocess.run(
        command, env=os.environ | {"NOVIDGP_CACHE": "off"}, check=True, capture_output=True, text=True
    ).stdout
    figures = json.loads(printed.splitlines()[-1])
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):<32}{value:>12,.2f}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
