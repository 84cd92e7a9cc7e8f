"""Collect a rollout: one pass of the policy per vector step; the critic sees the whole rollout at once, afterwards."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env import VecEnv

from geonpg.errors import require
from geonpg.finite import check_finals, check_finite

from .acting import sampler
from .batches import assessed
from .observations import Array, Observations, flattened, stacked
from .outputs import draws_of
from .rolling import can_roll, roll, sees_updates, shown_now, standing_still

if TYPE_CHECKING:
    from .acktr import ACKTR

Info: TypeAlias = dict[str, Any]  # what an environment says beside observation and reward: anything


@dataclass
class Rollout:
    """What a rollout leaves beside the buffer."""

    dones: Array  # after the last step
    timeouts: list[tuple[int, int, Observations]] = field(default_factory=list)  # step, environment, final observation
    episodes: list[tuple[float, float]] = field(default_factory=list)  # return and length, where ranks share them


def collect(agent: "ACKTR", env: VecEnv, callback: BaseCallback, buffer: RolloutBuffer, n_steps: int) -> bool:
    """Fill the buffer as SB3's `collect_rollouts` does; return False if a callback ended it."""
    agent.policy.set_training_mode(False)
    buffer.reset()
    if sees_updates(callback):
        agent.finish_update()
    callback.on_rollout_start()
    with agent.timed("rollout"), standing_still(env):
        agent.rolled = can_roll(agent, env, callback, buffer, n_steps)
        if agent.rolled:
            rollout = roll_through(agent, env, callback, buffer)
        else:
            agent.finish_update()
            rollout = step_through(agent, env, callback, buffer, n_steps)
    if rollout is None:
        return False
    last_obs: Any = agent._last_obs
    agent._last_obs = shown_now(env, last_obs)
    if agent.ranks.size > 1:
        own = torch.tensor(rollout.episodes, dtype=torch.float64).reshape(-1, 2)
        everyone = torch.cat(agent.ranks.rows(own)).tolist()
        agent._update_info_buffer([{"episode": {"r": r, "l": int(length)}} for r, length in everyone])
    with agent.timed("values"), torch.no_grad():
        evaluate(agent, buffer, rollout, last_obs)
    callback.update_locals(locals())
    callback.on_rollout_end()
    return True


def roll_through(agent: "ACKTR", env: VecEnv, callback: BaseCallback, buffer: RolloutBuffer) -> Rollout | None:
    """Fill the buffer by one call of the environments; return None if a callback ended the training."""
    assert agent._last_obs is not None
    check_finite(agent._last_obs)  # which a reset may have returned
    rolled = roll(agent, env, callback, buffer)
    if rolled is None:
        return None
    rollout = Rollout(rolled.dones[-1])
    rollout.episodes = list(zip(rolled.returns.tolist(), rolled.lengths.tolist(), strict=True))
    if agent.ranks.size == 1:
        seconds = round((time.time_ns() - agent.start_time) / 1e9, 6)
        infos = [{"episode": {"r": r, "l": length, "t": seconds}} for r, length in rollout.episodes]
        agent._update_info_buffer(infos)
    ended = zip(rolled.steps.tolist(), rolled.envs.tolist(), rolled.finals, rolled.timeouts.tolist(), strict=True)
    rollout.timeouts = [(step, env, final) for step, env, final, timeout in ended if timeout]
    return rollout


def step_through(
    agent: "ACKTR", env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
) -> Rollout | None:
    """Put `n_rollout_steps` steps into the buffer; return None if a callback ended them.

    Callbacks see SB3's own local names, but for `values` and `log_probs`: the buffer has them once a rollout has ended.
    """
    rollout = Rollout(np.zeros(env.num_envs, dtype=np.bool_))
    act = sampler(agent.networks, n_rollout_steps, env, agent.ranks)
    unknown = torch.zeros(env.num_envs, 1), torch.zeros(env.num_envs)  # values and log-probabilities, for now
    assert agent._last_obs is not None
    check_finite(agent._last_obs)  # which a reset may have returned
    for n_steps in range(n_rollout_steps):
        if agent.use_sde and (n_steps == 0 or (agent.sde_sample_freq > 0 and n_steps % agent.sde_sample_freq == 0)):
            agent.policy.reset_noise(env.num_envs)
        last_obs: Any = agent._last_obs
        actions = act(last_obs)
        new_obs: Any
        clipped_actions = within_bounds(agent.policy, actions)
        new_obs, rewards, dones, infos = env.step(clipped_actions)
        check_finite(new_obs, rewards)
        agent.num_timesteps += agent.ranks.size * env.num_envs
        callback.update_locals(locals())
        if not callback.on_step():
            return None
        if any(infos):  # at an episode's end at the latest
            if agent.ranks.size == 1:
                agent._update_info_buffer(infos, dones)
            rollout.episodes += [(info["episode"]["r"], info["episode"]["l"]) for info in infos if "episode" in info]
            check_finals(dones, infos)
            rollout.timeouts += [(n_steps, i, infos[i]["terminal_observation"]) for i in cut_off(dones, infos)]
        assert agent._last_episode_starts is not None
        rollout_buffer.add(last_obs, actions, rewards, agent._last_episode_starts, *unknown)
        agent._last_obs, agent._last_episode_starts = new_obs, dones
        rollout.dones = dones
    return rollout


def cut_off(dones: Array, infos: list[Info]) -> list[int]:
    """The environments whose episode a time limit has ended."""
    return [
        int(i)
        for i in np.flatnonzero(dones)
        if infos[i].get("TimeLimit.truncated") and infos[i].get("terminal_observation") is not None
    ]


def within_bounds(policy: BasePolicy, actions: Array) -> Array:
    """Clip or scale a policy's actions into the bounds of the environment's."""
    space = policy.action_space
    if not isinstance(space, spaces.Box):
        return actions
    actions = actions.reshape(-1, *space.shape)
    return policy.unscale_action(actions) if policy.squash_output else actions.clip(space.low, space.high)


def evaluate(agent: "ACKTR", buffer: RolloutBuffer, rollout: Rollout, last_obs: Observations) -> None:
    """Fill in values, log-probabilities, returns and advantages of a finished rollout.

    The critic is fitted to returns with `critic_lambda`, or the buffer's own lambda, that of the advantages, if None.
    """
    networks, critic_lambda, gae_lambda = agent.networks, agent.critic_lambda, buffer.gae_lambda
    times = episode_times(buffer.episode_starts, rollout.dones, agent.episode_steps)
    agent.episode_steps = times[-1]
    assess(agent, buffer, times[:-1])
    if rollout.timeouts and not agent.limits_terminate:
        # a time limit is not a termination: what would have followed is worth its value
        steps, envs, finals = zip(*rollout.timeouts, strict=True)
        places = list(steps), list(envs)
        tail = networks.values(stacked(finals), times[places] + 1).cpu().numpy().reshape(-1)
        buffer.rewards[places] += buffer.gamma * tail
    last_values = networks.values(last_obs, times[-1])
    if critic_lambda in (None, gae_lambda):
        buffer.compute_returns_and_advantage(last_values, rollout.dones)
        return
    buffer.gae_lambda = critic_lambda
    buffer.compute_returns_and_advantage(last_values, rollout.dones)
    returns, buffer.gae_lambda = buffer.returns, gae_lambda
    buffer.compute_returns_and_advantage(last_values, rollout.dones)
    buffer.returns = returns


def episode_times(starts: Array, dones: Array, before: Array | None) -> Array:
    """Count the steps since episodes began, at each step of a rollout and after its last: [steps + 1, environments].

    starts: whether an episode begins with a step, [steps, environments].
    dones: whether one has ended with the last step.
    before: the last row of the rollout before; None if there was none.
    """
    begins = np.concatenate([starts, dones[None]]).astype(np.bool_)
    step = np.arange(len(begins))[:, None]
    earlier = np.zeros(len(dones), np.int64) if before is None or len(before) != len(dones) else before
    return step - np.maximum.accumulate(np.where(begins, step, -earlier), axis=0)


def assess(agent: "ACKTR", buffer: RolloutBuffer, times: Array) -> None:
    """Fill in values and log-probabilities; where the update can use the same passes of the networks, keep these."""
    networks, shape = agent.networks, buffer.rewards.shape
    found = agent.assessed = assessed(networks, agent.optimizer, agent.critic_optimizer, buffer, times)
    if found is None:
        require(not networks.extras, "critic_extras takes SB3's rollout buffer and our own optimiser of the critic")
        actions = buffer.actions.reshape(-1, buffer.actions.shape[-1])
        values, log_probs = networks.assess(flattened(buffer.observations), actions)
        buffer.values[:] = values.cpu().numpy().reshape(shape)
        buffer.log_probs[:] = log_probs.cpu().numpy().reshape(shape)
        return
    log_probs = networks.family.log_prob(found.actor.at.z, draws_of(networks.policy, found.actions))
    buffer.values[:] = found.values(shape)
    buffer.log_probs[:] = log_probs.cpu().numpy().reshape(shape[::-1]).T
