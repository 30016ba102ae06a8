"""Maximum likelihood: one point instead of a posterior, the ablation of the paper.

V and the hyper-parameters ascend the Monte-Carlo likelihood together,

    (N/B) sum_n log( 1/S sum_s p(y_n | F_L,n^(s)) ),

with S paths through the layers' conditionals and no prior on V. Nothing restrains V: with as many inducing
points as rows it interpolates the targets. Use it to see what a posterior is good for.
"""

import dataclasses
from typing import ClassVar, NamedTuple, final

import jax
import optax

from novidgp.inference.base import Inference, Method
from novidgp.inference.optim import adam, ascend, norm
from novidgp.model.dgp import Bound
from novidgp.posteriors.draws import Delta
from novidgp.posteriors.fitted import Fitted


class MLState(NamedTuple):
    """Model and inducing outputs, optimised together."""

    fitted: Fitted
    opt_state: optax.OptState


@final
@dataclasses.dataclass(frozen=True)
class MaximumLikelihood(Method):
    """Maximum likelihood over inducing outputs and hyper-parameters, with `num_paths` paths per row."""

    name: ClassVar[str] = "ml"
    num_paths: int = 10
    bound: Bound = "log_expected"
    learning_rate: float = 0.02

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        optimiser = adam(step_scale * self.learning_rate, steps)

        def init(model, batch, *, key):
            fitted = Fitted(model, Delta(model.inducing_start()))
            return MLState(fitted, optimiser.init(fitted))

        def log_likelihood(fitted, batch, key):
            v = tuple(point[None] for point in fitted.posterior.point)
            paths = self.num_paths if len(fitted.model.layers) > 1 else 1
            return fitted.model.log_likelihood(
                v, batch, num_data, num_paths=paths, bound=self.bound, key=key
            )[0]

        def step(state, batch, *, key):
            value, gradient = jax.value_and_grad(log_likelihood)(state.fitted, batch, key)
            fitted, opt_state = ascend(optimiser, gradient, state.opt_state, state.fitted)
            info = {"loss": -value / num_data, "gradient_norm": norm(gradient)}
            return MLState(fitted, opt_state), info

        return Inference(init, step, lambda state: state.fitted)
