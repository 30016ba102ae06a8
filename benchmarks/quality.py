"""Our methods on the benchmark's splits, in the same units and file format as `benchmarks/peers.py`.

    python benchmarks/quality.py --datasets energy yacht --methods dsvi novi --seeds 0 1 --out ours.jsonl
    python benchmarks/quality.py --table ours.jsonl peers.jsonl

The first form appends one JSON line per finished fit and skips those the file already holds; the second
prints RMSE and NLL (standardised units, mean and standard error over splits) of every method beside the
others. A method is `name` or `name:option=value,...`, where an option is a parameter of `DGPRegressor` or
of the inference method: `novi:network=False,num_layers=3`. Protocol: random 90/10 splits; data from
$NOVIDGP_DATA.
"""

import argparse
import ast
import inspect
import json
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from novidgp import DGPRegressor
from novidgp.bench.protocols import split
from novidgp.datasets import load_dataset


def load_split(dataset, seed):
    """X_train, y_train, X_test, y_test in units of the training rows' mean and standard deviation."""
    data = load_dataset(dataset)
    X, y = np.asarray(data.X, np.float64), np.asarray(data.y, np.float64)
    rows = split(len(X), "random", seed)
    y = (y - y[rows.train].mean()) / y[rows.train].std()
    return X[rows.train], y[rows.train], X[rows.test], y[rows.test]


def estimator(method, *, steps, seed):
    """The regressor that a method's description asks for."""
    name, _, text = method.partition(":")
    options = dict(part.split("=", 1) for part in text.split(",") if part)
    values = {key: _literal(value) for key, value in options.items()}
    known = inspect.signature(DGPRegressor.__init__).parameters
    own = {key: values.pop(key) for key in list(values) if key in known}
    settings = {"max_steps": steps, "random_state": seed, "verbose": False, **own}
    return DGPRegressor(inference=name, inference_options=values or None, **settings)


def _literal(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def run(dataset, method, seed, steps):
    """One fit and its scores."""
    X_train, y_train, X_test, y_test = load_split(dataset, seed)
    wall, cpu = time.perf_counter(), time.process_time()
    model = estimator(method, steps=steps, seed=seed).fit(X_train, y_train)
    mean = model.predict(X_test)
    low, high = model.predict_quantiles(X_test, [0.05, 0.95]).T
    return {
        "dataset": dataset,
        "method": method,
        "seed": seed,
        "steps": steps,
        "protocol": "random",
        "rmse": float(np.sqrt(np.mean((mean - y_test) ** 2))),
        "nll": float(-model.log_density(X_test, y_test).mean()),
        "coverage90": float(np.mean((y_test >= low) & (y_test <= high))),
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "status": model.fit_status_,
    }


def read(path):
    """The lines of a result file, if there is one."""
    path = Path(path)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(paths):
    """Markdown: one row per data set and method."""
    groups = defaultdict(list)
    for path in paths:
        for row in read(path):
            groups[row["dataset"], row["method"]].append(row)
    lines = ["| data set | method | splits | RMSE | NLL | 90 % coverage | CPU s |", "|" + "---|" * 7]
    for (dataset, method), rows in sorted(groups.items()):
        cells = []
        for score in ("rmse", "nll"):
            values = np.array([row[score] for row in rows])
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            cells.append(f"{values.mean():.4f} ± {error:.4f}")
        coverage = np.mean([row["coverage90"] for row in rows])
        seconds = np.mean([row["cpu_seconds"] for row in rows])
        cells = [dataset, method, str(len(rows)), *cells, f"{coverage:.3f}", f"{seconds:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", default=["energy", "boston", "concrete", "yacht"])
    parser.add_argument("--methods", nargs="+", default=["dsvi"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", nargs="+", type=Path, help="print the results of these files and stop")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(arguments.table))
        return
    done = {(r["dataset"], r["method"], r["seed"], r["steps"]) for r in read(arguments.out or "")}
    for dataset in arguments.datasets:
        for method in arguments.methods:
            for seed in arguments.seeds:
                if (dataset, method, seed, arguments.steps) in done:
                    continue
                row = run(dataset, method, seed, arguments.steps)
                print(json.dumps(row), flush=True)
                if arguments.out:
                    with arguments.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
