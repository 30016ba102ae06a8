"""Benchmarks: suites of fits, the runner, result files, tables and the report."""
