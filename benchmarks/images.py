"""Milliseconds of a convolutional model's step, and of its patches by slices against XLA's convolution.

All inside a loop that is one compiled program, as in training, with images of random numbers and batches of
64. CPU milliseconds (the smallest of several calls) are told beside those of the clock: on a busy machine
only the first mean anything.

    python benchmarks/images.py             # kernel values of both layers for CIFAR-10, both ways
    python benchmarks/images.py --step      # whole steps of NOVI and DSVI on that model
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from novidgp.inference import make_method, prepare
from novidgp.model.build import build_dgp
from novidgp.model.dgp import Batch
from novidgp.model.image_layers import layers_for
from novidgp.model.kernels import squared_distance
from novidgp.model.patches import Patches
from novidgp.numerics.compilation import COMPILER_OPTIONS

IMAGE, BATCH, CLASSES, DRAWS = (32, 32, 3), 64, 10, 2
LAYERS = ((IMAGE, 5, 2, 128), ((14, 14, 10), 5, 1, 384))
"""Image, patch size, stride and inducing patches of `layers="conv"` on CIFAR-10."""
CALLS, STEPS = 8, 2


def measured(name, loop, *arguments, operations=None):
    """Compile `loop(*arguments, steps)`, call it, print milliseconds a step."""
    program = jax.jit(loop).lower(*arguments, STEPS).compile(compiler_options=COMPILER_OPTIONS)
    jax.block_until_ready(program(*arguments, 1))
    cpu, wall = [], []
    for _ in range(CALLS):
        clock, used = time.perf_counter(), time.process_time()
        jax.block_until_ready(program(*arguments, STEPS))
        wall.append(1e3 * (time.perf_counter() - clock) / STEPS)
        cpu.append(1e3 * (time.process_time() - used) / STEPS)
    speed = "" if operations is None else f", {operations / min(cpu) / 1e6:.1f} GFLOP per CPU second"
    print(f"{name}: {min(cpu):.1f} ms CPU, {min(wall):.1f} ms{speed}", flush=True)


def kernel_values(image, size, stride, count):
    """Sums of an RBF kernel between patches and `count` inducing patches: by slices and by a convolution."""
    cut = Patches(image, size, stride)

    def by_slices(x, z):
        return jnp.sum(jnp.exp(-0.5 * squared_distance(cut(x).reshape(-1, cut.width), z)))

    def by_convolution(x, z):
        images = x.reshape(-1, *image)
        taps = jnp.moveaxis(z.reshape(count, size, size, image[2]), 0, -1)

        def convolved(values, taps):
            layout = ("NHWC", "HWIO", "NHWC")
            return jax.lax.conv_general_dilated(
                values, taps, (stride, stride), "VALID", dimension_numbers=layout
            )

        norms = convolved(jnp.sum(images**2, -1, keepdims=True), jnp.ones((size, size, 1, 1), x.dtype))
        return jnp.sum(jnp.exp(-0.5 * (norms - 2.0 * convolved(images, taps) + jnp.sum(z * z, axis=1))))

    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((BATCH, np.prod(image))) / 4, jnp.float32)
    z = jnp.asarray(rng.standard_normal((count, cut.width)) / 4, jnp.float32)
    operations = 6 * BATCH * cut.count * cut.width * count
    for name, function in (("slices", by_slices), ("lax.conv", by_convolution)):

        def loop(x, z, steps, function=function):
            def body(_, point):
                slopes = jax.grad(function, argnums=(0, 1))(*point)
                return tuple(value - 1e-6 * slope for value, slope in zip(point, slopes, strict=True))

            return jax.lax.fori_loop(0, steps, body, (x, z))

        shape = " x ".join(map(str, image))
        measured(f"{shape}, {cut.count} patches, {count} inducing, {name}", loop, x, z, operations=operations)


def steps(method, draws):
    """Whole steps of a method."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, np.prod(IMAGE)))
    model = build_dgp(
        x,
        num_inducing=tuple(count for *_, count in LAYERS),
        kernel="rbf",
        likelihood="softmax",
        num_classes=CLASSES,
        image=IMAGE,
        layers=layers_for("conv", IMAGE, len(LAYERS)),
        key=jax.random.key(0),
    )
    y = jnp.asarray(rng.integers(0, CLASSES, (BATCH, 1)), jnp.float32)
    batch = Batch(jnp.asarray(x[:BATCH], jnp.float32), y)
    inference = prepare(make_method(method, draws), 50_000, 1_000)
    state = jax.jit(lambda key: inference.init(model, batch, key=key))(jax.random.key(1))

    def loop(state, steps):
        def body(index, state):
            return inference.step(state, batch, key=jax.random.fold_in(jax.random.key(2), index))[0]

        return jax.lax.fori_loop(0, steps, body, state)

    measured(f"a step of {method} {draws}, batch {BATCH}", loop, state)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--step", action="store_true", help="whole steps")
    if parser.parse_args().step:
        steps("dsvi", {"num_paths": DRAWS})
        steps("novi", {"num_samples": DRAWS})
    else:
        for layer in LAYERS:
            kernel_values(*layer)
