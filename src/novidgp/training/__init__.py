"""The training loop, and what happens between its chunks."""

from novidgp.training.loop import Callback, FitResult, Progress, fit

__all__ = ["Callback", "FitResult", "Progress", "fit"]
