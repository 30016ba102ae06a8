"""Maximum likelihood: one point instead of a posterior, the ablation of the paper.

V and the hyper-parameters ascend the Monte-Carlo likelihood together,

    (N/B) sum_n log( 1/S sum_s p(y_n | F_L,n^(s)) ),

with S paths through the layers' conditionals and no prior on V. Nothing holds V back: with as many inducing
points as rows it interpolates the targets. Use it to see what a posterior is good for.
"""

from typing import NamedTuple

import jax
import optax

from novidgp.inference.base import Fitted, Inference, adam, ascend
from novidgp.model.dgp import Bound
from novidgp.posteriors.base import Delta


class MLState(NamedTuple):
    """Model and inducing outputs, optimised together."""

    fitted: Fitted
    opt_state: optax.OptState


def ml(
    num_data: int,
    steps: int,
    *,
    num_paths: int = 10,
    bound: Bound = "log_expected",
    learning_rate: float = 0.02,
    step_scale: float = 1.0,
) -> Inference:
    """Maximum likelihood for a training set of `num_data` rows, with a schedule over `steps`."""
    optimiser = adam(step_scale * learning_rate, steps)

    def init(model, batch, *, key):
        fitted = Fitted(model, Delta(model.inducing_start()))
        return MLState(fitted, optimiser.init(fitted))

    def log_likelihood(fitted, batch, key):
        v = tuple(point[None] for point in fitted.posterior.point)
        paths = num_paths if len(fitted.model.layers) > 1 else 1
        return fitted.model.log_likelihood(v, batch, num_data, num_paths=paths, bound=bound, key=key)[0]

    def step(state, batch, *, key):
        value, gradient = jax.value_and_grad(log_likelihood)(state.fitted, batch, key)
        fitted, opt_state = ascend(optimiser, gradient, state.opt_state, state.fitted)
        info = {"loss": -value / num_data, "gradient_norm": optax.tree.norm(gradient)}
        return MLState(fitted, opt_state), info

    return Inference(init, step, lambda state: state.fitted)
