"""Importance-weighted variational inference (Salimbeni et al. 2019), and its doubly reparametrised gradient.

The model has a local latent variable `w_n ~ N(0, I)`; an encoder proposes `q(w_n | x_n, y_n)`, and K weighted
draws of it make

    bound = (N/B) sum_n E[ log 1/K sum_k r_nk ] - KL(q(V) || N(0, I)),
    log r_nk = E_q[log p(y_n | f_L)] + log p(w_nk) - log q(w_nk | x_n, y_n).

q(V) is Gaussian as in DSVI. The last layer's V is integrated inside `log r` (a bound by Jensen); the hidden
layers' V is drawn once per row and shared by its K draws, for they are inputs of one function. What the
inducing points leave unexplained is noise of the draw, importance-weighted along with `w`.

`gradient="dreg"` is for the encoder alone: `sum_k s_k^2 (d log r_k / d w_k) (d w_k / d phi)`, with `s` the
weights over their sum and `phi` held fixed in `log q` (Tucker et al. 2019; for deep GPs Rudner et al. 2021).
It has the mean of the plain gradient, and a signal-to-noise ratio that grows with K where that one's falls.
"""

import dataclasses
from typing import ClassVar, Literal, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.inference.base import Inference, Method
from novidgp.inference.optim import adam, ascend, norm
from novidgp.inference.options import option
from novidgp.model.dgp import DGP, Batch, Count
from novidgp.numerics.nets import MLP, Activation, mlp
from novidgp.numerics.random import normal
from novidgp.posteriors.fitted import Fitted
from novidgp.posteriors.gaussian import GaussianPosterior, gaussian_start, kl_divergence


class Proposal(NamedTuple):
    """`q(w | x, y)`: independent Gaussians."""

    mean: Float[Array, "n w"]
    log_scale: Float[Array, "n w"]

    def sample(self, count: int, *, key) -> Float[Array, "k n w"]:
        """`mean + scale eps`."""
        return self.mean + jnp.exp(self.log_scale) * normal(key, (count, *self.mean.shape), self.mean.dtype)

    def log_prob(self, w: Float[Array, "k n w"]) -> Float[Array, "k n"]:
        """The density of every row's draws."""
        white = (w - self.mean) * jnp.exp(-self.log_scale)
        return -0.5 * jnp.sum(white**2 + 2.0 * self.log_scale + jnp.log(2.0 * jnp.pi), axis=-1)


class Encoder(eqx.Module):
    """The amortised proposal: a network from a row and its target to a Gaussian over w."""

    network: MLP
    start: float = eqx.field(static=True)

    def __call__(self, batch: Batch) -> Proposal:
        """The proposal of every row. Targets may be large counts, which are tamed, or missing: zero."""
        targets = jnp.arcsinh(jnp.where(jnp.isfinite(batch.y), batch.y, 0.0))
        output = self.network(jnp.concatenate([batch.x, targets], axis=-1))
        mean, log_scale = jnp.split(output, 2, axis=-1)
        return Proposal(mean, jnp.clip(log_scale + np.log(self.start), -8.0, 3.0))


class IWVIState(NamedTuple):
    """Model and posterior, and the encoder: two groups, each with its optimiser."""

    fitted: Fitted
    encoder: Encoder | None
    fitted_opt: optax.OptState
    encoder_opt: optax.OptState | None


def log_ratios(
    fitted: Fitted,
    batch: Batch,
    w: Float[Array, "k n w"] | None,
    proposal: Proposal | None,
    count: int,
    *,
    key: PRNGKeyArray,
) -> Float[Array, "k n"]:
    """`log r`: each depends on its own draw of w only."""
    model, posterior = _gaussian(fitted)
    path_key, likelihood_key = jax.random.split(key)
    factors = posterior.factors()
    centres = tuple(jnp.broadcast_to(q.mean, (count, *q.mean.shape)) for q in factors)
    scales = model.whiten_scales(tuple(q.scale for q in factors))
    moments = model.propagate(
        batch.x, centres, scales=scales, share_draws=True, local_variable=w, key=path_key
    )
    ratios = model.data_term(moments, batch.y, bound="expected_log", key=likelihood_key)
    if model.local_variable is None or proposal is None or w is None:
        return ratios
    observed = jnp.any(jnp.isfinite(batch.y), axis=-1)
    return ratios + jnp.where(observed, model.local_variable.log_prior(w) - proposal.log_prob(w), 0.0)


def _gaussian(fitted: Fitted) -> tuple[DGP, GaussianPosterior]:
    assert isinstance(fitted.posterior, GaussianPosterior)
    return fitted.model, fitted.posterior


def importance_bound(
    fitted: Fitted,
    w: Float[Array, "k n w"] | None,
    proposal: Proposal | None,
    batch: Batch,
    num_data: Count,
    count: int,
    *,
    copies: int = 1,
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], tuple[Float[Array, ""], Float[Array, "k n"]]]:
    """The bound on a minibatch that has every row `copies` times; its data term and the normalised
    weights."""
    ratios = log_ratios(fitted, batch, w, proposal, count, key=key)
    rows = jax.nn.logsumexp(ratios, axis=0) - np.log(count)
    rows = jnp.mean(rows.reshape(copies, -1), axis=0)
    data = fitted.model.total(rows, jax.tree.map(lambda a: a[: len(rows)], batch), num_data)
    return data - kl_divergence(*_gaussian(fitted)), (data, jax.nn.softmax(ratios, axis=0))


def bound_gradients(
    fitted: Fitted,
    encoder: Encoder | None,
    batch: Batch,
    num_data: Count,
    count: int,
    gradient: Literal["plain", "dreg"],
    *,
    copies: int = 1,
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], tuple[Float[Array, ""], Float[Array, "k n"]], tuple[Fitted, Encoder | None]]:
    """The bound, its parts, and its gradients in (model and posterior, encoder): one pass for both.

    The encoder's gradient comes by way of `w` and of the density `log q`. The doubly reparametrised one
    drops the second part and weighs the first once more.
    """
    draw_key, path_key = jax.random.split(key)

    def draw(encoder):
        if encoder is None:
            return None, None
        proposal = encoder(batch)
        return proposal.sample(count, key=draw_key), proposal

    (w, proposal), pull_back = jax.vjp(draw, encoder)
    (value, parts), (fitted_gradient, *slopes) = jax.value_and_grad(
        importance_bound, argnums=(0, 1, 2), has_aux=True
    )(fitted, w, proposal, batch, num_data, count, copies=copies, key=path_key)
    if gradient == "dreg" and encoder is not None:
        slopes = [parts[1][..., None] * slopes[0], jax.tree.map(jnp.zeros_like, slopes[1])]
    (encoder_gradient,) = pull_back(tuple(slopes))
    return value, parts, (fitted_gradient, encoder_gradient)


@dataclasses.dataclass(frozen=True)
class AbstractIWVI(Method):
    """Importance-weighted variational inference, whichever gradient the encoder follows.

    `num_samples` is the paper's K, and every row is taken `num_paths` times. `width`, `depth`, `activation`
    and `encoder_scale` (the proposal's first standard deviation) describe the encoder.
    """

    uses_local_variable: ClassVar[bool] = True
    gradient: ClassVar[Literal["plain", "dreg"]]
    num_samples: int = 5
    num_paths: int = 1
    learning_rate: float = 0.02
    encoder_rate: float = 5e-3
    width: int = 32
    depth: int = option(2, least=0)
    activation: Activation = "tanh"
    encoder_scale: float = 0.1
    initial_hidden_std: float = 1e-2
    initial_final_std: float = 1e-1

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        fitted_optimiser, encoder_optimiser = (
            adam(step_scale * rate, steps) for rate in (self.learning_rate, self.encoder_rate)
        )

        def init(model, batch, *, key):
            start = gaussian_start(model.inducing_start(), self.initial_hidden_std, self.initial_final_std)
            fitted = Fitted(model, GaussianPosterior(*start))
            encoder = None
            if model.local_variable is not None:
                inputs = batch.x.shape[1] + batch.y.shape[1]
                shape = {"width": self.width, "depth": self.depth, "activation": self.activation}
                network = mlp(inputs, 2 * model.local_variable.width, **shape, dtype=batch.x.dtype, key=key)
                encoder = Encoder(network, self.encoder_scale)
            encoder_opt = None if encoder is None else encoder_optimiser.init(encoder)
            return IWVIState(fitted, encoder, fitted_optimiser.init(fitted), encoder_opt)

        def step(state, batch: Batch, *, key):
            rows = jax.tree.map(lambda a: jnp.tile(a, (self.num_paths, 1)), batch)
            value, (data, weights), (fitted_gradient, encoder_gradient) = bound_gradients(
                state.fitted,
                state.encoder,
                rows,
                num_data,
                self.num_samples,
                self.gradient,
                copies=self.num_paths,
                key=key,
            )
            fitted, fitted_opt = ascend(fitted_optimiser, fitted_gradient, state.fitted_opt, state.fitted)
            encoder, encoder_opt = state.encoder, state.encoder_opt
            if encoder is not None:
                encoder, encoder_opt = ascend(encoder_optimiser, encoder_gradient, encoder_opt, encoder)
            info = {
                "loss": -value / num_data,
                "expected_log_likelihood": data / num_data,
                "effective_samples": jnp.mean(1.0 / jnp.sum(weights**2, axis=0)),
                "gradient_norm": norm(fitted_gradient),
                "encoder_gradient_norm": norm(encoder_gradient),
            }
            return IWVIState(fitted, encoder, fitted_opt, encoder_opt), info

        return Inference(init, step, lambda state: state.fitted)


@final
@dataclasses.dataclass(frozen=True)
class IWVI(AbstractIWVI):
    """Importance-weighted variational inference."""

    name: ClassVar[str] = "iwvi"
    gradient: ClassVar[Literal["plain", "dreg"]] = "plain"


@final
@dataclasses.dataclass(frozen=True)
class IWVIDReG(AbstractIWVI):
    """IWVI with the doubly reparametrised gradient for the encoder."""

    name: ClassVar[str] = "iwvi-dreg"
    gradient: ClassVar[Literal["plain", "dreg"]] = "dreg"
