"""The published algorithm, with the signs of its Algorithm 1 mended: eta and nu ascend.

The generator is a network that maps low-dimensional noise to V within bounds; the critic is a network phi
that maximises the regularised Stein discrepancy; the generator descends the discrepancy, which takes
Hessian-vector products of the log joint density; the hyper-parameters ascend `E_q[log p(y, V)]` and are kept
within bounds.
"""

import dataclasses
from functools import partial
from typing import ClassVar, final

import jax

from novidgp.inference.base import Method
from novidgp.inference.novi.ascents import fisher_ascent
from novidgp.inference.novi.critics import stein_loss
from novidgp.inference.novi.game import Players, game
from novidgp.inference.novi.targets import DGPTarget
from novidgp.inference.optim import adam
from novidgp.inference.options import option, refuse_idle
from novidgp.model.dgp import Bound, clip_hyperparameters
from novidgp.numerics import stein
from novidgp.numerics.nets import Activation, NetworkShape, mlp
from novidgp.posteriors.generators import implicit_generator


@final
@dataclasses.dataclass(frozen=True)
class NOVIPaper(Method):
    """Algorithm 1 of the NOVI paper.

    `regularisation` is its lambda, `critic_steps` its n_c, `num_samples` its K and `num_paths` its S.
    `output_limit` and `hyperparameter_range` are the compactness constraints of Theorem 1, on V and on the
    hyper-parameters.
    """

    name: ClassVar[str] = "novi-paper"
    num_samples: int = 10
    num_paths: int = 1
    bound: Bound = "log_expected"
    regularisation: float = 10.0
    trace: stein.TraceKind = "hutchinson"
    probes: int = 1
    noise_dim: int = 200
    width: int = 64
    depth: int = option(2, least=0)
    activation: Activation = "tanh"
    critic_activation: Activation | None = None
    critic_steps: int = option(5, least=0)
    network_rate: float = 1e-3
    critic_rate: float = 1e-3
    model_rate: float = 2e-2
    output_limit: float = 10.0
    hyperparameter_range: tuple[float, float] | None = (1e-3, 1e3)

    def __post_init__(self):
        super().__post_init__()
        if not self.critic_steps:
            refuse_idle(self, ("critic_rate",), "critic_steps=0")
        if self.trace == "exact":
            refuse_idle(self, ("probes",), "trace='exact'")
        if self.regularisation == 0.0 or self.output_limit == 0.0:
            raise ValueError("regularisation and output_limit must be above 0.")

    def start(self, model, *, key):
        """The players; nothing is remembered."""
        generator_key, critic_key = jax.random.split(key)
        shape = NetworkShape(self.width, self.depth, self.activation)
        shapes = model.inducing_shapes()
        generator = implicit_generator(
            shapes,
            shape,
            noise_dim=self.noise_dim,
            output_limit=self.output_limit,
            dtype=model.dtype,
            key=generator_key,
        )
        size = sum(m * p for m, p in shapes)
        shape = shape._replace(activation=self.critic_activation or self.activation)
        critic = mlp(size, size, **shape._asdict(), output_scale=0.01, dtype=model.dtype, key=critic_key)
        return Players(model, generator, critic), None

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        target = DGPTarget(num_data, self.num_samples, self.num_paths, self.bound)
        trace = stein.make_trace(self.trace, self.probes)

        def rate(value, updates=1):
            return adam(step_scale * value, steps * updates)

        optimisers = Players(
            rate(self.model_rate),
            rate(self.network_rate),
            rate(self.critic_rate, max(self.critic_steps, 1)),
        )

        def critic_loss(critic, players, memory, batch, *, key):
            loss = stein_loss(
                critic,
                players,
                batch,
                target=target,
                regularisation=self.regularisation,
                trace=trace,
                key=key,
            )
            return loss, memory

        def project(model):
            limits = self.hyperparameter_range
            return model if limits is None else clip_hyperparameters(model, *limits)

        return game(
            self.start,
            critic_loss,
            partial(fisher_ascent, target=target, regularisation=self.regularisation, trace=trace),
            lambda memory: optimisers,
            critic_steps=self.critic_steps,
            project=project,
        )
