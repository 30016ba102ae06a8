"""Doubly stochastic variational inference (Salimbeni & Deisenroth 2017); one layer of it is SVGP.

`q(V) = prod_l prod_p N(m_lp, S_lp)` with full covariances; the bound is

    ELBO = (N/B) sum_n E_q[log p(y_n | f_L)] - KL(q || N(0, I)),

with hidden layers sampled through their marginals and the KL in closed form.
"""

import dataclasses
from typing import ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.inference.base import Inference, Method
from novidgp.inference.optim import adam, ascend, norm
from novidgp.model.dgp import Batch, Count
from novidgp.posteriors.fitted import Fitted
from novidgp.posteriors.gaussian import GaussianPosterior, gaussian_start, kl_divergence


class DSVIState(NamedTuple):
    """Model and posterior, optimised together."""

    fitted: Fitted
    opt_state: optax.OptState


def evidence_lower_bound(
    fitted: Fitted, batch: Batch, num_data: Count, num_paths: int, *, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The bound on a minibatch, and its data term."""
    path_key, likelihood_key = jax.random.split(key)
    model, posterior = fitted.model, fitted.posterior
    assert isinstance(posterior, GaussianPosterior)
    moments = posterior.propagate(model, batch.x, num_paths if len(model.layers) > 1 else 1, key=path_key)
    rows = model.data_term(moments, batch.y, bound="expected_log", key=likelihood_key)
    data = model.total(jnp.mean(rows, axis=0), batch, num_data)
    return data - kl_divergence(model, posterior), data


@final
@dataclasses.dataclass(frozen=True)
class DSVI(Method):
    """Doubly stochastic variational inference.

    `num_paths` is the number of Monte-Carlo paths through the hidden layers. The standard deviations of q
    start at `initial_hidden_std` and `initial_final_std`. `snapshots` keeps models from the course of
    training as members of the predictive mixture, as NOVI does on small data.
    """

    name: ClassVar[str] = "dsvi"
    num_paths: int = 10
    learning_rate: float = 0.02
    initial_hidden_std: float = 1e-2
    initial_final_std: float = 1e-1
    snapshots: bool = False

    def keeps_snapshots(self, num_data):
        return self.snapshots

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        optimiser = adam(step_scale * self.learning_rate, steps)

        def init(model, batch, *, key):
            start = gaussian_start(model.inducing_start(), self.initial_hidden_std, self.initial_final_std)
            fitted = Fitted(model, GaussianPosterior(*start))
            return DSVIState(fitted, optimiser.init(fitted))

        def step(state, batch, *, key):
            (elbo, data), gradient = jax.value_and_grad(evidence_lower_bound, has_aux=True)(
                state.fitted, batch, num_data, self.num_paths, key=key
            )
            fitted, opt_state = ascend(optimiser, gradient, state.opt_state, state.fitted)
            info = {
                "loss": -elbo / num_data,
                "expected_log_likelihood": data / num_data,
                "gradient_norm": norm(gradient),
            }
            return DSVIState(fitted, opt_state), info

        return Inference(init, step, lambda state: state.fitted)
