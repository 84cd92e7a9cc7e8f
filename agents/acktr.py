"""ACKTR: an actor-critic that follows the natural gradient, with swappable geometry, behind SB3's interface.

The main path: SB3's `learn` calls `collect_rollouts` (collector.py) and `train` in turn.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, TypeVar, cast
from warnings import warn

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, RolloutBufferSamples, Schedule
from stable_baselines3.common.utils import explained_variance, obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from geonpg.errors import Refused
from geonpg.kfac import ALONE, NaturalGradient, Ranks, TrustRegion

from .collector import Observations, collect, whole_batch
from .inputs import InputFollower
from .optimizers import check_settings, critic_optimizer, policy_optimizer
from .outputs import Networks, draws_of
from .policy import ACKTRCnnPolicy, ACKTRMultiInputPolicy, ACKTRPolicy
from .threads import threads_for, using_threads
from .units import fitting_units
from .update_stats import UpdateStats

Self = TypeVar("Self", bound="ACKTR")

SHORTEST = 0.01  # of annealed steps, as a share of the first


class ACKTR(OnPolicyAlgorithm):
    """Natural-gradient actor-critic (Wu et al., 2017) with the update rules of Song, Song & Ermon (2018).

    A2C's arguments come first and mean what they mean there, except:
    learning_rate: the longest step h; the trust region usually asks for less.
    vf_coef, max_grad_norm: for a critic that `policy_kwargs["optimizer_class"]` trains; ours needs neither.
    rms_prop_eps, use_rms_prop: accepted, with a warning that they do nothing.

    method: the update rule, ng, mid, geo or geof. solver: kfac, pcg or cg (of `cg_iterations`).
    alpha: the connection; 0 Levi-Civita (the paper), 1 exponential, -1 mixture. calibrate: see docs/geometry.md.
    target_kl: the trust region. anneal: steps shorten over a call of `learn`, in proportion to what is left of it; with
    `reset_num_timesteps=False` that is SB3's progress, over all steps, those of earlier calls included.
    damping: of the Fisher matrix. gradient_averaging: decay of the averaged gradient.
    cautious: steps are held to what fresh batches confirm of the last one, and to what earlier batches would see.
    advantage_floor: advantages are divided by their deviation, but by no less than this. Where a task is solved, what
    is left of them is noise, and must not be blown up into steps of full length.
    factor_averaging: of the Kronecker factors, the critic's too. factors_every: updates between two looks at them.
    critic_*: the critic's own; it takes `critic_updates` Gauss-Newton steps per batch toward returns with lambda
    `critic_lambda` (None: `gae_lambda`), each of which changes values by sqrt(2 critic_target_kl) at most, or freely if
    that is 0.
    torch_threads: torch's threads during `learn`; None for 1 where updates are small, and torch's own number otherwise.
    ranks: the processes that train this agent together, each with as many environments of its own.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": ACKTRPolicy,
        "CnnPolicy": ACKTRCnnPolicy,
        "MultiInputPolicy": ACKTRMultiInputPolicy,
    }
    policy: ActorCriticPolicy
    networks: Networks

    # fmt: off
    def __init__(
        self, policy: str | type[ActorCriticPolicy], env: GymEnv | str | None,
        learning_rate: float | Schedule = 0.3, n_steps: int = 32, gamma: float = 0.99, gae_lambda: float = 0.95,
        ent_coef: float = 0.0, vf_coef: float = 0.5, max_grad_norm: float = 0.5,
        rms_prop_eps: float | None = None, use_rms_prop: bool | None = None,
        use_sde: bool = False, sde_sample_freq: int = -1,
        rollout_buffer_class: type[RolloutBuffer] | None = None, rollout_buffer_kwargs: dict[str, Any] | None = None,
        normalize_advantage: bool = True, stats_window_size: int = 100, tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None, verbose: int = 0, seed: int | None = None,
        device: torch.device | str = "auto", _init_setup_model: bool = True, *,
        method: str = "geo", solver: str = "kfac", alpha: float = 0.0, calibrate: bool = True,
        target_kl: float = 0.0015, anneal: bool = False, damping: float = 0.01, gradient_averaging: float = 0.9,
        cautious: bool = True, cg_iterations: int = 10, factor_averaging: float = 0.95, factors_every: int = 1,
        advantage_floor: float = 0.0, critic_updates: int = 2, critic_learning_rate: float | None = None,
        critic_solver: str = "pcg", critic_cg_iterations: int = 3, critic_damping: float = 0.03,
        critic_target_kl: float = 0.0, critic_gradient_averaging: float = 0.0, critic_lambda: float | None = None,
        torch_threads: int | None = None, ranks: Ranks = ALONE,
    ) -> None:
        if (rms_prop_eps, use_rms_prop) != (None, None):
            warn("rms_prop_eps and use_rms_prop do nothing here: ACKTR does not use RMSprop", stacklevel=2)
        try:
            super().__init__(
                policy, cast(GymEnv, env), learning_rate=learning_rate, n_steps=n_steps, gamma=gamma,
                gae_lambda=gae_lambda, ent_coef=ent_coef, vf_coef=vf_coef, max_grad_norm=max_grad_norm, use_sde=use_sde,
                sde_sample_freq=sde_sample_freq, rollout_buffer_class=rollout_buffer_class,
                rollout_buffer_kwargs=rollout_buffer_kwargs, stats_window_size=stats_window_size,
                tensorboard_log=tensorboard_log, policy_kwargs=policy_kwargs, verbose=verbose, seed=seed, device=device,
                supported_action_spaces=(spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary),
                _init_setup_model=False,
            )
        except AssertionError as error:  # SB3's word for actions that it does not take
            raise Refused(str(error)) from error
        self.normalize_advantage, self.advantage_floor = normalize_advantage, advantage_floor
        self.method, self.solver, self.alpha, self.calibrate = method, solver, alpha, calibrate
        self.target_kl, self.anneal = target_kl, anneal
        self.damping, self.gradient_averaging, self.cautious = damping, gradient_averaging, cautious
        self.cg_iterations, self.factor_averaging, self.factors_every = cg_iterations, factor_averaging, factors_every
        self.critic_updates, self.critic_learning_rate = critic_updates, critic_learning_rate
        self.critic_solver, self.critic_cg_iterations = critic_solver, critic_cg_iterations
        self.critic_damping, self.critic_target_kl = critic_damping, critic_target_kl
        self.critic_gradient_averaging, self.critic_lambda = critic_gradient_averaging, critic_lambda
        self.torch_threads, self.ranks = torch_threads, ranks
        self.seconds: dict[str, float] = {}  # by phase, in this process
        self.last_update: UpdateStats | None = None  # None before the first one in this process
        self.input_follower = InputFollower()
        if _init_setup_model:
            self._setup_model()
    # fmt: on

    def _setup_model(self) -> None:
        check_settings(self)
        super()._setup_model()
        self.networks = Networks(self.policy, obs_as_tensor(batch_of_one(self.observation_space), self.device))
        self.policy.optimizer = policy_optimizer(self)
        cast(Any, self.policy).critic_optimizer = critic_optimizer(self)

    @property
    def optimizer(self) -> NaturalGradient:
        """The policy's; it lives where SB3 looks for it."""
        return cast(NaturalGradient, self.policy.optimizer)

    @property
    def critic_optimizer(self) -> torch.optim.Optimizer:
        return cast(torch.optim.Optimizer, self.policy.critic_optimizer)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "networks", "ranks", "last_update", "input_follower"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", "policy.optimizer", "policy.critic_optimizer"], []

    def forget_rollouts(self) -> None:
        """Forget what belongs to earlier rollouts and updates, after another state was restored."""
        self.input_follower, self.last_update = InputFollower(), None

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        with self.input_follower.during_rollout(env):
            return collect(self, env, callback, rollout_buffer, n_rollout_steps)

    def assess(self, observations: Observations, actions: NDArray[Any]) -> tuple[Tensor, Tensor]:
        """Values [n, 1] and log-probabilities [n] of a batch of observations and recorded actions."""
        seen, networks = obs_as_tensor(observations, self.device), self.networks
        draws = draws_of(self.policy, torch.as_tensor(actions, device=self.device).float())
        return networks.values(seen), networks.family.log_prob(networks.actor(networks.inputs(seen)), draws)

    def values_of(self, observations: Observations) -> Tensor:
        """Values [n, 1] of a batch of observations."""
        return self.policy.predict_values(obs_as_tensor(observations, self.device))

    def train(self) -> None:
        """One step of the policy and several of the critic, on the whole rollout."""
        self.policy.set_training_mode(True)
        # the last rollout may end beyond the last step, and a schedule below zero
        self._current_progress_remaining = max(self._current_progress_remaining, 0.0)
        self._update_learning_rate(self.policy.optimizer)
        left = max(self._current_progress_remaining, SHORTEST) if self.anneal else 1.0
        if isinstance(self.optimizer.control, TrustRegion):  # and not one that the user put there
            target = self.target_kl * left**2  # a step's length is the root of its KL
            self.optimizer.control = replace(self.optimizer.control, max_kl=target)
        batch = whole_batch(self.rollout_buffer)
        inputs = self.networks.inputs(batch.observations)
        with self.timed("policy"):
            policy_loss, entropy = self._improve_policy(inputs, batch)
        with self.timed("critic"):
            value_loss = self._fit_critic(inputs, batch)
        self.input_follower.catch_up(self.networks.first_layers)
        self.ranks.agree(list(self.policy.parameters()))  # other machines may round differently
        self._n_updates += 1
        self.last_update = self._stats(policy_loss, value_loss, entropy)
        self.last_update.record(self.logger)

    def scaled(self, advantages: Tensor) -> Tensor:
        """As the surrogate takes them."""
        if not self.normalize_advantage or len(advantages) < 2:
            return advantages
        mean, deviation = self.ranks.moments(advantages)
        return (advantages - mean) / (deviation.clamp(min=self.advantage_floor) + 1e-8)

    def _improve_policy(self, inputs: Any, batch: RolloutBufferSamples) -> tuple[float, float]:
        """The loss and the entropy before the step."""
        advantages = self.scaled(batch.advantages)
        draws, family, optimizer = draws_of(self.policy, batch.actions), self.networks.family, self.optimizer
        start: list[float] = []

        def surrogate() -> Tensor:
            optimizer.zero_grad()
            z = self.networks.actor(inputs)
            ratio = torch.exp(family.log_prob(z, draws) - batch.old_log_prob)
            gain, entropy = (ratio * advantages).mean(), family.entropy(z).mean()
            start.extend([-float(gain.detach()), float(entropy.detach())])
            loss = -gain - self.ent_coef * entropy
            backward(loss)
            return loss

        optimizer.step(surrogate)
        return self.ranks.number(start[0]), self.ranks.number(start[1])

    def _fit_critic(self, inputs: Any, batch: RolloutBufferSamples) -> float:
        """The mean squared error before the first step."""
        optimizer = self.critic_optimizer
        natural = isinstance(optimizer, NaturalGradient)
        errors: list[float] = []

        def regression() -> float:
            optimizer.zero_grad()
            error = (self.networks.critic(inputs) - batch.returns.unsqueeze(1) / unit).square().mean()
            errors.append(float(error.detach()))
            # half the squared error is a Gaussian's negative log-likelihood, whose Fisher matrix is Gauss-Newton's
            loss = 0.5 * error if natural else self.vf_coef * error
            backward(loss)
            if not natural:
                for parameter in self.networks.critic_parameters:
                    if parameter.grad is not None:  # a frozen one has none
                        parameter.grad = self.ranks.mean(parameter.grad)
                torch.nn.utils.clip_grad_norm_(self.networks.critic_parameters, self.max_grad_norm)
            return float(loss.detach())

        with fitting_units(self.networks, optimizer, batch.returns, self.ranks) as unit:
            for _ in range(self.critic_updates):
                optimizer.step(regression)
        return self.ranks.number(errors[0]) * unit**2

    def _stats(self, policy_loss: float, value_loss: float, entropy: float) -> UpdateStats:
        buffer, std = self.rollout_buffer, getattr(self.policy, "log_std", None)
        return UpdateStats(
            n_updates=self._n_updates,
            policy_loss=policy_loss,
            value_loss=value_loss,
            entropy=entropy,
            explained_variance=float(explained_variance(buffer.values.ravel(), buffer.returns.ravel())),
            report=self.optimizer.report,
            rejected=self.optimizer.rejected,
            std=None if std is None else float(std.detach().exp().mean()),
        )

    def dump_logs(self, iteration: int = 0) -> None:
        for layer, number in self.optimizer.condition_numbers().items():
            self.logger.record(f"geometry/condition_{layer}", number)
        for phase, seconds in self.seconds.items():
            self.logger.record(f"time/seconds_{phase}", seconds)
        super().dump_logs(iteration)

    def learn(
        self: Self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 10,
        tb_log_name: str = "ACKTR",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        how = log_interval, tb_log_name, reset_num_timesteps, progress_bar
        with using_threads(threads_for(self)):
            return super().learn(total_timesteps, callback, *how)


def backward(loss: Tensor) -> None:
    """Compute gradients, unless every parameter that the loss depends on is frozen."""
    if loss.requires_grad:
        loss.backward()


def batch_of_one(space: spaces.Space[Any]) -> Observations:
    """An observation to try the networks with."""
    if isinstance(space, spaces.Dict):
        return {key: np.asarray(batch_of_one(part)) for key, part in space.spaces.items()}
    return np.zeros((1, *(space.shape or ())), dtype=space.dtype)
