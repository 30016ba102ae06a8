"""NOVI: the default method, the published algorithm, and the parts of the game they share."""

from novidgp.inference.novi.default import NOVI
from novidgp.inference.novi.paper import NOVIPaper

__all__ = ["NOVI", "NOVIPaper"]
