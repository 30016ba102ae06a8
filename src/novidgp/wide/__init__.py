"""A wide last layer for classes: solved once more after training, with many more inducing points."""
