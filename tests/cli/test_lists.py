"""Lists in options."""

import pytest

from novidgp.cli.lists import parse_names, parse_numbers, parse_splits


def test_splits_and_numbers_are_read_as_people_write_them():
    assert parse_splits("3") == (0, 1, 2)
    assert parse_splits("2-4") == (2, 3, 4)
    assert parse_splits("0,2") == (0, 2)
    assert parse_numbers("2,4-5") == (2, 4, 5)
    assert parse_names("a, b") == ("a", "b")
    for text in ("x", "1-", "2;3"):
        with pytest.raises(ValueError, match="not a list of numbers"):
            parse_numbers(text)
    with pytest.raises(ValueError, match="at least 1"):
        parse_splits("0")
