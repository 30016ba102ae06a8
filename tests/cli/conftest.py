"""Fixtures of the commands' tests."""

from support.data_fixtures import cache, expect  # noqa: F401
