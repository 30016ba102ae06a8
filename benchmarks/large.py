"""Many rows: quality on airline, and memory and speed on rows that stay on disk.

    python benchmarks/large.py airline                # 700,000 and 100,000 rows drawn; --split time, all
    python benchmarks/large.py make big --rows 20e6   # a directory of Parquet files, 10 columns and y
    python benchmarks/large.py stream big             # peak memory and steps per second of a fit to it
    python benchmarks/large.py devices                # rows per second: one device, two, two processes

Every command prints one JSON object. Data of `airline` come from NOVIDGP_DATA. CPU seconds are printed beside
seconds: on a busy machine they are the ones to compare.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COLUMNS, FILE_ROWS = 10, 1_000_000


def clock():
    """Seconds, and CPU seconds of this process."""
    return time.perf_counter(), time.process_time()


def spent(since):
    now = clock()
    return {"seconds": round(now[0] - since[0], 1), "cpu_seconds": round(now[1] - since[1], 1)}


def peak_gigabytes():
    """Of resident memory, mapped files included."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)


def airline_rows(split):
    """Training and test rows: drawn with the seed 0, the first 700,000 and the next 100,000, or of all rows a
    hundredth to test."""
    import numpy as np

    from novidgp.datasets import load_dataset

    data = load_dataset("airline")
    order = np.random.RandomState(0).permutation(len(data.X))
    order = np.arange(len(data.X)) if split == "time" else order
    last = len(order) // 100 if split == "all" else 100_000
    rows = order if split == "all" else order[:800_000]
    train, test = rows[:-last], rows[-last:]
    return data.X[train], data.y[train], data.X[test], data.y[test]


def airline(arguments):
    import pandas as pd
    from sklearn.ensemble import HistGradientBoostingRegressor

    from novidgp import DGPRegressor
    from novidgp.prediction.scores import regression_scores

    X, y, X_test, y_test = airline_rows(arguments.split)
    begin = clock()
    if arguments.trees:
        trees = HistGradientBoostingRegressor(max_iter=1000, max_leaf_nodes=127, random_state=0).fit(X, y)
        rmse = float(((trees.predict(X_test) - y_test) ** 2).mean() ** 0.5)
        return {"split": arguments.split, "trees": {"rmse": rmse, **spent(begin)}}
    with tempfile.TemporaryDirectory() as folder:
        names = [f"x{index}" for index in range(X.shape[1])]
        pd.DataFrame(X, columns=names).assign(y=y).to_parquet(f"{folder}/airline.parquet", index=False)
        model = DGPRegressor(
            max_steps=arguments.steps, num_inducing=arguments.inducing, random_state=0, verbose=True
        )
        model.fit(f"{folder}/airline.parquet", target="y")
    fitting = spent(begin)
    if arguments.out:
        model.save(arguments.out)
    begin = clock()
    blocks = (model.predictive(X_test[first : first + 8_192]) for first in range(0, len(X_test), 8_192))
    scores = regression_scores(blocks, y_test)
    return {
        "split": arguments.split,
        "steps": model.n_iter_,
        "scores": scores,
        "fit": fitting,
        "predict": spent(begin),
        "peak_gigabytes": peak_gigabytes(),
        "notes": list(model.fit_notes_),
    }


def make(arguments):
    """Parquet files of a million rows: a sum of waves of growing frequency, and noise."""
    import numpy as np
    import pandas as pd

    folder, total = Path(arguments.folder), int(arguments.rows)
    folder.mkdir(parents=True, exist_ok=True)
    weights = np.random.default_rng(0).standard_normal((COLUMNS, 4)) / np.sqrt(COLUMNS)
    begin = clock()
    for number, first in enumerate(range(0, total, FILE_ROWS)):
        rng = np.random.default_rng([1, number])
        x = rng.standard_normal((min(FILE_ROWS, total - first), COLUMNS)).astype(np.float32)
        y = np.sin((1.0 + np.arange(4)) * (x @ weights)).sum(1) + 0.1 * rng.standard_normal(len(x))
        frame = pd.DataFrame(x, columns=[f"x{index}" for index in range(COLUMNS)])
        frame.assign(y=y.astype(np.float32)).to_parquet(folder / f"part-{number:04}.parquet", index=False)
    return {"rows": total, **spent(begin)}


def step_seconds(model):
    """Median seconds of a step over the chunks of a fit, the first left out: it compiles."""
    import numpy as np

    chunks = np.diff(model.history_["chunk_step"], prepend=0)
    return float(np.median(model.history_["seconds"][1:] / chunks[1:]))


def stream(arguments):
    """A short fit to a directory, and the same number of steps on as many rows as one file has, in memory."""
    import numpy as np
    import pandas as pd

    from novidgp import DGPRegressor
    from novidgp.estimators.sources import TableRows
    from novidgp.training.rowfile import write_rows

    options: dict = {"max_steps": arguments.steps, "batch_size": 1000, "local": False, "random_state": 0}
    begin = clock()
    file = write_rows(TableRows(arguments.folder, "y", "regression"), "float32", scale_targets=True)
    result = {"rows": len(file), "conversion": spent(begin)}
    begin = clock()
    disk = DGPRegressor(**options).fit(arguments.folder, target="y")
    result |= {"fit": spent(begin), "peak_gigabytes": peak_gigabytes()}
    part = pd.read_parquet(sorted(Path(arguments.folder).glob("*.parquet"))[0])
    memory = DGPRegressor(**options).fit(part.drop(columns="y").to_numpy(np.float64), part["y"].to_numpy())
    rates = {"disk": step_seconds(disk), "memory": step_seconds(memory)}
    return result | {"step_seconds": rates, "share_of_memory_rate": rates["memory"] / rates["disk"]}


def devices(arguments):
    """Seconds of NOVI's steps on the same two cores, the ways in turn, and on one core for comparison."""
    import socket
    import statistics

    from novidgp.distributed import COORDINATOR, PROCESS, PROCESSES

    def job():
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        return [({COORDINATOR: address, PROCESSES: "2", PROCESS: number}, number) for number in ("0", "1")]

    ways = {
        "one device": lambda: [({}, "0,1")],
        "two devices": lambda: [({"JAX_NUM_CPU_DEVICES": "2"}, "0,1")],
        "two processes": job,
        "one core": lambda: [({}, "0")],
    }
    code = "import sys; sys.path.insert(0, sys.argv[1]); import large; large.steps(sys.argv[2:])"
    batches = [str(batch) for batch in arguments.batch]
    arguments_of_code = [sys.executable, "-c", code, str(Path(__file__).parent), *batches]
    seconds = {batch: {way: [] for way in ways} for batch in batches}
    for _ in range(arguments.turns):
        for way, parts in ways.items():
            running = [
                subprocess.Popen(
                    ["taskset", "-c", cores, *arguments_of_code],
                    env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"} | environment,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for environment, cores in parts()
            ]
            outputs = [process.communicate()[0] for process in running]
            for batch, value in json.loads(outputs[0].splitlines()[-1]).items():
                seconds[batch][way].append(value)
    middle = {b: {w: statistics.median(v) for w, v in found.items()} for b, found in seconds.items()}
    rates = {b: {w: round(int(b) / v) for w, v in found.items()} for b, found in middle.items()}
    return {
        "turns": arguments.turns,
        "milliseconds_per_step": {
            b: {w: round(1e3 * v, 2) for w, v in found.items()} for b, found in middle.items()
        },
        "rows_per_second": rates,
        "of_one_device": {
            b: {w: round(found[w] / found["one device"], 2) for w in found} for b, found in rates.items()
        },
    }


def steps(batches, count=80):
    """Print the seconds per step of the benchmark's model, on all devices of all processes."""
    import numpy as np

    import novidgp

    novidgp.distributed.start()
    rng = np.random.default_rng(0)
    settings: dict = {"devices": "all", "local": False, "random_state": 0, "hidden_dim": 10}
    found = {}
    for batch in map(int, batches):
        X = rng.standard_normal((20 * batch, 8))
        model = novidgp.DGPRegressor(max_steps=count, batch_size=batch, **settings)
        found[batch] = step_seconds(model.fit(X, np.sin(X.sum(1)), chunk=16))
    print(json.dumps(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("airline")
    command.add_argument("--split", choices=("file", "time", "all"), default="file")
    command.add_argument("--steps", type=int)
    command.add_argument("--inducing", type=int, default=100)
    command.add_argument(
        "--trees", action="store_true", help="boosted trees instead: 1000 rounds, 127 leaves"
    )
    command.add_argument("--out", help="also save the model here")
    command = commands.add_parser("make")
    command.add_argument("folder")
    command.add_argument("--rows", type=float, default=20e6)
    command = commands.add_parser("stream")
    command.add_argument("folder")
    command.add_argument("--steps", type=int, default=600)
    command = commands.add_parser("devices")
    command.add_argument("--batch", type=int, nargs="+", default=[1000, 2000, 4000])
    command.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    print(json.dumps(globals()[arguments.command](arguments)))


if __name__ == "__main__":
    main()
