"""Weights of a small CIFAR ResNet, by the names of PyTorch."""

import numpy as np


def state_dict(seed=0):
    """Random weights of the smallest network: one block in each group."""
    rng = np.random.default_rng(seed)
    arrays = {"linear.weight": rng.standard_normal((10, 64)), "linear.bias": rng.standard_normal(10)}

    def add(name, norm, inputs, outputs):
        arrays[f"{name}.weight"] = rng.standard_normal((outputs, inputs, 3, 3)) / (3 * np.sqrt(inputs))
        for part in ("weight", "bias", "running_mean"):
            arrays[f"{norm}.{part}"] = rng.standard_normal(outputs)
        arrays[f"{norm}.running_var"] = rng.uniform(0.5, 2.0, outputs)

    add("conv1", "bn1", 3, 16)
    for group, (inputs, outputs) in enumerate([(16, 16), (16, 32), (32, 64)], start=1):
        add(f"layer{group}.0.conv1", f"layer{group}.0.bn1", inputs, outputs)
        add(f"layer{group}.0.conv2", f"layer{group}.0.bn2", outputs, outputs)
    return {name: array.astype(np.float32) for name, array in arrays.items()}
