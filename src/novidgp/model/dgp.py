"""The model: a stack of GP layers and a likelihood. Prior and data term, nothing of inference.

Inducing outputs `v` are a tuple with one `(k, m, p)` array per layer: k draws from the posterior of the
caller.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from novidgp.model.conv_features import ConvFeatureMap
from novidgp.model.feature_map import FeatureMap
from novidgp.model.layers import Basis, Gaussian, Layer, Moments
from novidgp.model.likelihoods import Likelihood
from novidgp.model.local_variable import LocalVariable
from novidgp.numerics.random import normal

Inducing = tuple[Float[Array, "k _m _p"], ...]
"""Draws of the inducing outputs: one array per layer, each with its own number of points and outputs."""
Scales = tuple[Float[Array, "_p _m _m"], ...]
"""One covariance factor per layer and output."""
Count = int | Float[Array, ""] | Int[Array, ""]
"""A number of rows or steps. In compiled programs it is an argument: other numbers compile nothing."""
Bound = Literal["expected_log", "log_expected"]
Scale = Float[Array, "_p _m _m"] | None


class Batch(NamedTuple):
    """Rows of the training set; a missing target is NaN."""

    x: Float[Array, "n d"]
    y: Float[Array, "n t"]
    weight: Float[Array, "n 1"] | None = None
    """How often each row counts: a row of weight 2 is two equal rows. None is once."""


class DGP(eqx.Module):
    """A deep Gaussian process: `y ~ likelihood(f_L(...f_1(x)))`.

    The first layer may see features of x instead of x, and a local variable beside them.
    """

    layers: tuple[Layer, ...]
    likelihood: Likelihood
    whitened: bool = eqx.field(static=True, default=True)
    local_variable: LocalVariable | None = None
    feature_map: FeatureMap | ConvFeatureMap | None = None

    @property
    def dtype(self) -> np.dtype:
        """The type of the model's numbers."""
        return self.layers[0].inducing.dtype

    @property
    def row_size(self) -> int:
        """Numbers in the largest array that a row makes on one path, which bounds the rows of a block."""
        layers = self.layers
        if self.local_variable is None:
            layers = layers[1:] or layers  # the first layer's inputs are the same for all paths
        return max(layer.row_size for layer in layers)

    def inducing_shapes(self) -> tuple[tuple[int, int], ...]:
        """`(m, p)` of every layer's inducing outputs."""
        return tuple((layer.num_inducing, layer.outputs) for layer in self.layers)

    def log_prior(self, v: Inducing) -> Float[Array, " k"]:
        """`log p(V)`, or `log p(U)` where the model is unwhitened."""
        white = self.white(v)
        total = sum(-0.5 * jnp.sum(w * w, axis=(1, 2)) for w in white)
        size = sum(m * p for m, p in self.inducing_shapes())
        total = total - 0.5 * size * jnp.log(2.0 * jnp.pi)
        if not self.whitened:
            total = total + sum(layer.log_det_root() for layer in self.layers)
        return total

    def propagate(
        self, x: Float[Array, "n d"], v: Inducing, *, scales: Scales | None = None, **options: Any
    ) -> Moments:
        """The last layer's moments, `(k, n, p)`, of one path per draw; options as in `last_layer_inputs`."""
        return self.last_layer(self.last_layer_inputs(x, v, scales=scales, **options), v, scales=scales)

    def last_layer(
        self,
        h: Float[Array, "*k n d"],
        v: Inducing,
        *,
        scales: Sequence[Scale] | None = None,
        basis: Basis | None = None,
    ) -> Moments:
        """The last layer's moments at its inputs `h`."""
        scale = None if scales is None else scales[-1]
        return self.layers[-1].conditional(h, self.white(v)[-1], scale, basis=basis)

    def last_layer_inputs(
        self,
        x: Float[Array, "n d"],
        v: Inducing,
        scales: Sequence[Scale] | None = None,
        *,
        share_draws: bool = False,
        local_variable: Float[Array, "k n w"] | None = None,
        key: PRNGKeyArray,
    ) -> Float[Array, "*k n h"]:
        """One path per draw through the hidden layers.

        Layers with a scale (in whitened coordinates) integrate V ~ N(v, scale scale^T) out row by row;
        convolutional ones draw it, once a path. With `share_draws` all paths of a row share one draw of V
        instead: one function at k inputs. The local variable of a model that has one is given, or drawn from
        its prior.
        """
        v = self.white(v)
        spreads = (None,) * len(v) if scales is None else scales
        *layer_keys, local_key = jax.random.split(key, len(v))
        h = self._first_layer_inputs(x, local_variable, len(v[0]), key=local_key)
        for layer, inducing, scale, layer_key in zip(
            self.layers[:-1], v[:-1], spreads[:-1], layer_keys, strict=True
        ):
            noise = None
            if layer.draws_inducing and scale is not None:
                layer_key, draw_key = jax.random.split(layer_key)
                shape = (1, *inducing.shape[1:]) if share_draws else inducing.shape
                drawn = normal(draw_key, shape, inducing.dtype)
                inducing, scale = inducing + jnp.einsum("pij,kjp->kip", scale, drawn), None
            elif share_draws:
                layer_key, noise_key = jax.random.split(layer_key)
                noise = normal(noise_key, (layer.outputs, x.shape[0], layer.num_inducing), x.dtype)
            h = _draw(layer.conditional(h, inducing, scale, noise), key=layer_key)
        return h

    def _first_layer_inputs(
        self,
        x: Float[Array, "n d"],
        local_variable: Float[Array, "k n w"] | None,
        count: int,
        *,
        key: PRNGKeyArray,
    ) -> Float[Array, "*k n h"]:
        h = x if self.feature_map is None else self.feature_map(x)
        if self.local_variable is None:
            return h
        if local_variable is None:
            local_variable = self.local_variable.sample(count, x.shape[0], x.dtype, key=key)
        return self.local_variable.append(h, local_variable)

    def data_term(
        self, moments: Moments, y: Float[Array, "n t"], *, bound: Bound, num_paths: int = 1, key: PRNGKeyArray
    ) -> Float[Array, "k n"]:
        """The log likelihood of each row under each draw, from the last layer's moments.

        `expected_log` averages `E[log p(y | f)]` over the paths of a draw (the variational bound);
        `log_expected` takes `log E[p(y | f)]`, the log of the average over paths. Targets that are
        NaN contribute nothing.
        """
        observed = jnp.isfinite(y)
        target = jnp.where(observed, y, 0.0)
        score = self.likelihood.expected_log_prob if bound == "expected_log" else self.likelihood.log_prob
        rows = jnp.sum(jnp.where(observed, score(target, *moments, key=key), 0.0), axis=-1)
        rows = rows.reshape(-1, num_paths, rows.shape[-1])
        if bound == "expected_log":
            return jnp.mean(rows, axis=1)
        return jax.nn.logsumexp(rows, axis=1) - jnp.log(num_paths)

    def log_likelihood(
        self,
        v: Inducing,
        batch: Batch,
        num_data: Count,
        *,
        num_paths: int = 1,
        bound: Bound = "expected_log",
        scales: Scales | None = None,
        key: PRNGKeyArray,
    ) -> Float[Array, " k"]:
        """`(N/B) sum_n log p(y_n | x_n, V)` of every draw, with `num_paths` paths per draw."""
        path_key, likelihood_key = jax.random.split(key)
        h = self.last_layer_inputs(batch.x, repeat_draws(v, num_paths), scales=scales, key=path_key)
        return self.log_likelihood_at(
            h, v, batch, num_data, num_paths=num_paths, bound=bound, scales=scales, key=likelihood_key
        )

    def log_likelihood_at(
        self,
        h: Float[Array, "*kn _d"],
        v: Inducing,
        batch: Batch,
        num_data: Count,
        *,
        num_paths: int = 1,
        bound: Bound = "expected_log",
        scales: Scales | None = None,
        basis: Basis | None = None,
        key: PRNGKeyArray,
    ) -> Float[Array, " k"]:
        """`log_likelihood` where the last layer's inputs `h`, and perhaps its basis there, are known."""
        moments = self.last_layer(h, repeat_draws(v, num_paths), scales=scales, basis=basis)
        rows = self.data_term(moments, batch.y, bound=bound, num_paths=num_paths, key=key)
        return self.total(rows, batch, num_data)

    @staticmethod
    def total(rows: Float[Array, "*k n"], batch: Batch, num_data: Count) -> Float[Array, "*k"]:
        """The weighted sum over a minibatch, scaled to the training set."""
        rows = rows if batch.weight is None else rows * batch.weight[:, 0]
        return row_weight(num_data, rows.shape[-1]) * jnp.sum(rows, axis=-1)

    def log_joint(
        self, v: Inducing, batch: Batch, num_data: Count, *, key: PRNGKeyArray, **options: Any
    ) -> Float[Array, " k"]:
        """`log p(V) + log p(y | x, V)` of every draw, up to the bound chosen in `options`."""
        return self.log_prior(v) + self.log_likelihood(v, batch, num_data, key=key, **options)

    def whiten_scales(self, scales: Scales) -> Scales:
        """Covariance factors of the model's inducing outputs in whitened coordinates."""
        if self.whitened:
            return scales
        return tuple(layer.whiten_scale(scale) for layer, scale in zip(self.layers, scales, strict=True))

    def inducing_start(self) -> tuple[Float[Array, "_m _p"], ...]:
        """The inducing outputs at which every layer follows its mean function."""
        return tuple(
            jnp.zeros_like(layer.inducing_mean()) if self.whitened else layer.inducing_mean()
            for layer in self.layers
        )

    def whiten_gaussian(self, q: tuple[Gaussian, ...]) -> tuple[Gaussian, ...]:
        """A Gaussian over the model's inducing outputs in whitened coordinates."""
        if self.whitened:
            return q
        return tuple(
            Gaussian(layer.whiten(g.mean[None])[0], layer.whiten_scale(g.scale))
            for layer, g in zip(self.layers, q, strict=True)
        )

    def white(self, v: Inducing) -> Inducing:
        """Inducing outputs in whitened coordinates, where the prior is standard normal."""
        if self.whitened:
            return v
        return tuple(layer.whiten(u) for layer, u in zip(self.layers, v, strict=True))


def repeat_draws(v: Inducing, num_paths: int) -> tuple[Float[Array, "_kp _m _p"], ...]:
    """Every draw `num_paths` times, for as many paths through the layers."""
    return tuple(jnp.repeat(w, num_paths, axis=0) for w in v) if num_paths > 1 else v


def row_weight(num_data: Count, batch_rows: int) -> Float[Array, ""]:
    """The factor N/B, which is here and nowhere else. A batch of N rows or more is all the data, padded."""
    return num_data / jnp.minimum(batch_rows, num_data)


def _draw(moments: Moments, *, key: PRNGKeyArray) -> Float[Array, "k n p"]:
    noise = normal(key, moments.mean.shape, moments.mean.dtype)
    return moments.mean + jnp.sqrt(moments.variance) * noise


def clip_hyperparameters(model: DGP, low: float, high: float) -> DGP:
    """The compactness constraint of Theorem 1: every positive parameter kept within `[low, high]`."""

    def clip(path, leaf):
        return jnp.clip(leaf, np.log(low), np.log(high)) if path[-1].name.startswith("log_") else leaf

    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: clip(path, leaf) if hasattr(path[-1], "name") else leaf, model
    )
