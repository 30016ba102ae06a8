"""Fixed features of inputs: what `features=` of the estimators takes besides a trained network.

Any object with `transform` and any function will do. Three of them are here.
"""

from novidgp.features.onnx import OnnxFeatures
from novidgp.features.patches import PatchFeatures
from novidgp.features.resnet import CifarResNet

__all__ = ["CifarResNet", "OnnxFeatures", "PatchFeatures"]
