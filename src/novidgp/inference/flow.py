"""Variational inference with a normalising flow (Rezende & Mohamed 2015; for deep GPs Yu et al. 2021).

The posterior is a generator like NOVI's, but every step of it is inverted in closed form. Its density is
known, hence also its entropy, and the evidence lower bound

    ELBO = E_q[log p(y | V) + log p(V) - log q(V)]

is climbed from joint draws of V without a critic. What it pays is the form of its steps, and that no part
of V is integrated out.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.inference.base import Inference, Method
from novidgp.inference.optim import adam, adam_per_field, ascend, norm
from novidgp.inference.options import option, refuse_idle
from novidgp.model.dgp import Bound, Inducing
from novidgp.numerics.nets import Activation, NetworkShape
from novidgp.posteriors.fitted import Fitted
from novidgp.posteriors.flow import FlowPosterior, flow_posterior

_NORMAL_ENTROPY = 0.5 * math.log(2.0 * math.pi * math.e)


class FlowState(NamedTuple):
    """Model and posterior, and the optimisers of both."""

    fitted: Fitted
    model_opt: optax.OptState
    posterior_opt: optax.OptState


def evidence_lower_bound(
    posterior: FlowPosterior,
    log_joint: Callable[[Inducing], Float[Array, " k"]],
    count: int,
    *,
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """`E_q[log_joint(V)] + H(q)` from `count` draws of V. `log_joint` takes them all."""
    v, log_density = posterior.sample_with_density(count, key=key)
    size = sum(mean.size for mean in posterior.mean)
    return jnp.mean(log_joint(v) - log_density) + size * _NORMAL_ENTROPY


@final
@dataclasses.dataclass(frozen=True)
class Flow(Method):
    """Variational inference with a normalising flow.

    `num_samples` draws of V with `num_paths` paths each make a step. The flow has `couplings` layers, each a
    network of `depth` hidden layers of `width` units; none leave a Gaussian. `couplings_rate` is their
    learning rate, the other rates are those of the Gaussian map and of the model.
    """

    name: ClassVar[str] = "flow"
    num_samples: int = 10
    num_paths: int = 1
    bound: Bound = "expected_log"
    couplings: int = option(4, least=0)
    width: int = 64
    depth: int = option(1, least=0)
    activation: Activation = "tanh"
    mean_rate: float = 0.02
    scale_rate: float = 0.02
    lower_rate: float = 5e-3
    couplings_rate: float = 1e-3
    model_rate: float = 0.02
    initial_hidden_std: float = 1e-2
    initial_final_std: float = 1e-1

    def __post_init__(self):
        super().__post_init__()
        if not self.couplings:
            refuse_idle(self, ("width", "depth", "activation", "couplings_rate"), "couplings=0")

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        model_optimiser = adam(step_scale * self.model_rate, steps)
        posterior_optimiser = adam_per_field(
            steps,
            mean=step_scale * self.mean_rate,
            log_diagonal=step_scale * self.scale_rate,
            lower=step_scale * self.lower_rate,
            couplings=step_scale * self.couplings_rate,
        )

        def init(model, batch, *, key):
            posterior = flow_posterior(
                model.inducing_start(),
                self.couplings,
                NetworkShape(self.width, self.depth, self.activation),
                initial_hidden_std=self.initial_hidden_std,
                initial_final_std=self.initial_final_std,
                key=key,
            )
            fitted = Fitted(model, posterior)
            return FlowState(fitted, model_optimiser.init(model), posterior_optimiser.init(posterior))

        def step(state, batch, *, key):
            draw_key, path_key = jax.random.split(key)

            def bound(model, posterior):
                def log_joint(v):
                    options = {"num_paths": self.num_paths, "bound": self.bound, "key": path_key}
                    return model.log_joint(v, batch, num_data, **options)

                return evidence_lower_bound(posterior, log_joint, self.num_samples, key=draw_key)

            model, posterior, _ = state.fitted
            elbo, gradients = jax.value_and_grad(bound, argnums=(0, 1))(model, posterior)
            model, model_opt = ascend(model_optimiser, gradients[0], state.model_opt, model)
            posterior, posterior_opt = ascend(
                posterior_optimiser, gradients[1], state.posterior_opt, posterior
            )
            info = {"loss": -elbo / num_data, "gradient_norm": norm(gradients)}
            return FlowState(Fitted(model, posterior), model_opt, posterior_opt), info

        return Inference(init, step, lambda state: state.fitted)
