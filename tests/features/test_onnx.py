"""Features from an ONNX file, where onnxruntime is installed: a network of one product."""

import sys

import numpy as np
import pytest

from novidgp.features import OnnxFeatures
from novidgp.features.fingerprints import fingerprint

WEIGHT = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture
def network(tmp_path):
    """`features = rows @ WEIGHT` with a free batch axis."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper = onnx.helper
    rows, outputs = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", width])
        for name, width in (("rows", 3), ("features", 2))
    )
    weight = helper.make_tensor("weight", onnx.TensorProto.FLOAT, WEIGHT.shape, WEIGHT.ravel())
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["rows", "weight"], ["features"])], "product", [rows], [outputs], [weight]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = tmp_path / "product.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_features_are_the_networks_output_in_blocks(network):
    X = np.random.default_rng(0).standard_normal((7, 3))
    features = OnnxFeatures(network, batch_size=3).fit(X)
    np.testing.assert_allclose(features.transform(X), X @ WEIGHT, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"X has shape \(7, 2\)"):
        features.transform(X[:, :2])
    with pytest.raises(ValueError, match=r"output='logits' is none of the outputs.*features"):
        OnnxFeatures(network, output="logits").transform(X)


def test_the_fingerprint_is_of_the_contents(tmp_path):
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    for path in (first, second):
        path.write_bytes(b"network")
    assert fingerprint(OnnxFeatures(first)) == fingerprint(OnnxFeatures(second, batch_size=8))
    assert fingerprint(OnnxFeatures(first)) != fingerprint(OnnxFeatures(first, output="other"))
    second.write_bytes(b"another")
    assert fingerprint(OnnxFeatures(first)) != fingerprint(OnnxFeatures(second))


def test_a_missing_runtime_and_a_missing_file_are_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"pip install 'novidgp\[onnx\]'"):
        OnnxFeatures(tmp_path / "absent.onnx").fit()
    monkeypatch.setitem(sys.modules, "onnxruntime", object())
    with pytest.raises(FileNotFoundError, match="Check path"):
        OnnxFeatures(tmp_path / "absent.onnx").fit()
