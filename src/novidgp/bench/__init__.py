"""Benchmarks: how methods are compared, and on which rows."""
