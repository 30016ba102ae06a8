"""Download one file over HTTP with retries; an incomplete file is an error."""

import os
import time
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

_CHUNK = 1 << 16
_TIMEOUT_SECONDS = 30.0


def download(
    url: str, directory: Path, *, attempts: int = 3, backoff: float = 1.0, progress: bool = True
) -> Path:
    """Download `url` into `directory` under its own name and return the path.

    Raises `OSError` after `attempts` tries. Waits `backoff` seconds after the first failure and doubles the
    wait each time. An answer that says the request itself is wrong (HTTP 4xx) is not tried again.
    """
    if attempts < 1:
        raise ValueError(f"attempts must be at least 1, got {attempts}")
    name = urllib.parse.unquote_plus(Path(urllib.parse.urlsplit(url).path).name) or "download"
    destination = directory / name
    partial = directory / f"{name}.part"
    for attempt in range(1, attempts + 1):
        try:
            _transfer(url, partial, progress)
        except (OSError, HTTPException) as error:
            refused = isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            if refused or attempt == attempts:
                raise OSError(f"{url}: {error}") from error
            time.sleep(backoff * 2 ** (attempt - 1))
        else:
            break
    os.replace(partial, destination)
    return destination


def _transfer(url: str, destination: Path, progress: bool) -> None:
    """Write the body to `destination` once; a body shorter than the announced length is an error."""
    request = urllib.request.Request(url, headers={"User-Agent": "novidgp"})
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with (
        urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response,
        destination.open("wb") as stream,
        Progress(*columns, disable=not progress) as bar,
    ):
        announced = response.headers.get("Content-Length")
        total = int(announced) if announced else None
        task = bar.add_task(destination.stem, total=total)
        received = 0
        while chunk := response.read(_CHUNK):
            stream.write(chunk)
            received += len(chunk)
            bar.update(task, completed=received)
    if total is not None and received != total:
        raise OSError(f"the connection closed after {received} of {total} bytes")
