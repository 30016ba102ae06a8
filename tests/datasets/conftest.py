"""Every test here has a cache directory of its own."""

import pytest

from support.data_fixtures import cache, expect  # noqa: F401


@pytest.fixture(autouse=True)
def _own_cache(cache):  # noqa: F811
    pass
