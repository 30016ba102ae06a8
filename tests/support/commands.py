"""The commands, run in process on a small table of houses."""

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from novidgp.cli import app

SMALL = ["--steps", "4", "--inducing", "5", "--hidden", "1", "--seed", "1"]
"""One small shape for all fits, so that few programs are compiled."""


def run(*arguments, code=0):
    """Run a command that must end with the exit code `code`."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def refused(*arguments):
    """Run a command that must fail; its one line of error."""
    result = run(*arguments, code=1)
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def houses():
    """Sixty houses with numbers, text and true/false, and their price."""
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": generator.uniform(20, 200, 60).round(1),
            "city": generator.choice(["Ghent", "Bruges", "Namur"], 60),
            "garden": generator.random(60) > 0.5,
        }
    )
    price = 3 * frame["size"] + frame["city"].map({"Ghent": 50, "Bruges": 20, "Namur": 0})
    frame["price"] = (price + 10 * generator.normal(size=60)).round(1)
    return frame
