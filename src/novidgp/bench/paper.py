"""The numbers the paper prints (Xu et al., Neural operator variational inference, TNNLS 2024)."""

import json
import re
from functools import cache
from importlib import resources
from typing import NamedTuple


class Printed(NamedTuple):
    """A number of the paper, and the deviation printed in brackets after it, if there is one."""

    mean: float
    sd: float | None

    def text(self, score: str) -> str:
        """The number as the paper writes it."""
        if score == "accuracy":
            return f"{100 * self.mean:.2f}"
        fine = score == "seconds_per_step" or any(v is not None and round(v, 2) != v for v in self)
        digits = 3 if fine else 2
        return f"{self.mean:.{digits}f}" + ("" if self.sd is None else f" ({self.sd:.{digits}f})")


@cache
def _rows() -> dict[tuple[str, str, str, int | None], dict[str, Printed]]:
    text = resources.files("novidgp.bench").joinpath("paper.json").read_text()
    found: dict[tuple[str, str, str, int | None], dict[str, Printed]] = {}
    for suite, dataset, method, layers, score, mean, sd in json.loads(text)["rows"]:
        found.setdefault((suite, dataset, method, layers), {})[score] = Printed(mean, sd)
    return found


def printed(suite: str | None, dataset: str, method: str, layers: int | None) -> dict[str, Printed]:
    """What the paper prints for a row of a suite's table, by score; empty if it has no such row."""
    return _rows().get((suite or "", dataset, without_steps(method), layers), {})


def without_steps(method: str) -> str:
    """A label without its number of steps: the paper has its own numbers of steps."""
    return re.sub(r", \d+ steps$", "", method)


def printed_methods(suite: str | None, dataset: str, layers: int | None) -> list[str]:
    """The methods the paper has at this place of the table."""
    return [key[2] for key in _rows() if (key[0], key[1], key[3]) == (suite, dataset, layers)]
