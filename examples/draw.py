"""Runs every example and keeps what it prints and draws, for the documentation: `make examples`.

python examples/draw.py [NAME ...]

Pictures are reduced to 128 colours, which makes them a third as large and looks the same.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"


def draw(name: str) -> None:
    """Run one example; its text goes to `pictures/NAME.txt`, its picture to `pictures/NAME.png`."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NOVIDGP_EXAMPLES_OUT": folder}
        command = [sys.executable, str(HERE / f"{name}.py")]
        run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        (PICTURES / f"{name}.txt").write_text(run.stdout)
        with Image.open(Path(folder) / f"{name}.png") as picture:
            colours = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
            colours.save(PICTURES / f"{name}.png", optimize=True)
    print(f"{name}: {time.perf_counter() - start:.0f} s\n{run.stdout}")


if __name__ == "__main__":
    everything = sorted(path.stem for path in HERE.glob("*.py") if path != Path(__file__))
    for chosen in sys.argv[1:] or everything:
        draw(chosen)
