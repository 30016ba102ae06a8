"""scikit-learn estimators."""

from novidgp.estimators.classifier import DGPClassifier
from novidgp.estimators.regressor import DGPRegressor
from novidgp.estimators.saving import load_model

__all__ = ["DGPClassifier", "DGPRegressor", "load_model"]
