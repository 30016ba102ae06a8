"""Where a training step's time goes, kernel by kernel, and how many operations the compiler counts in it.

The shape is that of `speed.py`: two layers, 10 hidden units, 100 inducing points, batches of 1000 rows. XLA's
profiler times every kernel of the compiled step.

    python benchmarks/profile_step.py              # NOVI
    python benchmarks/profile_step.py dsvi --top 30
"""

import argparse
import collections
import tempfile
import time
from pathlib import Path

from speed import BATCH, HIDDEN, INDUCING, SAMPLES, toy_data

STEPS = 20
KINDS = {
    "matrix products": ("dot", "ynn"),
    "kernel functions": ("exponential",),
    "factorisations": ("cholesky", "triangular", "while"),
}


def compiled_steps(method):
    """`STEPS` steps as one compiled program, with its arguments, and the operations of one step."""
    import jax
    import jax.numpy as jnp

    from novidgp.inference import make_method, prepare
    from novidgp.model.build import ModelConfig, build_model
    from novidgp.model.dgp import Batch
    from novidgp.numerics.compilation import COMPILER_OPTIONS

    X, y = toy_data(BATCH)
    data = Batch(jnp.asarray(X), jnp.asarray(y)[:, None])
    config = ModelConfig(num_layers=2, num_inducing=INDUCING, hidden_dim=HIDDEN)
    model = build_model(config, X, key=jax.random.key(0))
    draws = {"dsvi": "num_paths", "novi": "num_samples"}[method]
    inference = prepare(make_method(method, {draws: SAMPLES}), BATCH, 1000)
    state = jax.jit(lambda key: inference.init(model, data, key=key))(jax.random.key(0))

    def step(state, data, key):
        return inference.step(state, data, key=key)[0]

    def loop(state, data, key):
        return jax.lax.fori_loop(0, STEPS, lambda i, s: step(s, data, jax.random.fold_in(key, i)), state)

    arguments = state, data, jax.random.key(1)
    options = COMPILER_OPTIONS | {"xla_cpu_enable_xprof_traceme": True}
    costs: dict = jax.jit(step).lower(*arguments).compile(COMPILER_OPTIONS).cost_analysis() or {}
    return jax.jit(loop).lower(*arguments).compile(options), arguments, costs["flops"]


def kernel_times(program, arguments):
    """Milliseconds per step of every kernel, and of the whole step without the profiler."""
    import jax

    from novidgp.numerics.linalg import single_threaded_lapack

    with single_threaded_lapack(), tempfile.TemporaryDirectory() as directory:
        jax.block_until_ready(program(*arguments))
        begin = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        whole = 1e3 * (time.perf_counter() - begin) / STEPS
        with jax.profiler.trace(directory):
            jax.block_until_ready(program(*arguments))
        (file,) = Path(directory).rglob("*.xplane.pb")
        times = collections.Counter()
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
            for line in plane.lines:
                for event in line.events:
                    times[event.name] += event.duration_ns / 1e6 / STEPS
    return whole, times


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("method", nargs="?", default="novi", choices=("novi", "dsvi"))
    parser.add_argument("--top", type=int, default=15, help="kernels to list")
    arguments = parser.parse_args()
    program, inputs, operations = compiled_steps(arguments.method)
    whole, times = kernel_times(program, inputs)
    kernels = set(str(program.as_text()).replace("%", " ").split())  # names of instructions, and other words
    times = collections.Counter({name: ms for name, ms in times.items() if name in kernels})
    print(f"{arguments.method}: {whole:.1f} ms a step; the compiler counts {operations / 1e9:.2f} GFLOP")
    rest = sum(times.values())
    for kind, parts in KINDS.items():
        share = sum(ms for name, ms in times.items() if any(part in name for part in parts))
        rest -= share
        print(f"{kind:<24}{share:>8.2f} ms")
    print(f"{'all else':<24}{rest:>8.2f} ms\n")
    for name, ms in times.most_common(arguments.top):
        print(f"{name:<48}{ms:>8.2f} ms")


if __name__ == "__main__":
    main()
