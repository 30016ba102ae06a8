"""Several starts: a method run side by side from models that begin in different places.

Where the hyper-parameters of a deep GP settle depends on where they start, on small data by as much as one
method differs from another. The mixture over starts is the plainest posterior over hyper-parameters there is:
twice the time for two.
"""

import jax
import jax.numpy as jnp

from novidgp.inference.base import Fitted, Inference


def with_starts(inference: Inference) -> Inference:
    """`inference` for a model whose arrays have a leading axis of starts (`base.stacked` makes one).

    A step advances all starts on the same batch, one after another, each with noise of its own; its info is
    the mean of theirs. What they fit is one mixture.
    """

    def each(function, trees, key):
        keys = jax.random.split(key, len(jax.tree.leaves(trees)[0]))
        return jax.lax.map(lambda pair: function(pair[0], key=pair[1]), (trees, keys))

    def init(models, batch, *, key):
        return each(lambda model, key: inference.init(model, batch, key=key), models, key)

    def step(states, batch, *, key):
        states, infos = each(lambda state, key: inference.step(state, batch, key=key), states, key)
        return states, jax.tree.map(lambda values: jnp.mean(values, axis=0), infos)

    def fitted(states):
        grid = jax.lax.map(lambda state: inference.fitted(state).members(), states)
        members = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), grid)
        model, posterior, _ = jax.tree.map(lambda a: a[-1], members)
        return Fitted(model, posterior, jax.tree.map(lambda a: a[:-1], members))

    return Inference(init, step, fitted)
