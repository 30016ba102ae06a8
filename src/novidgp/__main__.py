"""`python -m novidgp` is `novidgp`."""

from novidgp.cli import app

app()
