"""Everything of a prediction that does not depend on the rows, worked out once for a fitted model.

A layer needs `A V` and `1 - |A|^2 + |A S|^2`, where `A = k R^T` and S is the scale of a Gaussian over V that
is integrated out. With `I - S S^T = Q diag(w) Q^T` and the rotated basis `B = k (R^T Q)` these are

    B (Q^T V)   and   1 - sum_j w_j B_j^2:

one product with an m x m matrix for every row and path instead of two, as accurate as before because Q is
orthogonal. What is left for a row are kernel values, that product, and two sums.

The noise of the layers is the same for all rows, so that a row's prediction does not depend on the others.
Beside the paths there is one more without noise, through the posterior's mean V: it leads to the hidden
features, the inputs of the last layer.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.model.dgp import DGP, Inducing, Scale
from novidgp.model.layers import Layer, Moments, Projection
from novidgp.model.likelihoods import Likelihood
from novidgp.numerics.compilation import RUN_ONCE, precision
from novidgp.numerics.linalg import single_threaded_lapack
from novidgp.numerics.random import fast_key, normal
from novidgp.posteriors.fitted import Fitted
from novidgp.posteriors.wide import WideLayer

_CENTRE_DRAWS = 256
"""Draws whose mean stands for the posterior's."""


class Prepared(NamedTuple):
    """Paths through the members of a mixture, which are on the leading axis of every array.

    Hidden layers have one path more, the last, without noise.
    """

    model: DGP
    projections: tuple[Projection, ...]
    v: Inducing
    """In the coordinates of the projections, for every layer `(k, m, p)`."""
    noise: tuple[Float[Array, "k 1 _w"], ...]
    """Of the hidden layers."""
    local_variable: Float[Array, "k 1 w"] | None
    wide: WideLayer | None = None
    """In the place of the last layer, without a members' axis: there is one member then."""


class _Drawn(NamedTuple):
    """A mixture with its draws, before its bases are rotated."""

    model: DGP
    likelihood: Likelihood
    roots: tuple[Float[Array, "q _m _m"], ...]
    v: Inducing
    scales: tuple[Scale, ...]
    noise: tuple[Float[Array, "k 1 _w"], ...]
    local_variable: Float[Array, "k 1 w"] | None


def prepare(fitted: Fitted, num_paths: int, *, key: PRNGKeyArray) -> tuple[Likelihood, Prepared]:
    """At least `num_paths` paths, an equal share of them through each member, on the device; and the
    likelihood of every path, on the host."""
    with precision(fitted.model.dtype.name), single_threaded_lapack():
        drawn = jax.tree.map(np.asarray, _draw(fitted, num_paths, key))
        rotated = [_rotated(*parts) for parts in zip(drawn.roots, drawn.v, drawn.scales, strict=True)]
        projections, v = zip(*rotated, strict=True)
        prepared = Prepared(drawn.model, projections, v, drawn.noise, drawn.local_variable)
        return drawn.likelihood, jax.device_put(prepared)


@functools.partial(jax.jit, static_argnums=1, compiler_options=RUN_ONCE)
def _draw(fitted: Fitted, num_paths: int, key: PRNGKeyArray) -> _Drawn:
    members = fitted.members()
    count = len(jax.tree.leaves(members)[0])
    share = -(-num_paths // count)
    keys = key[None] if count == 1 else jax.random.split(key, count)
    drawn = jax.lax.map(lambda member: _draw_member(member[0], member[1], share), (members, keys))
    return drawn._replace(likelihood=jax.tree.map(lambda a: jnp.repeat(a, share, axis=0), drawn.likelihood))


def _draw_member(fitted: Fitted, key: PRNGKeyArray, count: int) -> _Drawn:
    """Draws as in `DGP.last_layer_inputs`, for one row."""
    model = fitted.model
    paths = fitted.posterior.paths(model, count, key=key)
    v, centre = (list(model.white(part)) for part in (paths.v, _centre(fitted)))
    scales: list[Scale] = [None] * len(v) if paths.scales is None else list(paths.scales)
    *layer_keys, local_key = jax.random.split(paths.key, len(v))
    noise = []
    for index, layer_key in enumerate(layer_keys):
        layer, scale = model.layers[index], scales[index]
        if layer.draws_inducing and scale is not None:
            layer_key, draw_key = jax.random.split(layer_key)
            drawn = normal(draw_key, v[index].shape, model.dtype)
            v[index], scales[index] = v[index] + jnp.einsum("pij,kjp->kip", scale, drawn), None
        v[index] = jnp.concatenate([v[index], centre[index]])
        noise.append(_with_zero(normal(layer_key, (count, 1, layer.width), model.dtype)))
    local = None
    if model.local_variable is not None:
        local = model.local_variable.sample(count, 1, model.dtype, key=local_key)
        local = _with_zero(local) if noise else local
    roots = tuple(layer.root() for layer in model.layers)
    return _Drawn(model, model.likelihood, roots, tuple(v), tuple(scales), tuple(noise), local)


def _centre(fitted: Fitted) -> Inducing:
    """The mean of V, as one draw."""
    draws = fitted.posterior.sample(_CENTRE_DRAWS, key=fast_key(jax.random.key(0)))
    return tuple(jnp.mean(v, axis=0, keepdims=True) for v in draws)


def _with_zero(noise: Float[Array, "k n w"]) -> Float[Array, "_k n w"]:
    return jnp.concatenate([noise, jnp.zeros_like(noise[:1])])


def _rotated(root: Any, v: Any, scale: Any) -> tuple[Projection, Any]:
    """Projection and inducing outputs of one layer, members first, from NumPy arrays of its root `R`, outputs
    and scale; in double precision up to the result."""
    root = np.swapaxes(root, -1, -2)
    if scale is None:
        return Projection(root, None), v
    wide = np.asarray(scale, np.float64)
    weight, rotation = np.linalg.eigh(np.eye(wide.shape[-1]) - wide @ np.swapaxes(wide, -1, -2))
    turned = np.einsum("epji,ekjp->ekip", rotation, v, optimize=True)
    matrix, weight, turned = (part.astype(root.dtype) for part in (root @ rotation, weight, turned))
    return Projection(matrix, weight), turned


def propagate(prepared: Prepared, x: Float[Array, "n d"]) -> tuple[Moments, Float[Array, "n h"] | None]:
    """Moments `(k, n, p)` of all paths at the rows `x`, and the last member's hidden features; None where
    there is no hidden layer."""
    if prepared.wide is not None:
        return _through_wide(prepared, prepared.wide, x)
    moments, features = jax.lax.map(lambda member: _through(member, x), prepared)
    moments = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), moments)
    return moments, None if features is None else features[-1]


def _through_wide(prepared: Prepared, wide: WideLayer, x: Float[Array, "n d"]) -> tuple[Moments, Any]:
    """All paths alike: hidden layers follow their means."""
    h = hidden_features(prepared, x)
    last: Layer = jax.tree.map(lambda a: a[0], prepared.model.layers[-1])
    shape = (prepared.v[-1].shape[1], len(x), last.outputs)
    moments = Moments(*(jnp.broadcast_to(part, shape) for part in wide.moments(last, h)))
    return moments, h if prepared.noise else None


def _through(prepared: Prepared, x: Float[Array, "n d"]) -> tuple[Moments, Any]:
    h = _first_inputs(prepared, x)
    for layer, projection, v, noise in _hidden_layers(prepared):
        moments = layer.conditional(h, v, basis=layer.basis(h, projection))
        h = moments.mean + jnp.sqrt(moments.variance) * noise
    features, h = (h[-1], h[:-1]) if prepared.noise else (None, h)
    last, projection, v = prepared.model.layers[-1], prepared.projections[-1], prepared.v[-1]
    moments = last.conditional(h, v, basis=last.basis(h, projection))
    return Moments(moments.mean, jnp.broadcast_to(moments.variance, moments.mean.shape)), features


def hidden_features(prepared: Prepared, x: Float[Array, "n d"]) -> Float[Array, "n h"]:
    """The last layer's inputs on the path without noise of the only member."""
    member = jax.tree.map(lambda a: a[0], prepared._replace(wide=None))
    h = _first_inputs(member, x)
    h = h[-1] if h.ndim == 3 else h
    for layer, projection, v, _ in _hidden_layers(member):
        h = layer.conditional(h, v[-1:], basis=layer.basis(h, projection)).mean[0]
    return h


def _first_inputs(prepared: Prepared, x: Float[Array, "n d"]) -> Float[Array, "*k n h"]:
    model = prepared.model
    h = x if model.feature_map is None else model.feature_map(x)
    if model.local_variable is None or prepared.local_variable is None:
        return h
    return model.local_variable.append(h, jnp.repeat(prepared.local_variable, len(x), axis=1))


def _hidden_layers(prepared: Prepared) -> Iterator[tuple[Layer, Projection, Any, Any]]:
    return zip(
        prepared.model.layers[:-1], prepared.projections[:-1], prepared.v[:-1], prepared.noise, strict=True
    )
