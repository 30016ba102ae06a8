"""Neural operator variational inference, in the form that Theorem 2 of the paper says is optimal.

A generator `V = g(eps)` is the posterior. A critic maximises, and the generator minimises,

    RSD = E_q[ score(V) . phi(V) + tr(d phi / d V) - lambda |phi(V)|^2 ],

while the hyper-parameters ascend `E_q[log p(y, V)]`. The best critic is `phi = (score_p - r) / (2 lambda)`
with `r` the score of q. So the critic models r, for which it needs neither data nor the posterior's score;
the generator follows `E[J^T (score_p - r)]`, in which lambda cancels; and one pass through the likelihood per
step serves generator and hyper-parameters. The published algorithm is in `paper.py`.
"""

import dataclasses
from functools import partial
from typing import ClassVar, Literal, final

import jax
import jax.numpy as jnp

from novidgp.inference import closed_form
from novidgp.inference.base import Budget, Method
from novidgp.inference.novi.ascents import discrepancies, elbo_ascent, fisher_divergence
from novidgp.inference.novi.critics import ScoreModel, denoising_loss
from novidgp.inference.novi.game import Players, game
from novidgp.inference.novi.targets import DGPTarget
from novidgp.inference.optim import adam, adam_per_field
from novidgp.inference.options import option, refuse_idle
from novidgp.model.dgp import Bound
from novidgp.numerics.nets import Activation, NetworkShape, mlp
from novidgp.posteriors.generators import Covariance, smooth_generator

SMALL_DATA = 2000
"""Rows up to which hyper-parameters overfit soon. With more, and a last layer that is solved for, they learn
at 0.03 instead of 0.02 (unless `model_rate` is given)."""
SMALL_BUDGET, LARGE_BUDGET = Budget(400, 256), Budget(700, 1000)
SMALL_GRADIENT_BUDGET = Budget(600, 256)
"""What a run needs: up to so many rows and beyond, where the last layer is solved for; up to so many where it
is not. 1000 steps of 1000 rows end no better, and take up to six times as long (docs/notebook.md)."""
NEARLY_ALL = 1.25
"""Where there are no more than so many batches of rows and the last layer is solved for, a step has all rows:
a batch of nearly all saves nothing, and its solution is an average over the last few steps."""


@final
@dataclasses.dataclass(frozen=True)
class NOVI(Method):
    """Neural operator variational inference.

    `num_samples` is the paper's K, `num_paths` its S and `critic_steps` its n_c. `network=False` switches the
    neural part off and leaves a Gaussian q with a `full` or `diagonal` covariance per layer and output.
    `last_layer` says whether the last layer's Gaussian is solved for in every step (`closed-form`: Gaussian
    noise, whitened model, full covariance, `expected_log` bound) or climbed to (`gradient`); `auto` solves
    where it can. `statistics_rate` is the weight of the newest minibatch in the statistics of the closed
    form. `snapshots` keeps models from the course of training as members of the predictive mixture.
    """

    name: ClassVar[str] = "novi"
    num_samples: int = 5
    num_paths: int = 1
    bound: Bound = "expected_log"
    last_layer: Literal["auto", "closed-form", "gradient"] = "auto"
    statistics_rate: float = option(0.2, most=1.0)
    covariance: Covariance = "full"
    network: bool = True
    noise_dim: int = 32
    width: int = 64
    depth: int = option(2, least=0)
    activation: Activation = "tanh"
    critic_activation: Activation | None = None
    critic_steps: int = option(2, least=0)
    critic_samples: int = 32
    mean_rate: float = 0.02
    scale_rate: float = 0.02
    lower_rate: float = 5e-3
    network_rate: float = 1e-3
    critic_rate: float = 2e-3
    model_rate: float | None = None
    initial_hidden_std: float = 1e-2
    initial_final_std: float = 1e-1
    snapshots: bool = False

    def __post_init__(self):
        super().__post_init__()
        if not self.network:
            neural = ("noise_dim", "width", "depth", "activation", "critic_activation", "critic_steps")
            refuse_idle(self, (*neural, "critic_samples", "network_rate", "critic_rate"), "network=False")
        if not self.critic_steps:
            refuse_idle(self, ("critic_samples", "critic_rate"), "critic_steps=0")
        if self.covariance == "diagonal":
            refuse_idle(self, ("lower_rate",), "covariance='diagonal'")
        if self.last_layer == "gradient":
            refuse_idle(self, ("statistics_rate",), "last_layer='gradient'")
        for name, needed in (("bound", "expected_log"), ("covariance", "full")):
            if self.last_layer == "closed-form" and getattr(self, name) != needed:
                raise ValueError(
                    f"last_layer='closed-form' needs {name}={needed!r}, got {getattr(self, name)!r}. "
                    "Use last_layer='auto' or 'gradient'."
                )

    def budget(self, model, num_data):
        small = num_data <= SMALL_DATA
        if self.solves_last_layer(model):
            if num_data <= NEARLY_ALL * SMALL_BUDGET.batch_size:
                return SMALL_BUDGET._replace(batch_size=max(num_data, SMALL_BUDGET.batch_size))
            return SMALL_BUDGET if small else LARGE_BUDGET
        return SMALL_GRADIENT_BUDGET if small else super().budget(model, num_data)

    def keeps_snapshots(self, num_data):
        return self.snapshots

    def solves_last_layer(self, model) -> bool:
        """Whether the last layer of `model` is solved for in every step."""
        possible = closed_form.has_closed_form(model)
        if self.last_layer == "closed-form" and not possible:
            raise ValueError(
                "last_layer='closed-form' needs Gaussian noise and a whitened model. Use last_layer='auto'."
            )
        suitable = (self.bound, self.covariance) == ("expected_log", "full")
        return possible and suitable and self.last_layer != "gradient"

    def start(self, model, *, key):
        """The players, and the statistics of the last layer where it is solved for."""
        generator_key, critic_key = jax.random.split(key)
        shape = NetworkShape(self.width, self.depth, self.activation) if self.network else None
        generator = smooth_generator(
            model.inducing_start(),
            shape,
            noise_dim=self.noise_dim,
            covariance=self.covariance,
            initial_hidden_std=self.initial_hidden_std,
            initial_final_std=self.initial_final_std,
            key=generator_key,
        )
        critic = None
        if shape is not None:
            size = sum(m * p for m, p in model.inducing_shapes())
            shape = shape._replace(activation=self.critic_activation or self.activation)
            critic = ScoreModel(
                mlp(size, size, **shape._asdict(), output_scale=0.01, dtype=model.dtype, key=critic_key)
            )
        memory = closed_form.no_statistics(model) if self.solves_last_layer(model) else None
        return Players(model, generator, critic), memory

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        target = DGPTarget(num_data, self.num_samples, self.num_paths, self.bound)

        def optimisers(memory):
            solved, model_rate = memory is not None, self.model_rate
            if model_rate is None:
                model_rate = jnp.where(solved & (num_data > SMALL_DATA), 0.03, 0.02)
            generator = adam_per_field(
                steps,
                mean=step_scale * self.mean_rate,
                log_diagonal=step_scale * self.scale_rate,
                lower=step_scale * self.lower_rate,
                network=step_scale * self.network_rate,
            )
            critic = adam(step_scale * self.critic_rate, steps * max(self.critic_steps, 1))
            return Players(adam(step_scale * model_rate, steps), generator, critic)

        def critic_loss(critic, players, memory, batch, *, key):
            loss = denoising_loss(critic, players.generator, num_samples=self.critic_samples, key=key)
            return loss, memory

        def diagnose(state, batch, *, key):
            return discrepancies(fisher_divergence(state.players, batch, target, key=key), 1.0)

        ascent = partial(elbo_ascent, target=target, statistics_rate=self.statistics_rate)
        return game(
            self.start,
            critic_loss,
            ascent,
            optimisers,
            critic_steps=self.critic_steps,
            diagnose=diagnose,
        )
