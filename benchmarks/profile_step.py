"""Where a training step's time goes, kernel by kernel, and how many operations the compiler counts in it.

The shape is that of `speed.py`: two layers, 10 hidden units, 100 inducing points, batches of 1000 rows. XLA's
profiler times every kernel of the compiled step.

    python benchmarks/profile_step.py              # NOVI
    python benchmarks/profile_step.py dsvi --top 30
    python benchmarks/profile_step.py --parts      # time and peak memory of each part of NOVI's step, alone
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


def parts():
    """The parts of NOVI's step as functions of their own, with their arguments."""
    import jax
    import jax.numpy as jnp

    from novidgp.inference import make_method, prepare
    from novidgp.inference.closed_form import closed_form_gaussian, no_statistics
    from novidgp.model.build import ModelConfig, build_model
    from novidgp.model.dgp import Batch

    X, y = toy_data(BATCH)
    data = Batch(jnp.asarray(X), jnp.asarray(y)[:, None])
    model = build_model(
        ModelConfig(num_layers=2, num_inducing=INDUCING, hidden_dim=HIDDEN), X, key=jax.random.key(0)
    )
    inference = prepare(make_method("novi", {"num_samples": SAMPLES}), BATCH, 1000)
    state = jax.jit(lambda key: inference.init(model, data, key=key))(jax.random.key(0))
    generator, key = state.players.generator, jax.random.key(1)
    v, scales, _ = jax.jit(lambda: generator.paths(model, SAMPLES, key=key))()
    h = jax.jit(lambda: model.last_layer_inputs(data.x, v, scales, key=key))()
    basis, statistics = jax.jit(lambda: model.layers[-1].basis(h))(), no_statistics(model)

    def hidden(model, v, scales):
        return model.last_layer_inputs(data.x, v, scales, key=key)

    def last(model, h):
        return model.layers[-1].basis(h)

    def pullback(function, *inputs):
        ones = jax.tree.map(lambda s: jnp.ones(s.shape, s.dtype), jax.eval_shape(function, *inputs))
        return lambda *inputs: jax.vjp(function, *inputs)[1](ones)

    def solve(statistics, basis, v):
        return closed_form_gaussian(model, statistics, basis, v, data, BATCH, 0.1)

    return {
        "draws of the generator": (lambda g: g.paths(model, SAMPLES, key=key), (generator,)),
        "paths through the hidden layer": (hidden, (model, v, scales)),
        "  and their gradient": (pullback(hidden, model, v, scales), (model, v, scales)),
        "basis of the last layer": (last, (model, h)),
        "  and its gradient": (pullback(last, model, h), (model, h)),
        "the last layer in closed form": (solve, (statistics, basis.matrix, v[-1])),
        "the whole step": (lambda s: inference.step(s, data, key=key)[0], (state,)),
    }


def print_parts():
    """Milliseconds of each part, and the memory that it needs beside its arguments and results."""
    import jax

    from novidgp.numerics.compilation import COMPILER_OPTIONS
    from novidgp.numerics.linalg import single_threaded_lapack

    print(f"{'part':<34}{'ms':>7}{'MB':>7}")
    for name, (function, inputs) in parts().items():
        program = jax.jit(function).lower(*inputs).compile(COMPILER_OPTIONS)
        with single_threaded_lapack():
            jax.block_until_ready(program(*inputs))
            times = []
            for _ in range(STEPS):
                begin = time.perf_counter()
                jax.block_until_ready(program(*inputs))
                times.append(time.perf_counter() - begin)
        memory = program.memory_analysis()
        assert memory is not None
        print(f"{name:<34}{1e3 * min(times):>7.2f}{memory.temp_size_in_bytes / 1e6:>7.1f}")


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
    parser.add_argument("--parts", action="store_true", help="time and memory of each part, alone")
    arguments = parser.parse_args()
    if arguments.parts:
        print_parts()
        return
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
