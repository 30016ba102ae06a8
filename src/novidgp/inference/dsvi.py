"""Doubly stochastic variational inference (Salimbeni & Deisenroth 2017); one layer of it is SVGP.

`q(V) = prod_l prod_p N(m_lp, S_lp)` with full covariances; the bound is

    ELBO = (N/B) sum_n E_q[log p(y_n | f_L)] - KL(q || N(0, I)),

with hidden layers sampled through their marginals and the KL in closed form.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from novidgp.inference.base import Fitted, Inference, adam, ascend
from novidgp.inference.ensembles import with_snapshots
from novidgp.model.dgp import DGP
from novidgp.posteriors.base import GaussianPosterior, gaussian_start


class DSVIState(NamedTuple):
    """Model and posterior, optimised together."""

    fitted: Fitted
    opt_state: optax.OptState


def initial_posterior(model: DGP, hidden_scale: float, final_scale: float) -> GaussianPosterior:
    """A small isotropic scale around the mean functions: a nearly deterministic start."""
    return GaussianPosterior(*gaussian_start(model, hidden_scale, final_scale))


def kl_divergence(model: DGP, posterior: GaussianPosterior):
    """`KL(q(V) || N(0, I))`; an unwhitened posterior is whitened first, which leaves the KL as it is."""
    total = 0.0
    for q in model.whiten_gaussian(posterior.factors()):
        diagonal = jnp.diagonal(q.scale, axis1=-2, axis2=-1)
        total += 0.5 * (jnp.sum(q.scale**2) + jnp.sum(q.mean**2) - q.mean.size) - jnp.sum(jnp.log(diagonal))
    return total


def elbo(fitted: Fitted, batch, num_data: int, num_paths: int, *, key):
    """The evidence lower bound on a minibatch, and its data term."""
    path_key, likelihood_key = jax.random.split(key)
    model, posterior = fitted.model, fitted.posterior
    assert isinstance(posterior, GaussianPosterior)
    moments = posterior.propagate(model, batch.x, num_paths if len(model.layers) > 1 else 1, key=path_key)
    rows = model.data_term(moments, batch.y, bound="expected_log", key=likelihood_key)
    data = num_data / batch.x.shape[0] * jnp.sum(jnp.mean(rows, axis=0))
    return data - kl_divergence(model, posterior), data


def dsvi(
    num_data: int,
    steps: int,
    *,
    num_paths: int = 10,
    learning_rate: float = 0.02,
    hidden_scale: float = 1e-2,
    final_scale: float = 1e-1,
    snapshots: bool = False,
    step_scale: float = 1.0,
) -> Inference:
    """DSVI for a training set of `num_data` rows, with a learning-rate schedule over `steps`.

    `snapshots` keeps models from along the way as further members of the predictive mixture, as NOVI does.
    `step_scale` multiplies the learning rate: the trainer lowers it after a divergence.
    """
    optimiser = adam(step_scale * learning_rate, steps)

    def init(model, batch, *, key):
        fitted = Fitted(model, initial_posterior(model, hidden_scale, final_scale))
        return DSVIState(fitted, optimiser.init(fitted))

    def step(state, batch, *, key):
        (bound, data), gradient = jax.value_and_grad(elbo, has_aux=True)(
            state.fitted, batch, num_data, num_paths, key=key
        )
        fitted, opt_state = ascend(optimiser, gradient, state.opt_state, state.fitted)
        info = {
            "loss": -bound / num_data,
            "expected_log_likelihood": data / num_data,
            "gradient_norm": optax.tree.norm(gradient),
        }
        return DSVIState(fitted, opt_state), info

    method = Inference(init, step, lambda state: state.fitted)
    return with_snapshots(method, steps) if snapshots else method
