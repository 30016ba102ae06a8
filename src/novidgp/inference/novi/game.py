"""The game that NOVI and IPVI play: a generator and hyper-parameters against a critic, in turns.

In every step the critic takes a few steps of its own against the present generator, then generator and model
ascend together. What the critic minimises and what the others ascend are pure functions that a method passes
in.

A game may begin with an opening: steps in which the model and the generator's hidden means go by L-BFGS, and
all else in the generator rests. Where the last layer is solved for, a hundred of them do the work of hundreds
of Adam's.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.inference import quasi_newton
from novidgp.inference.base import DiagnoseFn, Inference, Info
from novidgp.inference.optim import ascend, descend, norm
from novidgp.model.dgp import Count
from novidgp.posteriors.fitted import Fitted
from novidgp.posteriors.generators import AbstractGenerator

Model = Any
"""A `DGP`, or any pytree of parameters where the target is another density."""
Memory = Any
"""What a game carries from step to step beside players and optimisers; None for most."""


class Players(NamedTuple):
    """The players. Also the form of their optimisers and of the optimisers' states."""

    model: Model
    generator: Any
    critic: Any


class Keys(NamedTuple):
    """The noise of an ascent, by its use."""

    draws: PRNGKeyArray
    paths: PRNGKeyArray
    extra: PRNGKeyArray


class Ascent(NamedTuple):
    """The directions in which model and generator go up, and what was solved for on the way."""

    model: Model
    generator: AbstractGenerator
    solved: AbstractGenerator
    """The generator to step from: the present one, with the parts that have a closed form filled in."""
    memory: Memory
    info: Info


@runtime_checkable
class CriticLoss(Protocol):
    """What the critic minimises."""

    def __call__(
        self, critic: Any, players: Players, memory: Memory, batch: Any, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Memory]:
        """The loss of `critic` against the present players, and the memory after this step."""
        ...


@runtime_checkable
class AscentFn(Protocol):
    """Where generator and model go."""

    def __call__(self, players: Players, memory: Memory, batch: Any, *, keys: Keys) -> Ascent:
        """The ascent directions with the critic held fixed."""
        ...


class Opening(NamedTuple):
    """How many quasi-Newton steps come first, for a model, and the rows that the loss is a mean of."""

    steps: Callable[[Model], Count]
    num_data: Count


class GameState(NamedTuple):
    """Players, the states of their optimisers, the memory, and the search of an opening."""

    players: Players
    opt_states: Players
    memory: Memory
    search: quasi_newton.Search | None = None


def game(
    start: Callable[..., tuple[Players, Memory]],
    critic_loss: CriticLoss,
    ascent: AscentFn,
    optimisers: Callable[[Memory], Players],
    *,
    critic_steps: int,
    opening: Opening | None = None,
    project: Callable[[Model], Model] = lambda model: model,
    diagnose: DiagnoseFn | None = None,
) -> Inference:
    """The alternation: `critic_steps` steps of the critic, one ascent of generator and model.

    `start(model, key=key)` makes the players and the memory. A critic that is None is not trained. `opening`
    says how many quasi-Newton steps come first. `project` maps the model back into its constraints after
    every step.
    """

    def init(model, batch, *, key):
        players, memory = start(model, key=key)
        pairs = zip(optimisers(memory), players, strict=True)
        states = (None if player is None else optimiser.init(player) for optimiser, player in pairs)
        search = None
        if opening is not None and not _never(opening.steps(model)):
            search = quasi_newton.begin(ravel_pytree(_movable(players))[0])
        return GameState(players, Players(*states), memory, search)

    def train_critic(state, batch, key):
        players, optimiser = state.players, optimisers(state.memory).critic

        def update(carry, key):
            critic, opt_state, memory = carry
            (loss, memory), gradient = jax.value_and_grad(critic_loss, has_aux=True)(
                critic, players, memory, batch, key=key
            )
            return (*descend(optimiser, gradient, opt_state, critic), memory), loss

        carry = players.critic, state.opt_states.critic, state.memory
        return jax.lax.scan(update, carry, jax.random.split(key, critic_steps))

    def step(state, batch, *, key):
        critic_key, *keys = jax.random.split(key, 1 + len(Keys._fields))
        critic, critic_opt, memory = state.players.critic, state.opt_states.critic, state.memory
        info = {}
        if critic is not None and critic_steps:
            (critic, critic_opt, memory), losses = train_critic(state, batch, critic_key)
            info["critic_loss"] = losses[-1]
        state = state._replace(
            players=state.players._replace(critic=critic),
            opt_states=state.opt_states._replace(critic=critic_opt),
        )
        if opening is None or state.search is None:
            up = ascent(state.players, memory, batch, keys=Keys(*keys))
            state, loss = by_adam(state, state.players, up)
        else:
            opens = state.search.count < opening.steps(state.players.model)
            seen = _tried(state, opens)
            up = ascent(seen, memory, batch, keys=Keys(*keys))
            state, loss = jax.lax.cond(opens, by_search, by_adam, state, seen, up)
        info |= up.info | {
            "loss": loss,
            "generator_gradient_norm": norm(up.generator),
            "model_gradient_norm": norm(up.model),
        }
        return state, info

    def by_adam(state, seen, up):
        """The next state by the optimisers, and the loss."""
        opts = optimisers(state.memory)
        generator, generator_opt = ascend(opts.generator, up.generator, state.opt_states.generator, up.solved)
        model, model_opt = ascend(opts.model, up.model, state.opt_states.model, seen.model)
        players = seen._replace(model=project(model), generator=generator)
        opt_states = state.opt_states._replace(model=model_opt, generator=generator_opt)
        return state._replace(players=players, opt_states=opt_states, memory=up.memory), up.info["loss"]

    def by_search(state, seen, up):
        """The next state by L-BFGS: the trial becomes the players where it is better. The memory stays empty,
        because all steps see the same batch."""
        assert opening is not None
        ascent, _ = ravel_pytree(_movable(Players(up.model, up.generator, None)))
        search, better = quasi_newton.judge(state.search, up.info["loss"], -ascent / opening.num_data)
        tried = seen._replace(generator=up.solved)
        players = jax.tree.map(lambda new, old: jnp.where(better, new, old), tried, state.players)
        found = search.value < jnp.finfo(search.value.dtype).max
        return state._replace(players=players, search=search), jnp.where(found, search.value, up.info["loss"])

    def fitted(state):
        return Fitted(state.players.model, state.players.generator)

    return Inference(init, step, fitted, diagnose)


def _never(steps: Count) -> bool:
    """Whether there are no steps, whatever the budget is."""
    return isinstance(steps, int) and steps == 0


def _movable(players: Players) -> tuple[Model, tuple[Array, ...]]:
    """What an opening moves: the model, and the generator's means but the last, which is solved for."""
    return players.model, players.generator.mean[:-1]


def _tried(state: GameState, opens: Array) -> Players:
    """The players where the search wants to look, in an opening, or as they are."""
    assert state.search is not None
    point, unravel = ravel_pytree(_movable(state.players))
    trial = quasi_newton.trial(state.search, point)
    model, means = unravel(jnp.where(opens, trial, point))
    generator = eqx.tree_at(lambda g: g.mean[:-1], state.players.generator, means)
    return state.players._replace(model=model, generator=generator)
