"""Lists in options: names and numbers between commas."""

from collections.abc import Iterable


def parse_numbers(text: str) -> tuple[int, ...]:
    """`2,3` and `0-4` as numbers."""
    numbers: list[int] = []
    for part in _parts(text):
        first, dash, last = part.partition("-")
        try:
            numbers += range(int(first), int(last) + 1) if dash else [int(part)]
        except ValueError:
            raise ValueError(f"{text!r} is not a list of numbers such as 2,3 or 0-4.") from None
    return tuple(dict.fromkeys(numbers))


def parse_splits(text: str) -> tuple[int, ...]:
    """`3` as the splits 0, 1, 2; `0-4` and `0,2` as they stand."""
    if text.strip().isdigit():
        count = int(text)
        if count < 1:
            raise ValueError(f"splits={count} must be at least 1.")
        return tuple(range(count))
    return parse_numbers(text)


def parse_names(text: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(_parts(text))


def _parts(text: str) -> Iterable[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
