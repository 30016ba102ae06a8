"""Images as inputs of the estimators: any type, one shape, convolutional or dense layers, files."""

import functools
import json

import numpy as np
import pytest

import novidgp
from novidgp import DGPClassifier, DGPRegressor, storage
from novidgp.estimators import arrays as estimator_module
from novidgp.estimators.images import read_images
from novidgp.numerics.scaling import channel_standardiser, standardiser
from novidgp.storage import ModelFileError

ROWS, SIDE = 24, 6
SMALL = {"inference": "dsvi", "num_inducing": 5, "max_steps": 3, "num_predict_samples": 3, "random_state": 0}
CONV = SMALL | {"layers": "conv"}


def pictures(channels=None):
    """Bytes: a bright row at one of three heights, on noise."""
    rng = np.random.default_rng(0)
    shape = (ROWS, SIDE, SIDE) if channels is None else (ROWS, SIDE, SIDE, channels)
    X, y = rng.integers(0, 100, shape), np.arange(ROWS) % 3
    X[np.arange(ROWS), 1 + 2 * (y // 2)] += 120
    return X.astype(np.uint8), y


@functools.cache
def fitted(dtype="uint8"):
    """One model for most tests; other types of pixels run the same compiled program."""
    X, y = pictures()
    return DGPClassifier(**CONV).fit(X.astype(dtype), y)


@pytest.fixture
def nothing_is_trained(monkeypatch):
    """What reaches the trainer has passed the checks."""

    class ReachedError(Exception):
        pass

    def fit(model, method, data, **options):
        raise ReachedError(model, method, data)

    monkeypatch.setattr(estimator_module, "fit", fit)
    return ReachedError


def test_bytes_and_floats_give_the_same_model():
    X, _ = pictures()
    expected = fitted().predict_proba(X)
    assert expected.shape == (ROWS, 3)
    np.testing.assert_allclose(expected.sum(1), 1.0)
    np.testing.assert_array_equal(fitted("float64").predict_proba(X.astype(np.float32)), expected)
    np.testing.assert_array_equal(fitted().predict_proba(list(X)), expected)
    np.testing.assert_array_equal(fitted().predict_proba(X[..., None]), expected)
    np.testing.assert_array_equal(fitted().predict_proba(X.tolist()), expected)


def test_a_file_keeps_the_shape_and_the_layers(tmp_path):
    X, _ = pictures()
    fitted().save(tmp_path / "model.novidgp")
    loaded = novidgp.load_model(tmp_path / "model.novidgp")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted().predict_proba(X))
    assert loaded.image_shape_ == (SIDE, SIDE, 1)
    assert loaded.layers == "conv"
    assert [layer["kind"] for layer in loaded.config_.layers] == ["conv", "sum"]
    with pytest.raises(ValueError, match="images of 5 x 6; the model was fitted to 6 x 6"):
        loaded.predict(X[:, :5])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": [6, 7, 1]}, "image does not match"),
        ({"layers": [{"kind": "conv", "size": 2}, {"kind": "sum", "size": 3}]}, "layers does not match"),
        ({"layers": [{"kind": "sum", "size": 3}]}, "layers do not match"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(change, message, tmp_path):
    fitted().save(tmp_path / "model.novidgp")
    arrays, metadata = storage.load(tmp_path / "model.novidgp")
    metadata = json.loads(json.dumps(metadata))
    metadata["config"] |= change
    storage.save(tmp_path / "model.novidgp", arrays, metadata)
    with pytest.raises(ModelFileError, match=message):
        novidgp.load_model(tmp_path / "model.novidgp")


def test_a_class_may_be_absent():
    X, y = pictures()
    model = DGPClassifier(**CONV).fit(X, np.where(y == 1, 0, y))
    assert model.classes_.tolist() == [0, 2]
    assert model.predict_proba(X).shape == (ROWS, 2)


def test_a_regression_of_images_by_novi_with_augmentation():
    """The last layer, a sum over patches, is solved for in closed form."""
    X, y = pictures(channels=2)
    settings = SMALL | {"inference": "novi", "layers": "conv", "augment": "shift+flip", "batch_size": 10}
    model = DGPRegressor(**settings | {"max_steps": 4}).fit(X, y + 0.5)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.all(std > 0)
    assert model.method_.name == "novi"
    assert model.method_.num_samples == 2
    assert model.local_ is None


def test_steps_and_draws_are_few_where_nothing_is_said(nothing_is_trained):
    with pytest.raises(nothing_is_trained) as caught:
        DGPClassifier(layers="conv", num_inducing=5, augment="flip").fit(*pictures())
    _, method, _ = caught.value.args
    assert method.augmentation.flip
    assert method.method.num_samples == 2
    with pytest.raises(nothing_is_trained) as caught:
        DGPClassifier(layers="conv", num_inducing=5, inference_options={"num_samples": 7}).fit(*pictures())
    assert caught.value.args[1].num_samples == 7


def test_dense_layers_share_a_kernel_and_see_the_channels_scale(nothing_is_trained):
    X, y = pictures(channels=3)
    X[..., 2] = 7
    with pytest.raises(nothing_is_trained) as caught:
        DGPClassifier(**SMALL).fit(X, y)
    model, _, data = caught.value.args
    assert model.layers[0].inducing.shape == (1, 5, 3 * SIDE**2)
    pixels = np.asarray(data.x)[:ROWS].reshape(-1, 3)
    np.testing.assert_allclose(pixels[:, :2].mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(pixels[:, :2].std(0), 1.0, rtol=1e-5)
    assert not pixels[:, 2].any()  # a constant channel


def test_channels_are_scaled_as_columns_of_pixels():
    X = pictures(channels=2)[0].astype(float)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, (ROWS, 1))
    for w in (None, weight):
        ours = channel_standardiser(X.reshape(ROWS, -1), 2, w)
        repeated = None if w is None else np.repeat(w, SIDE**2, axis=0)
        expected = standardiser(X.reshape(-1, 2), repeated)
        np.testing.assert_allclose(ours.shift, np.tile(expected.shift, SIDE**2), rtol=1e-12)
        np.testing.assert_allclose(ours.scale, np.tile(expected.scale, SIDE**2), rtol=1e-12)


def test_layers_of_a_list_have_a_number_of_inducing_patches_each(nothing_is_trained):
    X, y = pictures(channels=3)
    layers = [
        {"kind": "conv", "size": 2, "maps": 4, "pool": 2},
        {"kind": "sum", "size": 2, "location": False},
    ]
    with pytest.raises(nothing_is_trained) as caught:
        DGPClassifier(**SMALL | {"num_inducing": (7, 9)}, layers=layers).fit(X, y)
    first, last = caught.value.args[0].layers
    assert first.inducing.shape == (1, 7, 12)
    assert first.image == (2, 2, 4)
    assert last.inducing.shape == (1, 9, 16)
    assert last.patches.count == 1


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (32, 32, 3), (70, 50, 3)])
def test_the_preset_fits_images_of_any_size(num_layers, shape, nothing_is_trained):
    X = np.random.default_rng(0).random((4, *shape))
    with pytest.raises(nothing_is_trained) as caught:
        DGPClassifier(layers="conv", num_layers=num_layers, num_inducing=20).fit(X, [0, 1, 2, 1])
    layers = caught.value.args[0].layers
    assert [layer.num_inducing for layer in layers] == [20] * num_layers  # patches, more than images
    assert 4 <= layers[-1].patches.count <= 400


X, Y = pictures()
COLOUR = pictures(channels=3)[0]


@pytest.mark.parametrize(
    ("parameters", "inputs", "message"),
    [
        ({}, X[:, :, :, None, None], r"shape \(24, 6, 6, 1, 1\); images are \(rows, height, width\)"),
        ({}, X.astype(complex), "X holds complex128; the pixels"),
        ({}, X.astype(str), "X holds <U3; the pixels"),
        ({}, np.where(X.max() == X, np.nan, X), "NaN or infinity in image"),
        ({}, X[:1], "two images or more"),
        ({}, X[:, :0], "without a single pixel"),
        (
            {},
            [*COLOUR[:5], X[0], *COLOUR[6:]],
            r"X\[5\] has shape \(6, 6\) and X\[0\] \(6, 6, 3\).*np.repeat",
        ),
        ({"layers": "convs"}, X, "Did you mean 'conv'"),
        ({"layers": [{"kind": "conv"}]}, X, r"layers\[0\] is of the kind 'conv'; the last layer is a 'sum'"),
        (
            {"layers": [{"kind": "sum", "sise": 2}]},
            X,
            r"layers\[0\] key='sise' is unknown. Did you mean 'size'",
        ),
        ({"layers": [{"kind": "sum", "size": 0}]}, X, r"layers\[0\]\['size'\]"),
        ({"layers": [{"size": 3}]}, X, r"layers\[0\] must be a dict with a 'kind'"),
        ({"layers": 3}, X, "layers must be None, 'conv' or a list"),
        ({"layers": [{"kind": "sum", "size": 7}]}, X, r"patches of 7 x 7 do not fit into images of 6 x 6"),
        (
            {"layers": [{"kind": "conv", "size": 5, "pool": 3}, {"kind": "sum"}]},
            X,
            "2 x 2 patches and pool=3",
        ),
        ({"layers": "conv"}, X.reshape(ROWS, -1), "layers='conv' is for images; pass X as"),
        ({"augment": "flip"}, X.reshape(ROWS, -1), "augment='flip' is for images"),
        ({"augment": "flop"}, X, "Did you mean 'flip'"),
        ({"layers": "conv", "features": "mlp"}, X, "features='mlp' has no place beside convolutional"),
        ({"layers": "conv", "latent_dim": 1}, X, "latent_dim=1 has no place"),
        ({"layers": "conv", "kernel_sharing": "separate"}, X, "kernel_sharing='separate' has no place"),
        ({"layers": "conv", "local": True}, X, "local=True has no place"),
        ({"layers": "conv", "num_inducing": (5, 5, 5)}, X, "has 3 numbers and num_layers=2"),
    ],
)
def test_bad_images_and_layers_are_refused(parameters, inputs, message, nothing_is_trained):
    with pytest.raises((ValueError, TypeError), match=message):
        DGPClassifier(**SMALL | parameters).fit(inputs, Y[: len(inputs)])


def test_too_many_patches_to_compare_are_refused():
    with pytest.raises(ValueError, match=r"sums over 3600 patches.*larger 'stride'"):
        DGPClassifier(layers=[{"kind": "sum"}]).fit(np.zeros((4, 64, 64)), [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            X.reshape(ROWS, -1),
            r"shape \(24, 36\); the model was fitted to images of 6 x 6. Rows of pixels are",
        ),
        (X[0], r"One image is X\[None\]"),
        (COLOUR, "images of 6 x 6 with 3 channels; the model was fitted to 6 x 6. Bring them to that"),
    ],
)
def test_other_shapes_are_refused_at_prediction(inputs, message):
    with pytest.raises(ValueError, match=message):
        fitted().predict(inputs)


def test_images_in_an_array_of_objects_are_images():
    images = np.empty(ROWS, object)
    images[:] = list(X)
    np.testing.assert_array_equal(fitted().predict(images), fitted().predict(X))
    images[3] = COLOUR[3]
    with pytest.raises(
        ValueError, match=r"X\[3\] has shape \(6, 6, 3\) and X\[0\] \(6, 6\); make all images"
    ):
        fitted().predict(images)


def test_a_model_of_tables_refuses_images():
    model = DGPClassifier(**SMALL | {"num_layers": 1}).fit(X.reshape(ROWS, -1)[:, :3], Y)
    with pytest.raises(ValueError, match=r"shape \(24, 6, 6\); the model was fitted to tables of 3 columns"):
        model.predict(X)


def test_true_and_false_are_pixels():
    flat, shape = read_images(X > 100)
    assert flat.dtype == np.uint8
    assert shape == (SIDE, SIDE, 1)


# --- what a model is made of --------------------------------------------------------------------------


def test_the_summary_of_a_convolutional_model(capsys):
    fitted().summary()
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0] == "DGPClassifier, finished after 3 steps"
    first = next(line for line in lines if line.startswith("conv"))
    assert first.split("  ")[0] == "conv 3 x 3, 16 patches, rq"
    assert "4 x 4 with 10 channels" in first
    assert "5 x 9" in first
    last = next(line for line in lines if line.startswith("sum"))
    assert "sum 3 x 3, 4 patches, rq with places" in last
    assert "5 x 92" in last
    total = sum(leaf.size for layer in fitted().model_.layers for leaf in _leaves(layer))
    assert f"parameters: {total:,} of the model" in text
    assert "inference: dsvi" in text
    assert "24 rows" in text
    assert "no training row is in the model" in text


def _leaves(tree):
    import jax

    return jax.tree.leaves(tree)


def test_the_summary_before_a_fit(capsys):
    DGPRegressor(num_layers=3, num_inducing=(5, 6, 7), kernel="rbf").summary()
    text = capsys.readouterr().out
    assert "not fitted" in text
    assert "3 dense, inducing points: 5, 6, 7, kernel: rbf" in text
    DGPRegressor(layers=[{"kind": "sum"}]).summary()
    text = capsys.readouterr().out
    assert "1 convolutional" in text
    assert "  kind sum, size 5, stride 1, location True" in text
