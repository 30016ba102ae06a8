"""Seconds per iteration: ours beside GPyTorch's deep GP, in one run on one machine.

Two layers, 10 hidden units, 100 inducing points, 10 samples, batches of 1000 rows, 2 threads. Each method
lives in a process of its own and the processes take turns, so that all of them see the same noise and none
disturbs another: an idle one waits on a pipe. Figures are medians over turns.

    python benchmarks/speed.py              # the comparison; the last line is one JSON object
    python benchmarks/speed.py --setup      # only: how long a first default fit takes to compile
    python benchmarks/speed.py --scaling    # how NOVI's iteration grows with depth, samples and batch
"""
# pyright: reportMissingImports=false

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

THREADS = 2
INPUTS, HIDDEN, INDUCING, SAMPLES, BATCH = 8, 10, 100, 10, 1000
WARM_UP = 3
ENERGY_ROWS = 768
CAPTURED: dict = {"check": True, "capture_output": True, "text": True}


def toy_data(rows):
    """Inputs and a smooth target, the same for everybody."""
    import numpy as np

    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, INPUTS)).astype(np.float32)
    y = np.sin(X.sum(1)) + 0.1 * rng.standard_normal(rows).astype(np.float32)
    return X, y.astype(np.float32)


def gpytorch_dsvi(**_):
    """A function that runs n iterations of GPyTorch's DSVI, and its set-up time."""
    import torch

    from novidgp.bench.gpytorch_dsvi import TwoLayerDGP, training_step

    torch.set_num_threads(THREADS)
    X, y = map(torch.as_tensor, toy_data(BATCH))
    begin = time.perf_counter()
    torch.manual_seed(0)
    step, _ = training_step(TwoLayerDGP(X, width=HIDDEN, inducing=INDUCING), BATCH, learning_rate=0.01)

    def run(count):
        for _ in range(count):
            step(X, y)

    run(1)
    return run, time.perf_counter() - begin


def ours(method, *, layers=2, samples=SAMPLES, batch=BATCH, sharing="auto", **options):
    """A function that runs n iterations of one of our methods, and its compile time."""
    import jax
    import jax.numpy as jnp

    from novidgp.inference import make_method, prepare
    from novidgp.model.build import ModelConfig, build_model
    from novidgp.model.dgp import Batch
    from novidgp.numerics.compilation import COMPILER_OPTIONS
    from novidgp.numerics.linalg import single_threaded_lapack

    X, y = toy_data(batch)
    data = Batch(jnp.asarray(X), jnp.asarray(y)[:, None])
    config = ModelConfig(num_layers=layers, num_inducing=INDUCING, hidden_dim=HIDDEN, kernel_sharing=sharing)
    model = build_model(config, X, key=jax.random.key(0))
    draws = {"dsvi": "num_paths", "novi": "num_samples"}[method]
    inference = prepare(make_method(method, {draws: samples, **options}), batch, 1000)
    state = jax.jit(lambda key: inference.init(model, data, key=key))(jax.random.key(0))
    chunk = 10

    def scan(state, data, key):
        def body(state, i):
            state, info = inference.step(state, data, key=jax.random.fold_in(key, i))
            return state, info["loss"]

        return jax.lax.scan(body, state, jnp.arange(chunk))

    begin = time.perf_counter()
    compiled = jax.jit(scan).lower(state, data, jax.random.key(1)).compile(COMPILER_OPTIONS)
    compile_seconds = time.perf_counter() - begin

    def run(count):
        with single_threaded_lapack():
            for _ in range(-(-count // chunk)):
                jax.block_until_ready(compiled(state, data, jax.random.key(1)))

    return run, compile_seconds


def first_fit(method):
    """Seconds of the first fit of the default regressor, stopped after one step, to a set of energy's size.

    In this process nothing is compiled and nothing cached before it: tracing, compiling and one step.
    """
    from novidgp import DGPRegressor

    X, y = toy_data(ENERGY_ROWS)
    begin = time.perf_counter()
    alone: dict = {"local": False, "verbose": False}
    model = DGPRegressor(inference=method, random_state=0, **alone)
    model.fit(X, y, chunk=1, callbacks=[lambda progress: True])
    return time.perf_counter() - begin


def first_fits(turns):
    """Per method: median seconds of a first fit, each in a new process, methods in turn."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import speed; print(speed.first_fit(sys.argv[2]))"
    seconds = {"dsvi": [], "novi": []}
    for _ in range(turns):
        for method, values in seconds.items():
            command = [sys.executable, "-c", code, str(Path(__file__).parent), method]
            environment = os.environ | {"NOVIDGP_CACHE": "off"}
            values.append(float(subprocess.run(command, env=environment, **CAPTURED).stdout))
    return {method: statistics.median(values) for method, values in seconds.items()}


def worker(pipe, method, options):
    """Set up, then time as many iterations as the parent asks for, until it asks for none."""
    baseline = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run, seconds = gpytorch_dsvi() if method == "gpytorch_dsvi" else ours(method, **options)
    run(WARM_UP)
    pipe.send(seconds)
    while count := pipe.recv():
        begin = time.perf_counter()
        run(count)
        pipe.send((time.perf_counter() - begin) / count)
    pipe.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - baseline) / 1024)


def compare(methods, turns, iterations):
    """Per label: median seconds per iteration, set-up seconds, peak memory in MB beyond the interpreter's."""
    context = multiprocessing.get_context("spawn")
    pipes, processes, results = {}, [], {}
    for label, (method, options) in methods.items():
        pipes[label], child = context.Pipe()
        processes.append(context.Process(target=worker, args=(child, method, options)))
        processes[-1].start()
        results[label] = {"setup_seconds": pipes[label].recv(), "turns": []}
    for _ in range(turns):
        for label, pipe in pipes.items():
            pipe.send(iterations)
            results[label]["turns"].append(pipe.recv())
    for label, pipe in pipes.items():
        pipe.send(0)
        results[label]["peak_mb"] = pipe.recv()
        results[label]["seconds"] = statistics.median(results[label].pop("turns"))
    for process in processes:
        process.join()
    return results


def report(results, first):
    """A table, and the figures as one JSON line."""
    peer = results["gpytorch_dsvi"]["seconds"]
    print(f"{'method':<16}{'ms / iteration':>16}{'ratio':>8}{'set-up s':>10}{'peak MB':>10}")
    for label, r in results.items():
        ratio = peer / r["seconds"]
        print(
            f"{label:<16}{1e3 * r['seconds']:>16.1f}{ratio:>8.2f}"
            f"{r['setup_seconds']:>10.1f}{r['peak_mb']:>10.0f}"
        )
    figures = {
        f"{label}_ratio": peer / r["seconds"] for label, r in results.items() if label in ("dsvi", "novi")
    }
    print(json.dumps(figures | report_first(first) | {"threads": THREADS, "results": results}))


def report_first(first):
    """Set-up seconds of first fits in words, and as figures."""
    ratio = first["novi"] / first["dsvi"]
    print(
        f"first fit of the default regressor, {ENERGY_ROWS} rows, one step, nothing cached: "
        f"dsvi {first['dsvi']:.1f} s, novi {first['novi']:.1f} s, {ratio:.2f} x"
    )
    return {"setup_ratio": ratio, "first_fit_seconds": first}


def scaling(turns):
    """NOVI's milliseconds per iteration as one size at a time grows."""
    rows = [("layers", value, {"layers": value}) for value in (2, 3, 4, 5)]
    rows += [("samples", value, {"samples": value}) for value in (5, 10, 20, 40)]
    rows += [("batch", value, {"batch": value}) for value in (250, 500, 1000, 2000)]
    print(f"{'what':<10}{'value':>8}{'ms / iteration':>16}")
    for what, value, options in rows:
        seconds = compare({"novi": ("novi", options)}, turns, 10)["novi"]["seconds"]
        print(f"{what:<10}{value:>8}{1e3 * seconds:>16.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=9, help="how often each method gets its turn")
    parser.add_argument("--iterations", type=int, default=20, help="iterations per turn")
    parser.add_argument("--setup", action="store_true", help="first fits alone")
    parser.add_argument("--scaling", action="store_true", help="NOVI alone, over sizes")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))
    if arguments.scaling:
        scaling(arguments.turns)
        return
    if arguments.setup:
        print(json.dumps(report_first(first_fits(3))))
        return
    methods = {label: (label, {}) for label in ("gpytorch_dsvi", "dsvi", "novi")}
    report(compare(methods, arguments.turns, arguments.iterations), first_fits(3))


if __name__ == "__main__":
    main()
