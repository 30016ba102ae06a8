"""Check a wheel: it holds every file of `src/novidgp`, the licence and the types marker, and nothing else.

python .ci/check_wheel.py dist/novidgp-VERSION-py3-none-any.whl
"""

import sys
import zipfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
DATA = {"novidgp/py.typed", "novidgp/bench/paper.json", "novidgp/bench/report.css"}


def problems(wheel: Path) -> list[str]:
    """One line for each file that is missing or superfluous."""
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    info = {name for name in packed if ".dist-info/" in name}
    files = (path for path in (SOURCE / "novidgp").rglob("*") if path.is_file() and path.suffix != ".pyc")
    wanted = {path.relative_to(SOURCE).as_posix() for path in files} | DATA
    found = [f"missing: {name}" for name in sorted(wanted - packed)]
    found += [f"superfluous: {name}" for name in sorted(packed - info - wanted)]
    if not any(name.endswith("/licenses/LICENSE") for name in info):
        found.append("missing: the licence")
    return found


def main() -> None:
    """Print what is wrong and exit with 1, or the number of files."""
    wheel = Path(sys.argv[1])
    if found := problems(wheel):
        sys.exit("\n".join([f"{wheel.name}:", *found]))
    print(f"{wheel.name}: complete")


if __name__ == "__main__":
    main()
