"""Numerical routines that know nothing of Gaussian processes' models."""
