"""Seconds from the call to a model as good as GPyTorch's deep GP: the race that a user feels.

GPyTorch's DSVI takes 1000 iterations (2 layers, 10 hidden units, 100 inducing points at random rows, 10
samples, batches of 1000 rows, Adam at 0.01, 2 threads). Our default regressor gets growing budgets until its
test RMSE and NLL are both as good (random 90/10, split 0). Every run is a new process with nothing cached,
timed from its start to its end: imports, compilation, fit and predictions. Runs never overlap.

    python benchmarks/race.py                       # five sets; the last line is one JSON object
    python benchmarks/race.py --sets energy,yacht   # fewer
    python benchmarks/race.py --peers FILE          # keep GPyTorch's runs there, and use those that are
"""
# pyright: reportMissingImports=false

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

SETS = ("energy", "concrete", "boston", "yacht", "kin8nm")
BUDGETS = (25, 50, 100, 200, 300, 500, 1000, 2000)
ITERATIONS, HIDDEN, THREADS, SEED = 1000, 10, 2, 0


def run(name, budget=None):
    """Test RMSE and NLL of our default regressor after `budget` steps, or of GPyTorch's deep GP."""
    import numpy as np

    from novidgp.bench.problems import load_problem
    from novidgp.bench.spec import Fit

    problem = load_problem(Fit(name, "random", SEED, "novi"))
    X, y = problem.X_test, problem.y_test
    if budget is None:
        import torch

        from novidgp.bench.gpytorch_dsvi import fit_dsvi

        torch.set_num_threads(THREADS)
        documented = {"learning_rate": 0.01, "decay": False, "k_means": False, "width": HIDDEN}
        mean, log_density = fit_dsvi(problem, seed=SEED, steps=ITERATIONS, **documented).moments(X, y)
    else:
        from novidgp import DGPRegressor

        model = DGPRegressor(max_steps=budget, random_state=SEED, verbose=False).fit(problem.X, problem.y)
        predictive = model.predictive(X)
        mean, log_density = predictive.mean()[:, 0], predictive.log_prob(y)
    return {"rmse": float(np.sqrt(np.mean((mean - y) ** 2))), "nll": -float(np.mean(log_density))}


def timed(*arguments):
    """The scores of a run in a new process, and its seconds."""
    environment = os.environ | {"NOVIDGP_CACHE": "off", "OMP_NUM_THREADS": str(THREADS)}
    begin = time.perf_counter()
    command = [sys.executable, str(Path(__file__).resolve()), "--run", *arguments]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return json.loads(printed.splitlines()[-1]) | {"seconds": time.perf_counter() - begin}


def as_good(ours, peer):
    return ours["rmse"] <= peer["rmse"] and ours["nll"] <= peer["nll"]


def race(name, kept):
    """GPyTorch's run, and ours with the first budget that is as good."""
    peer = kept[name] if name in kept else timed(name)
    print(f"{name:<10}{'gpytorch':>10}{ITERATIONS:>7}{describe(peer)}", flush=True)
    for budget in BUDGETS:
        ours = timed(name, str(budget))
        print(f"{name:<10}{'novidgp':>10}{budget:>7}{describe(ours)}", flush=True)
        if as_good(ours, peer):
            return {
                "peer": peer,
                "ours": ours | {"budget": budget},
                "ratio": peer["seconds"] / ours["seconds"],
            }
    return {"peer": peer, "ours": None, "ratio": None}


def describe(run):
    return f"{run['seconds']:>9.1f} s   RMSE {run['rmse']:.4f}   NLL {run['nll']:+.3f}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=",".join(SETS), help="data sets, with commas between")
    parser.add_argument("--peers", type=Path, help="a file that keeps GPyTorch's runs")
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        name, *budget = arguments.run
        print(json.dumps(run(name, *map(int, budget))))
        return
    kept = json.loads(arguments.peers.read_text()) if arguments.peers and arguments.peers.exists() else {}
    results = {}
    for name in arguments.sets.split(","):
        results[name] = race(name, kept)
        kept[name] = results[name]["peer"]
        if arguments.peers:
            arguments.peers.write_text(json.dumps(kept))
    ratios = {name: result["ratio"] for name, result in results.items()}
    won = [ratio for ratio in ratios.values() if ratio is not None]
    mean = math.exp(sum(map(math.log, won)) / len(won)) if len(won) == len(ratios) else None
    for name, ratio in ratios.items():
        print(f"{name:<10}" + ("never as good" if ratio is None else f"{ratio:.1f} times sooner"))
    print(json.dumps({"race_ratio": mean, "ratios": ratios, "results": results}))


if __name__ == "__main__":
    main()
