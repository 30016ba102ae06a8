"""Compiled programs are forgotten before the process runs out of memory maps."""

import jax
import jax.numpy as jnp
import pytest

from novidgp.training import memory


@pytest.mark.skipif(not memory._MAPS.exists(), reason="memory maps are counted on Linux only")
def test_programs_are_forgotten_before_memory_maps_run_out(monkeypatch):
    """Those compiled here, some hundred maps, are gone once there are more than allowed, and not before."""
    keep = [jax.jit(lambda x, n=n: jnp.sin(x) @ jnp.cos(x.T) + n) for n in range(30)]
    for function in keep:
        function(jnp.ones((3, 3)))
    held = memory._MAPS.read_bytes().count(b"\n")
    monkeypatch.setattr(memory, "_MOST_MAPS", held + 100)
    memory.release_programs()
    assert [function._cache_size() for function in keep] == [1] * 30
    monkeypatch.setattr(memory, "_MOST_MAPS", held - 100)
    memory.release_programs()
    assert [function._cache_size() for function in keep] == [0] * 30
    assert memory._MAPS.read_bytes().count(b"\n") < held
