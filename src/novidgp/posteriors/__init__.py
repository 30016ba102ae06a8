"""Distributions over inducing outputs."""
