"""The estimators' compilation cache: where it is, and what keeps it from being used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from novidgp.numerics import compilation


@pytest.mark.parametrize("value", ["off", "OFF", "0", "no", "false"])
def test_it_can_be_switched_off(monkeypatch, value):
    monkeypatch.setenv("NOVIDGP_CACHE", value)
    assert compilation.cache_directory() is None


def test_it_is_in_the_users_cache_directory_unless_moved(monkeypatch):
    monkeypatch.delenv("NOVIDGP_CACHE")
    assert compilation.cache_directory() == platformdirs.user_cache_path("novidgp") / "jax"
    monkeypatch.setenv("NOVIDGP_CACHE", "~/programs")
    assert compilation.cache_directory() == Path.home() / "programs"


_USE = """
import json, os, sys
import jax
from novidgp.numerics.compilation import use_compilation_cache

use = use_compilation_cache.__wrapped__
found = {}
for name, value in json.loads(sys.argv[1]).items():
    os.environ["NOVIDGP_CACHE"] = value
    use()
    found[name] = jax.config.jax_compilation_cache_dir
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.jit(lambda x: x + 1)(1.0)
print(json.dumps(found))
"""


def test_it_is_used_where_it_can_be(tmp_path):
    """In a process of its own, one case after another; the first directory that works is kept."""
    blocked = tmp_path / "a file"
    blocked.write_text("")
    first, second = tmp_path / "new" / "cache", tmp_path / "second"
    cases = {"off": "off", "blocked": str(blocked / "cache"), "used": str(first), "given": str(second)}
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "NOVIDGP_"))}
    command = [sys.executable, "-c", _USE, json.dumps(cases)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found == {"off": None, "blocked": None, "used": str(first), "given": str(first)}
    assert any(first.iterdir())  # the program was written there
    assert not second.exists()
    assert blocked.read_text() == ""
