"""The interface of an inference method.

A method is a frozen dataclass of options (`Method`). For a given number of rows and steps it makes an
`Inference`: pure functions that start a state, advance it on one minibatch, and read the fitted model out of
it. States are pytrees of arrays, so scanning, checkpoints, several starts and tests need nothing more.
"""

import abc
import dataclasses
from typing import Any, ClassVar, NamedTuple, Protocol, final, runtime_checkable

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.inference.options import check_options
from novidgp.model.dgp import DGP, Batch, Count
from novidgp.posteriors.fitted import Fitted

State = Any
"""A pytree of arrays whose structure, shapes and types do not change from step to step."""
Info = dict[str, jax.Array]
"""Scalars by name."""


@runtime_checkable
class InitFn(Protocol):
    """Starts a run."""

    def __call__(self, model: DGP, batch: Batch, *, key: PRNGKeyArray) -> State:
        """The first state. `batch` is the training set, or rows of the same shape and type."""
        ...


@runtime_checkable
class StepFn(Protocol):
    """Advances a run."""

    def __call__(self, state: State, batch: Batch, *, key: PRNGKeyArray) -> tuple[State, Info]:
        """The next state, and scalars about the step: at least `loss`, which is per row."""
        ...


@runtime_checkable
class FittedFn(Protocol):
    """Reads a run."""

    def __call__(self, state: State) -> Fitted:
        """The model and the posterior of a state."""
        ...


@runtime_checkable
class DiagnoseFn(Protocol):
    """Measures a run."""

    def __call__(self, state: State, batch: Batch, *, key: PRNGKeyArray) -> Info:
        """Scalars that are too expensive for every step; the trainer asks for them between chunks."""
        ...


class Inference(NamedTuple):
    """A method at work: what the trainer calls."""

    init: InitFn
    step: StepFn
    fitted: FittedFn
    diagnose: DiagnoseFn | None = None


class Budget(NamedTuple):
    """Steps of a run, and rows of a step."""

    steps: int
    batch_size: int


@dataclasses.dataclass(frozen=True)
class Method(abc.ABC):
    """The options of an inference method, checked when they are made.

    Equal options are equal methods, so compiled programs are shared by value. A subclass is a frozen
    dataclass with one field per option and an `algorithm`.
    """

    name: ClassVar[str]
    """What the estimators and the command call the method."""
    uses_local_variable: ClassVar[bool] = False
    """Whether the method learns a proposal for a local variable, so that models have one by default."""

    __no_type_check__: ClassVar[bool] = True
    """Options check themselves, so that run-time type checkers leave the construction alone."""

    def __post_init__(self) -> None:
        check_options(self)

    @abc.abstractmethod
    def algorithm(
        self, num_data: Count, steps: Count, *, step_scale: float | Float[Array, ""] = 1.0
    ) -> Inference:
        """The method for a training set of `num_data` rows, with learning-rate schedules over `steps`.

        `step_scale` multiplies the learning rates: the trainer lowers it after a divergence. All three may
        be traced: they are arguments of the compiled step, so do not branch on them in Python.
        """

    def budget(self, model: DGP, num_data: int) -> Budget:
        """What a run on `num_data` rows needs, where the user does not say."""
        return Budget(1000, 1000)

    def keeps_snapshots(self, num_data: int) -> bool:
        """Whether models kept during training take part in predictions."""
        return False


@dataclasses.dataclass(frozen=True)
class Wrapping(Method):
    """A method that changes how another one starts or steps, and needs what that one needs."""

    method: Method

    def budget(self, model, num_data):
        return self.method.budget(model, num_data)

    def keeps_snapshots(self, num_data):
        return self.method.keeps_snapshots(num_data)


@final
@dataclasses.dataclass(frozen=True)
class Prepared(Method):
    """An `Inference` that was made elsewhere. Its learning rates stay as they are after a divergence."""

    name: ClassVar[str] = "prepared"
    functions: Inference

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        return self.functions
