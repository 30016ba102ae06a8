"""A campaign against the library: odd data, damaged files, hostile tables, kills and signals.

It is not part of the tests: it takes hours in full. Every part counts what was refused with a message, what
worked, and what failed; failures are printed as they come, with what is needed to repeat them. The last line
is one JSON object of counts.

    python benchmarks/campaign.py                              # everything
    python benchmarks/campaign.py --only files tables          # some parts
    python benchmarks/campaign.py --only fits --count 50 --first 200
    python benchmarks/campaign.py --only kills --pace 4        # where a busy machine starts programs slowly
"""

import argparse
import collections
import functools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # many programs, few steps of each

import numpy as np

COUNTS = {"fits": 1000, "files": 10_000, "tables": 300, "kills": 200}
METHODS = ("novi", "novi-paper", "dsvi", "sghmc", "ipvi", "iwvi", "iwvi-dreg", "ml")
WIDTHS, ROWS = (1, 3, 50), ((2, 64), (257, 300))
"""Few shapes, so that few programs are compiled: rows are padded to multiples of 64."""
SMALL = {"num_inducing": 2, "max_steps": 4, "num_predict_samples": 5, "dtype": "float32"}
SECONDS = 60.0
Tally = collections.Counter[str]


def report(part, number, what):
    print(f"FAILURE {part} {number}: {what}", flush=True)


# --- fits -------------------------------------------------------------------------------------------------


def odd_inputs(rng, rows, width):
    """Columns of all kinds: normal, heavy tails, constant, integers, twins, outliers, of any scale."""
    columns = []
    for _ in range(width):
        kind = rng.integers(7)
        column = rng.standard_normal(rows)
        if kind == 1:
            column = rng.standard_cauchy(rows)
        elif kind == 2:
            column = np.full(rows, rng.standard_normal())
        elif kind == 3:
            column = rng.integers(0, 4, rows).astype(float)
        elif kind == 4 and columns:
            column = columns[rng.integers(len(columns))] * (1.0 if rng.random() < 0.5 else 1.0 + 1e-12)
        elif kind == 5:
            column[rng.integers(rows)] *= 1e9
        columns.append(column * 10.0 ** rng.integers(-12, 13) + (kind == 6) * 10.0 ** rng.integers(0, 13))
    return np.column_stack(columns)


def odd_targets(rng, X):
    with np.errstate(all="ignore"):
        spread = X.std(0)
        signal_ = np.sin((X[:, 0] - X[:, 0].mean()) / (spread[0] or 1.0))
    y = signal_ + 0.1 * (rng.standard_cauchy(len(X)) if rng.random() < 0.3 else rng.standard_normal(len(X)))
    return y * 10.0 ** rng.integers(-12, 13) + (rng.random() < 0.2) * 1e6


def fits(first, count):
    """Small fits of all methods to odd data: finite predictions, or a refusal in words."""
    from novidgp import DGPClassifier, DGPRegressor

    tally = Tally()
    shapes = [(m, w, r) for m in METHODS for w in WIDTHS for r in ROWS]
    for number in range(first, first + count):
        rng = np.random.default_rng(number)
        method, width, (least, most) = shapes[(number - first) * len(shapes) // count]
        X = odd_inputs(rng, int(rng.integers(least, most + 1)), width)
        y = odd_targets(rng, X)
        classes = method == "dsvi" and number % 4 == 0
        settings = SMALL | {"inference": method, "num_layers": 1 + (number % 2 and width < 50)}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kind = DGPClassifier if classes else DGPRegressor
                model: Any = kind(**settings, random_state=number)
                model.fit(X, y > np.median(y) if classes else y)
                if classes:
                    values = [model.predict_proba(X)]
                else:
                    mean, std = model.predict(X, return_std=True)
                    values = [mean, std, np.log(std), model.log_density(X, y)]
            if not all(np.isfinite(value).all() for value in values):
                report("fits", number, f"{method} {X.shape}: predictions are not finite")
                tally["failed"] += 1
            tally["diverged" if model.fit_status_ == "diverged" else "worked"] += 1
        except (ValueError, TypeError) as error:
            tally["refused"] += 1
            if len(str(error)) < 20:
                report("fits", number, f"a refusal without reason: {error!r}")
        except Exception:
            tally["failed"] += 1
            report("fits", number, f"{method} {X.shape}\n{traceback.format_exc()}")
    return tally


# --- files ------------------------------------------------------------------------------------------------


def damaged(content, chance):
    """Bytes changed, cut, doubled, inserted or zeroed."""
    data = bytearray(content)
    kind = chance.randrange(5)
    place = chance.randrange(len(data) if chance.random() < 0.5 else min(len(data), 3000))
    size = chance.choice((1, 1, 2, 8, 100))
    if kind == 0:
        data[place] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del data[place:]
    elif kind == 2:
        data[place:place] = data[place : place + size]
    elif kind == 3:
        data[place:place] = chance.randbytes(size)
    else:
        data[place : place + size] = bytes(len(data[place : place + size]))
    return bytes(data)


NUMBERS = (-1, 0, 1, 3, 10**6, 10**12, 2**70, 0.5, 1e300)
VALUES = (None, True, *NUMBERS, "", "novi", "x" * 1000, [], [1], {}, {"a": 1})


def forge(metadata, chance):
    """Change one entry of the metadata, at any depth, to another kind of value or remove it."""
    place = metadata
    while True:
        name = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
        inner = place[name]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.8:
            place = inner
            continue
        if isinstance(place, dict) and chance.random() < 0.1:
            del place[name]
        else:
            place[name] = chance.choice(VALUES)
        return


def poison(arrays, chance):
    """Give one array other values, another shape or another type."""
    name = chance.choice(list(arrays))
    array = arrays[name]
    change = chance.randrange(5)
    if change == 0:
        arrays[name] = np.full_like(array, chance.choice((0, -1, 1)))
    elif change == 1 and array.dtype.kind == "f":
        arrays[name] = np.full_like(array, chance.choice((np.nan, np.inf, -np.inf, 1e30)))
    elif change == 2:
        arrays[name] = array.reshape(-1)[: chance.randrange(array.size + 1)]
    elif change == 3:
        arrays[name] = array.astype(chance.choice((np.float64, np.float32, np.int64, np.int8)))
    else:
        del arrays[name]


def files(first, count):
    """Damaged and forged model files and checkpoints: refused as such, or as good as the original."""
    import copy
    import resource

    import jax

    import novidgp
    from novidgp import storage

    resource.setrlimit(resource.RLIMIT_AS, (24 * 2**30, 24 * 2**30))
    tally = Tally()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    y = np.sin(X[:, 0])
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("regressor", "classifier", "checkpoint")]
        small = SMALL | {"inference": "dsvi", "num_layers": 1, "random_state": 0}
        novidgp.DGPRegressor(**small, checkpoint=paths[2]).fit(X, y).save(paths[0])
        novidgp.DGPClassifier(**small).fit(X, y > 0).save(paths[1])
        originals = [(path.read_bytes(), storage.load(path)) for path in paths]
        target = Path(folder, "target")

        def use(kind):
            """Load the file and use it; for a checkpoint, resume from it."""
            if kind == 2:
                return novidgp.DGPRegressor(**small, checkpoint=target).fit(X, y).predict(X)
            model: Any = novidgp.load_model(target)
            return model.predict(X) if kind == 0 else model.predict_proba(X)

        for number in range(first, first + count):
            chance = random.Random(number)
            kind = 2 if number % 50 == 0 else number % 2
            content, (arrays, metadata) = originals[kind]
            forged = number % 5 == 0
            if forged:
                arrays, metadata = dict(arrays), copy.deepcopy(metadata)
                if chance.random() < 0.7:
                    forge(metadata, chance)
                else:
                    poison(arrays, chance)
                storage.save(target, arrays, metadata)
            else:
                target.write_bytes(damaged(content, chance))
            start = time.monotonic()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    if forged:
                        values = use(kind)
                    else:
                        found = storage.load(target)
                        same = found[1] == metadata and all(
                            np.array_equal(found[0][k], arrays[k]) for k in arrays
                        )
                        values = np.zeros(1) if same else np.array([np.nan])
                good = np.isfinite(values).all()
                tally["used" if good else "failed"] += 1
                if not good:
                    report("files", number, "a damaged file was loaded" if not forged else "bad predictions")
            except storage.ModelFileError as error:
                named = str(target) in str(error)
                tally["refused" if named else "failed"] += 1
                if not named:
                    report("files", number, f"a refusal that does not name the file: {error}")
            except (ValueError, TypeError) as error:
                tally["refused in use" if forged else "failed"] += 1
                if not forged:
                    report("files", number, repr(error))
            except Exception:
                tally["failed"] += 1
                report("files", number, traceback.format_exc())
            if time.monotonic() - start > SECONDS:
                report("files", number, f"took {time.monotonic() - start:.0f} s")
            if number % 500 == 499:
                jax.clear_caches()
    return tally


# --- tables -----------------------------------------------------------------------------------------------


def hostile_table(chance):
    """The text of a table that somebody might have, or might have made to hurt."""
    rows, width = chance.choice((0, 1, 3, 30, 30, 30)), chance.choice((1, 2, 3, 4))
    separator = chance.choice(",,,,,,,,;\t|")
    odd = ("x", "y", "a b", "", "é", "0", "x", '"q"', "=1+1", "y ")
    names = [chance.choice(odd) + str(i or "") for i in range(width)]
    names[-1] = "y"
    cells = (
        lambda: f"{chance.gauss(0, 1):.3f}",
        lambda: f"{chance.gauss(0, 1):.3f}".replace(".", ","),
        lambda: chance.choice(("red", "blue", "green")),
        lambda: chance.choice(("", "NA", "nan", "null", "1")),
        lambda: chance.choice(("inf", "-inf", "1e400", "9" * 400, "1")),
        lambda: f"{chance.randrange(1, 29):02d}/{chance.randrange(1, 13):02d}/2026",
        lambda: chance.choice(("TRUE", "FALSE")),
        lambda: str(chance.randrange(10**18)),
        lambda: "7",
        lambda: chance.choice(("$1,500.00", "5.0 pts", "12%", "1.2")),
        lambda: chance.choice(("\x00", "\ufeff1", "'1'", '"unclosed', "1")),
    )
    kinds = [chance.choice((*cells[:1] * 10, *cells)) for _ in names]
    lines = [separator.join(names)]
    for _ in range(rows):
        line = [kind() for kind in kinds]
        if chance.random() < 0.02:
            line = line[:-1] if chance.random() < 0.5 else [*line, "extra"]
        lines.append(separator.join(line))
    text = chance.choice(("\n", "\n", "\r\n", "\r")).join(lines) + chance.choice(("", "\n", "\n\n"))
    return text.encode(chance.choice((*["utf-8"] * 6, "utf-16", "latin-1")), "replace")


def tables(first, count):
    """Hostile tables through `novidgp fit`: a model that predicts, or one line of refusal."""
    from typer.testing import CliRunner

    from novidgp.cli import app

    tally = Tally()
    options = ["--inference", "dsvi", "--layers", "1", "--inducing", "2", "--steps", "1"]
    with tempfile.TemporaryDirectory() as folder:
        table, model = Path(folder, "t.csv"), Path(folder, "m.novidgp")
        for number in range(first, first + count):
            chance = random.Random(number)
            content = hostile_table(chance)
            content = damaged(content, chance) if chance.random() < 0.2 else content
            table.write_bytes(content)
            model.unlink(missing_ok=True)
            start = time.monotonic()
            result = CliRunner().invoke(app, ["fit", str(table), "-t", "y", "-o", str(model), *options])
            errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
            crashed = result.exception is not None and not isinstance(result.exception, SystemExit)
            if result.exit_code == 0 and model.exists():
                tally["fitted"] += 1
            elif result.exit_code == 1 and len(errors) == 1 and not crashed and not model.exists():
                tally["refused"] += 1
            else:
                tally["failed"] += 1
                report(
                    "tables", number, f"exit {result.exit_code}: {result.output[-500:]} {result.exception!r}"
                )
            if time.monotonic() - start > SECONDS:
                report("tables", number, f"took {time.monotonic() - start:.0f} s")
    return tally


# --- kills and signals ------------------------------------------------------------------------------------

LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
COMMAND = LISTEN + "from novidgp.cli import app; app()"
SAVING = (
    LISTEN
    + """
import sys
from novidgp import load_model
model = load_model(sys.argv[1])
print("ready", flush=True)
while True:
    model.save(sys.argv[2])
"""
)


def kills(first, count, pace=1.0):
    """`kill -9` and Ctrl-C at random moments: whole files or none, and the right exit code.

    The moments are in the first ten seconds of a process, times `pace`.
    """
    import novidgp
    from novidgp import storage
    from novidgp.bench.results import read_records

    tally = Tally()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        X = np.random.default_rng(0).standard_normal((60, 2))
        table, base = folder / "t.csv", folder / "base.novidgp"
        lines = ["a,b,y", *(f"{a},{b},{np.sin(a) + b}" for a, b in X)]
        table.write_text("\n".join(lines))
        small = SMALL | {"inference": "dsvi", "num_layers": 1}
        novidgp.DGPRegressor(**small).fit(X, X[:, 0]).save(base)
        model, run, results = folder / "m.novidgp", folder / "run", folder / "results"
        fit = ["fit", table, "-t", "y", "-o", model, "--checkpoint", run, "--checkpoint-every", "0"]
        fit += ["--inference", "dsvi", "--layers", "1", "--inducing", "5", "--steps", "900000"]
        bench = ["bench", "run", "uci", "--datasets", "steps", "--methods", "exact-gp", "--out", results]
        for number in range(first, first + count):
            chance = random.Random(number)
            what = ("fit", "fit", "save", "bench")[number % 4]
            sent = signal.SIGKILL if number // 4 % 2 else signal.SIGINT
            code, arguments = {
                "fit": (COMMAND, fit),
                "save": (SAVING, [base, model]),
                "bench": (COMMAND, [*bench, "--splits", str(number + 5)]),
            }[what]
            process = subprocess.Popen(
                [sys.executable, "-c", code, *map(str, arguments)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            time.sleep(pace * chance.uniform(1.0, 9.0))
            ended = process.poll() is not None
            process.send_signal(sent)
            try:
                _, told = process.communicate(timeout=pace * SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                _, told = process.communicate()
                report("kills", number, f"{what} did not end after {sent.name}\n{told[-800:]}")
                tally["failed"] += 1
                continue
            problems = []
            if sent == signal.SIGINT and what != "save" and not ended and process.returncode != 130:
                early = "Traceback" in told and ("import" in told) and process.returncode in (-2, 1)
                # Before Python listens and when it has done its work, Ctrl-C ends it: 130 to a shell.
                outside = "Traceback" not in told and process.returncode == -signal.SIGINT
                if early or outside:
                    tally["interrupted while importing" if early else "interrupted outside"] += 1
                else:
                    problems.append(f"exit {process.returncode}")
            for path, load in ((model, novidgp.load_model), (run, storage.load)):
                try:
                    if path.exists():
                        load(path)
                except Exception as error:
                    problems.append(f"{path.name}: {error!r}")
            try:
                read_records(results / "uci.jsonl")
            except Exception as error:
                problems.append(f"results: {error!r}")
            leftovers = len([entry for entry in os.listdir(folder) if entry.endswith(".tmp")])
            if leftovers > 2:
                problems.append(f"{leftovers} temporary files")
            tally[f"{what} {sent.name}"] += 1
            if problems:
                tally["failed"] += 1
                report("kills", number, f"{what} {sent.name}: {problems}\n{told[-800:]}")
            print("kills", number + 1 - first, dict(tally), file=sys.stderr, flush=True)
    return tally


PARTS = {"fits": fits, "files": files, "tables": tables, "kills": kills}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--count", type=int, help="how many of each part; the full numbers by default")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first case: cases repeat by number"
    )
    parser.add_argument("--pace", type=float, default=1.0, help="kills come this many times later")
    options = parser.parse_args()
    parts = PARTS | {"kills": functools.partial(kills, pace=options.pace)}
    counts = {}
    for part in options.only:
        start = time.monotonic()
        counts[part] = dict(parts[part](options.first, options.count or COUNTS[part]))
        counts[part]["seconds"] = round(time.monotonic() - start)
        print(part, counts[part], flush=True)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
