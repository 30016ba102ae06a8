"""The game that NOVI and IPVI play: a generator and hyper-parameters against a critic, in turns.

In every step the critic takes a few steps of its own against the present generator, then generator and model
ascend together. What the critic minimises and what the others ascend are pure functions that a method passes
in.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.inference.base import DiagnoseFn, Inference, Info
from novidgp.inference.optim import ascend, descend, norm
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


class GameState(NamedTuple):
    """Players, the states of their optimisers, and the memory."""

    players: Players
    opt_states: Players
    memory: Memory


def game(
    start: Callable[..., tuple[Players, Memory]],
    critic_loss: CriticLoss,
    ascent: AscentFn,
    optimisers: Callable[[Memory], Players],
    *,
    critic_steps: int,
    project: Callable[[Model], Model] = lambda model: model,
    diagnose: DiagnoseFn | None = None,
) -> Inference:
    """The alternation: `critic_steps` steps of the critic, one ascent of generator and model.

    `start(model, key=key)` makes the players and the memory. A critic that is None is not trained.
    `project` maps the model back into its constraints after every step.
    """

    def init(model, batch, *, key):
        players, memory = start(model, key=key)
        pairs = zip(optimisers(memory), players, strict=True)
        states = (None if player is None else optimiser.init(player) for optimiser, player in pairs)
        return GameState(players, Players(*states), memory)

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
        players = state.players._replace(critic=critic)
        up = ascent(players, memory, batch, keys=Keys(*keys))
        opts = optimisers(state.memory)
        generator, generator_opt = ascend(opts.generator, up.generator, state.opt_states.generator, up.solved)
        model, model_opt = ascend(opts.model, up.model, state.opt_states.model, players.model)
        info |= up.info | {
            "generator_gradient_norm": norm(up.generator),
            "model_gradient_norm": norm(up.model),
        }
        players = Players(project(model), generator, critic)
        return GameState(players, Players(model_opt, generator_opt, critic_opt), up.memory), info

    def fitted(state):
        return Fitted(state.players.model, state.players.generator)

    return Inference(init, step, fitted, diagnose)
