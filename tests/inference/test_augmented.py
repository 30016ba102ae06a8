"""Augmentation: what happens to the images of a batch, and that a method does not notice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference import METHODS, make_method, prepare
from novidgp.inference.augmented import Augmentation, Augmented, augmentation
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import Batch
from novidgp.model.image_layers import layers_for
from support.small import run

IMAGE = (5, 4, 2)
X = np.random.default_rng(0).standard_normal((30, 40)).astype(np.float32)


def moved(image, down, across, mirrored):
    """An image shifted by whole pixels, with its edge repeated."""
    image = image.reshape(IMAGE)
    image = image[:, ::-1] if mirrored else image
    padded = np.pad(image, ((2, 2), (2, 2), (0, 0)), mode="edge")
    return padded[2 + down : 7 + down, 2 + across : 6 + across].reshape(-1)


@pytest.mark.parametrize(("shift", "flip"), [(1, False), (0, True), (2, True), (0, False)])
def test_every_image_is_one_of_its_shifts_and_mirror_images(shift, flip):
    seen = np.asarray(Augmentation(IMAGE, shift, flip)(jnp.asarray(X), key=jax.random.key(0)))
    ways = [
        (down, across, mirrored)
        for down in range(-shift, shift + 1)
        for across in range(-shift, shift + 1)
        for mirrored in ([False, True] if flip else [False])
    ]
    used = set()
    for before, after in zip(X, seen, strict=True):
        found = [way for way in ways if np.array_equal(moved(before, *way), after)]
        assert found
        used.update(found)
    # 30 draws of at most 50 ways; that fewer than a third of min(30, ways) occur has no chance.
    assert len(used) >= min(30, len(ways)) / 3


def test_names_say_what_is_done():
    assert augmentation("shift", (28, 28, 1)) == Augmentation((28, 28, 1), 2, False)
    assert augmentation("flip", (28, 28, 1)) == Augmentation((28, 28, 1), 0, True)
    assert augmentation("shift+flip", (8, 9, 3)) == Augmentation((8, 9, 3), 1, True)


def conv_model(**settings):
    layers = layers_for("conv", IMAGE, 2)
    config = ModelConfig(num_inducing=4, image=IMAGE, layers=layers, **settings)
    return build_model(config, X, key=jax.random.key(0))


def test_a_method_with_augmentation_is_the_method_on_augmented_batches():
    model, batch = conv_model(), Batch(jnp.asarray(X), jnp.asarray(X[:, :1]))
    inner = make_method("dsvi", {"num_paths": 1})
    still = Augmented(inner, Augmentation(IMAGE, 0, False))
    _, infos = run(still.algorithm(30, 5), model, batch, 3, key=jax.random.key(1))
    assert np.isfinite(np.asarray(infos["loss"])).all()
    shifted = Augmented(inner, Augmentation(IMAGE, 1, True))
    _, others = run(shifted.algorithm(30, 5), model, batch, 3, key=jax.random.key(1))
    assert not np.array_equal(infos["loss"], others["loss"])


def test_what_depends_on_the_run_is_the_methods_own():
    inner = make_method("novi")
    method = Augmented(inner, Augmentation(IMAGE, 1, False))
    model = conv_model()
    for rows in (100, 10_000):
        assert method.keeps_snapshots(rows) == inner.keeps_snapshots(rows)
        assert method.budget(model, rows) == inner.budget(model, rows)
    assert inner.budget(model, 100) != make_method("dsvi").budget(model, 100)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_convolutional_layers(method):
    """Traced and not run: the state keeps its form, and draws have the model's shapes."""
    model, batch = conv_model(likelihood="softmax", num_classes=3), Batch(jnp.asarray(X), jnp.zeros((30, 1)))
    inference, key = prepare(make_method(method), 30, 10), jax.random.key(0)
    state = jax.eval_shape(lambda key: inference.init(model, batch, key=key), key)
    after, info = jax.eval_shape(lambda s, key: inference.step(s, batch, key=key), state, key)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert [a.shape for a in jax.tree.leaves(after)] == [a.shape for a in jax.tree.leaves(state)]
    assert "loss" in info
    fitted = jax.eval_shape(inference.fitted, state)
    moments = jax.eval_shape(lambda f, key: f.posterior.propagate(f.model, batch.x, 7, key=key), fitted, key)
    assert moments.mean.shape == (7, 30, 3)
