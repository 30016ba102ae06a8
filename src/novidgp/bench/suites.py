"""The suites: one for each table or figure of the paper, as data.

A suite is a grid of data sets, methods, depths, variants and splits. Data sets that are
not on the machine are left out by the runner, with a note.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

from novidgp.bench.spec import BASELINES, IMAGE_FEATURES, LARGE_TREES, SYSTEMS, Fit
from novidgp.messages import nearest

UCI = ("boston", "energy", "power", "concrete", "yacht", "qsar", "protein", "kin8nm")
FOUR = ("concrete", "energy", "boston", "kin8nm")
"""The four sets of the paper's table of inducing points."""
IMAGES = ("mnist", "fashion_mnist", "cifar10")
OUTSIDE = ("auroc_fashion", "auroc_mnist", "auroc_noise")
IMAGE_SCORES = ("accuracy", "nll", "ece", "brier", *OUTSIDE, "seconds_fit")
DEEP = ("novi", "dsvi", "sghmc", "ipvi", "iwvi", "iwvi-dreg", "ml")
PEERS = ("exact-gp", "hist-gb", "gpytorch-dsvi")
PAPER_MODEL = {"hidden_dim": 10, "mean": "zero", "kernel_sharing": "shared"}
"""The paper's deep GP: ten hidden units, no mean functions."""


class Variant(NamedTuple):
    """Settings that a suite compares, with the name it gives them."""

    label: str = ""
    options: dict[str, Any] = {}  # noqa: RUF012
    preset: str = "default"
    inducing: int | None = None


@dataclass(frozen=True)
class Suite:
    """A grid of fits, and how its table is to be read."""

    name: str
    title: str
    about: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    layers: tuple[int, ...] = (2,)
    steps: int | None = 1000
    """None is what each method needs by itself."""
    inducing: int = 100
    splits: tuple[int, ...] = (0, 1, 2)
    protocols: tuple[str, ...] = ("random",)
    own: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Data sets with protocols of their own, and which rows are used under each: `Fit.data`."""
    variants: tuple[Variant, ...] = (Variant(),)
    options: dict[str, Any] = field(default_factory=dict)
    """For every deep GP of the suite."""
    curve: bool = False
    chunk: int | None = None
    scores: tuple[str, ...] = ("rmse", "nll")
    """What the table shows, the chief one first."""
    paper: str | None = None
    """The paper's table beside it, a key of `paper.json`."""

    def fits(self) -> list[Fit]:
        """Every fit of the suite; fits that differ only in the split follow one another."""
        found = {}
        places = [
            (dataset, protocol, data)
            for dataset in self.datasets
            for protocol, data in self.own.get(dataset, {name: {} for name in self.protocols}).items()
        ]
        for (dataset, protocol, data), method in product(places, self.methods):
            start = Fit(dataset, protocol, 0, method, BASELINES.get(method), data=data)
            shapes = [start] if method in BASELINES else self._deep(start)
            for shape, seed in product(shapes, self.splits):
                fit = shape._replace(seed=seed)
                found.setdefault(fit.key, fit)
        return list(found.values())

    def _deep(self, start: Fit) -> list[Fit]:
        return [
            start._replace(
                layers=layers,
                inducing=variant.inducing or self.inducing,
                steps=self.steps,
                preset=variant.preset if start.method == "novi" else "default",
                options=self.options | variant.options,
                curve=self.curve,
                chunk=self.chunk,
            )
            for layers, variant in product(self.layers, self.variants)
        ]

    def label(self, fit: Fit) -> str:
        """A fit's method as the suite calls it: with the variant and whatever else is unusual about it."""
        if fit.method in BASELINES:
            return fit.method
        options = {name: value for name, value in fit.options.items() if self.options.get(name) != value}
        for variant in self.variants:
            same = variant.preset == fit.preset and variant.options == options
            if variant.label and same and (variant.inducing or fit.inducing) == fit.inducing:
                steps = "" if fit.steps == self.steps else f", {_steps(fit)}"
                return f"{fit.method}, {variant.label}{steps}"
        parts = [f"{name}={value}" for name, value in sorted(options.items())]
        if fit.preset != "default":
            parts.insert(0, f"{fit.preset} preset")
        if fit.inducing not in (None, self.inducing):
            parts.append(f"M={fit.inducing}")
        if fit.steps != self.steps:
            parts.append(_steps(fit))
        return ", ".join([fit.method, *parts])


def _steps(fit: Fit) -> str:
    return "as many steps as it needs" if fit.steps is None else f"{fit.steps} steps"


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "uci",
            "UCI regression",
            "RMSE and NLL by depth on the eight sets of the paper's Figure 2, in units of the training "
            "target's standard deviation.",
            datasets=UCI,
            methods=(*DEEP, *PEERS),
            layers=(2, 3, 4, 5),
            paper="uci",
        ),
        Suite(
            "additional",
            "Additional regression",
            "The two further sets of the paper's appendix.",
            datasets=("estate", "elevators"),
            methods=(*DEEP, *PEERS),
            layers=(2, 3, 4, 5),
            paper="additional",
        ),
        Suite(
            "local",
            "The local last layer",
            "The default with and without its local layer, a local GP on its own, and boosted trees. The "
            "target of protein-log is the logarithm of protein's.",
            datasets=(*UCI, "elevators", "protein-log"),
            methods=("novi", "local-gp", "hist-gb", "xgboost"),
            steps=None,
            variants=(Variant("deep GP alone", {"local": False}), Variant("local layer", {"local": "auto"})),
            scores=("rmse", "nll", "coverage90", "seconds_fit"),
        ),
        Suite(
            "large",
            "Large-scale regression",
            "RMSE in raw units: years, and minutes of delay. Year has its official split. Airline is split "
            "in three ways: 700,000 and 100,000 rows as its file draws them, the first 700,000 and the next "
            "100,000 (the file is in the order of months, and within a month of airlines), and all 2,055,733 "
            "rows, a twentieth of which tests. The paper's flights are others: its numbers do not compare.",
            datasets=("year", "airline"),
            methods=("novi", "dsvi", "sghmc", "ipvi", *LARGE_TREES, "gpytorch-svgp"),
            layers=(2, 3, 4, 5),
            steps=None,
            variants=(
                Variant(),
                Variant("four starts", {"starts": 4}),
                Variant("in order", {"order": "time"}),
            ),
            splits=(0,),
            own={
                "year": {"official": {}},
                "airline": {
                    "drawn": {"rows": 800_000, "test_fraction": 0.125},
                    "contiguous": {"rows": 800_000, "test_fraction": 0.125},
                    "random": {"test_fraction": 0.05},
                },
            },
            scores=("rmse_raw", "nll_raw", "coverage90", "cpu_seconds_fit"),
            paper="large",
        ),
        Suite(
            "uci-class",
            "UCI classification",
            "Accuracy on sets of 1,000 to 7,400 rows. The paper draws three such sets, names none and prints "
            "no numbers. Wilt has its official split, with wilted trees rare in training, common in testing.",
            datasets=("german", "wilt", "twonorm", "ringnorm"),
            methods=(*DEEP, "hist-gb"),
            layers=(2, 3, 4, 5),
            own={"wilt": {"official": {}}},
            scores=("accuracy", "nll", "ece"),
        ),
        Suite(
            "images",
            "Image classification",
            "Pixels as rows of numbers, scaled by channels; all official training and test images. The "
            "paper trains 10,000 to 20,000 iterations on a V100.",
            datasets=IMAGES,
            methods=("novi", "dsvi", "sghmc", "ipvi", "hist-gb"),
            layers=(3, 4),
            steps=10_000,
            inducing=300,
            splits=(0,),
            protocols=("official",),
            options={"batch_size": 256, "num_predict_samples": 50},
            scores=IMAGE_SCORES,
            paper="images",
        ),
        Suite(
            "images-conv",
            "Convolutional deep GPs",
            "One convolutional layer and a sum over patches with their places, on the official images; and "
            "the paper's systems as models of ours: DCGP, BDCGP, CNF, DKL with a small network.",
            datasets=IMAGES,
            methods=("novi", "dsvi", "sghmc", *SYSTEMS),
            steps=20_000,
            splits=(0,),
            protocols=("official",),
            options={
                "layers": "conv",
                "num_inducing": [128, 384],
                "kernel": "rbf",
                "batch_size": 64,
                "num_predict_samples": 20,
            },
            scores=IMAGE_SCORES,
            paper="images-conv",
        ),
        Suite(
            "images-features",
            "Image classification by features",
            "Trained ResNets alone, with a temperature (-scaled, fitted to harder views of training images), "
            "under a GP (-novi, fitted to crops and flips); a GP on whitened patches. AUROC: the largest "
            "probability, against noise and MNIST in colour.",
            datasets=("cifar10",),
            methods=IMAGE_FEATURES,
            splits=(0,),
            protocols=("official",),
            scores=("accuracy", "nll", "ece", "brier", "auroc_noise", "auroc_mnist", "seconds_fit"),
            paper="images-features",
        ),
        Suite(
            "timing",
            "Seconds per iteration",
            "Energy, batches of 1,000 rows (all of it), compilation left out. The paper's are from a V100.",
            datasets=("energy",),
            methods=DEEP,
            layers=(2, 3, 4, 5),
            steps=150,
            splits=(0,),
            chunk=50,
            scores=("seconds_per_step", "seconds_fit"),
            paper="timing",
        ),
        Suite(
            "ablation",
            "NOVI against maximum likelihood",
            "Training and test RMSE along the way, two layers. Does the posterior prevent overfitting?",
            datasets=FOUR,
            methods=("novi", "ml"),
            curve=True,
            scores=("rmse", "rmse_train", "nll"),
        ),
        Suite(
            "race",
            "The default against the paper's algorithm",
            "Test RMSE against seconds: how much sooner does NOVI's default reach what the paper's settings "
            "(implicit generator, network critic, Fisher objective) reach in the end? The model is the same.",
            datasets=("energy", "concrete"),
            methods=("novi",),
            splits=(0,),
            variants=(Variant("default"), Variant("paper", preset="paper")),
            curve=True,
            scores=("rmse", "nll", "seconds_fit"),
        ),
        Suite(
            "inducing",
            "Inducing points",
            "NOVI with 50 to 400 inducing points per layer, two layers.",
            datasets=FOUR,
            methods=("novi",),
            variants=tuple(Variant(f"M={count}", inducing=count) for count in (50, 100, 200, 400)),
            scores=("rmse", "seconds_per_step"),
            paper="inducing",
        ),
        Suite(
            "activations",
            "Activation functions",
            "Generator and critic networks of NOVI on energy, with its default settings.",
            datasets=("energy",),
            methods=("novi",),
            variants=tuple(
                Variant(
                    f"generator {generator}, critic {critic}",
                    dict(activation=generator, critic_activation=critic),
                )
                for generator, critic in product(("tanh", "prelu", "sigmoid"), repeat=2)
            ),
            paper="activations",
        ),
        Suite(
            "lambda",
            "Regularisation",
            "The weight lambda of the critic's penalty, on energy, with the paper's algorithm: with the "
            "default critic it cancels.",
            datasets=("energy",),
            methods=("novi",),
            variants=tuple(
                Variant(f"lambda={value:g}", {"regularisation": value}, "paper")
                for value in (1.0, 10.0, 100.0, 1000.0, 10000.0)
            ),
            scores=("rmse", "rmse_train", "nll"),
            paper="lambda",
        ),
        Suite(
            "trace",
            "Trace of the critic's Jacobian",
            "Seconds per iteration of the paper's algorithm with Hutchinson's estimate and with the exact "
            "trace. The default critic needs no trace.",
            datasets=("energy", "elevators"),
            methods=("novi",),
            steps=12,
            splits=(0,),
            chunk=4,
            variants=(
                Variant("hutchinson", {"trace": "hutchinson"}, "paper"),
                Variant("exact", {"trace": "exact"}, "paper"),
            ),
            options=PAPER_MODEL,
            scores=("seconds_per_step",),
            paper="trace",
        ),
        Suite(
            "split",
            "Random against contiguous splits",
            "The last tenth of a file is not a random tenth: what that does to RMSE.",
            datasets=("boston", "concrete"),
            methods=("novi", "dsvi", *PEERS),
            protocols=("random", "contiguous"),
            paper="uci",
        ),
    )
}


def find_suite(name: str) -> Suite:
    """Look a suite up by name."""
    if name not in SUITES:
        near = nearest(name, SUITES, cutoff=0.4)
        hint = "" if near is None else f" Did you mean {near!r}?"
        raise ValueError(f"suite {name!r} is unknown.{hint} Choose one of: {', '.join(SUITES)}.")
    return SUITES[name]


def narrowed(
    suite: Suite,
    *,
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    splits: Sequence[int] | None = None,
    steps: int | None = None,
    inducing: int | None = None,
    options: dict[str, Any] | None = None,
) -> Suite:
    """A suite with some of its axes replaced; other methods and data sets than its own may be named too."""
    from novidgp.bench.methods import available_methods
    from novidgp.datasets import dataset_info

    if methods:
        known = available_methods()
        for name in methods:
            if name not in known:
                raise ValueError(f"method {name!r} is unknown; choose from: {', '.join(known)}.")
        suite = replace(suite, methods=tuple(methods))
    if datasets:
        for name in datasets:
            dataset_info(name)
        suite = replace(suite, datasets=tuple(datasets))
    for name, values in (("layers", layers), ("splits", splits)):
        if values:
            suite = replace(suite, **{name: tuple(values)})
    for name, value in (("steps", steps), ("inducing", inducing)):
        if value is not None:
            suite = replace(suite, **{name: value})
    return replace(suite, options=suite.options | options) if options else suite
