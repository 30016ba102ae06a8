"""The digest of the code that a result depends on."""

import pytest

from novidgp.bench.worker import PACKAGE, ROOMS, source_digest


@pytest.fixture
def package(tmp_path):
    """A small package with a module in every room, one of them nested."""
    for name in (*ROOMS, "inference/novi", "cli"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text(f"name = {name!r}")
    return tmp_path


@pytest.mark.parametrize("room", [*ROOMS, "inference/novi"])
def test_a_change_in_any_room_changes_the_digest(package, room):
    before = source_digest(package)
    (package / room / "module.py").write_text("changed = True")
    assert source_digest(package) != before


def test_moving_a_module_changes_the_digest(package):
    before = source_digest(package)
    (package / "inference" / "module.py").rename(package / "inference" / "other.py")
    assert source_digest(package) != before


def test_a_change_of_a_command_does_not(package):
    before = source_digest(package)
    (package / "cli" / "module.py").write_text("changed = True")
    assert source_digest(package) == before


def test_the_rooms_are_packages_of_this_library():
    assert all((PACKAGE / room / "__init__.py").is_file() for room in ROOMS)
