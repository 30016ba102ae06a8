"""One fit of a benchmark, as plain values: what it is, and the key under which its result is kept."""

import hashlib
import json
from typing import Any, NamedTuple

KEY_LENGTH = 16
IMAGE_FEATURES = (
    *(
        f"{network}{head}"
        for network in ("resnet20", "resnet56", "resnets")
        for head in ("", "-scaled", "-novi")
    ),
    "patches-novi",
)
"""Rows of the suite of image features: trained networks and what is put on them."""
LARGE_TREES = ("hist-gb-default", "hist-gb-1000")
BASELINES = {"exact-gp": None, "local-gp": None, "hist-gb": None, "xgboost": None, "gpytorch-dsvi": 2}
BASELINES |= dict.fromkeys((*LARGE_TREES, "gpytorch-svgp", *IMAGE_FEATURES))
"""Methods of other libraries, our local layer on its own and rows of features, with their number of layers;
their other settings are fixed."""
_PLAIN_SUM = [{"kind": "conv", "size": 5, "stride": 2}, {"kind": "sum", "size": 5, "location": False}]
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "dcgp": ("dsvi", {"layers": _PLAIN_SUM}),
    "bdcgp": ("dsvi", {"layers": "conv"}),
    "cnf": ("flow", {"layers": _PLAIN_SUM}),
    "dkl": ("dsvi", {"layers": None, "features": "cnn", "num_layers": 1, "num_inducing": 100}),
}
"""Systems of the paper's table of convolutional models, as methods of ours with models of ours: Blomqvist et
al. (2019), with places Dutordoir et al. (2020), with flows Yu et al. (2021), and deep kernel learning with a
small network (Wilson et al. 2016)."""


class Fit(NamedTuple):
    """A data set, a split, a method and its settings. Equal fits have equal keys in every version."""

    dataset: str
    protocol: str
    seed: int
    """The seed of the method, and under the protocol `random` the number of the split."""
    method: str
    layers: int | None = None
    inducing: int | None = None
    steps: int | None = None
    preset: str = "default"
    options: dict[str, Any] = {}  # noqa: RUF012  (never changed: a NamedTuple cannot make one per fit)
    """Parameters of the estimator and options of the inference method, told apart by their names."""
    data: dict[str, Any] = {}  # noqa: RUF012
    """`rows`: use only this many rows, from the start of the file or, under `drawn`, of the draw;
    `train_rows`: use only this many training rows, drawn by `seed`; `test_fraction`."""
    curve: bool = False
    """Whether test and training scores are recorded during training."""
    chunk: int | None = None
    """Steps between points of the curve or readings of the clock; None means the trainer's default."""

    @property
    def key(self) -> str:
        """Short SHA-256 of the canonical JSON, without fields at their default: new fields change no key."""
        facts = {
            name: value
            for name, value in self._asdict().items()
            if name not in self._field_defaults or value != self._field_defaults[name]
        }
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]

    @property
    def shape(self) -> tuple:
        """All settings but the seed: fits of one shape run the same compiled program."""
        return tuple(json.dumps(value, sort_keys=True) for value in self._replace(seed=0))

    @property
    def baseline(self) -> bool:
        """Whether the method is no deep GP of ours."""
        return self.method in BASELINES

    def __str__(self) -> str:
        depth = f" L={self.layers}" if self.layers else ""
        more = "".join(f" {name}={value}" for name, value in self.options.items())
        preset = "" if self.preset == "default" else f":{self.preset}"
        return f"{self.dataset} {self.protocol} {self.seed} {self.method}{preset}{depth}{more}"


def fit_from_json(facts: dict[str, Any]) -> Fit:
    """The fit that a line of a result file describes; fields this version does not know are left out."""
    return Fit(**{name: value for name, value in facts.items() if name in Fit._fields})
