"""ACKTR: an actor-critic that follows the natural gradient, with swappable geometry, behind SB3's interface.

The main path: SB3's `learn` calls `collect_rollouts` (collector.py) and `train` (updates.py) in turn.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self, cast
from warnings import warn

import torch
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor
from torch.optim import Optimizer

from geonpg.errors import require
from geonpg.kfac import ALONE, NaturalGradient, Ranks

from .batches import Assessed, UpdateBatch, whole_batch
from .beside import Beside
from .collector import collect
from .inputs import Change, InputFollower, follow
from .observations import Array
from .optimizers import critic_optimizer, policy_optimizer
from .outputs import Networks
from .policy import POLICY_ALIASES
from .refusing import ACTION_SPACES, refusing_spaces
from .settings import ActorSettings, CriticSettings, settings_of
from .threads import threads_for, using_threads
from .update_stats import UpdateStats, policy_stats
from .updates import fit_critic, improve_policy, limit_step, standardised


class ACKTR(OnPolicyAlgorithm):
    """Natural-gradient actor-critic (Wu et al., 2017) with the update rules of Song, Song & Ermon (2018).

    The defaults are those of the preset `default`, made for 16 environments with normalised observations and rewards.
    A2C's arguments come first, in its order. `last_update` holds the numbers of the last update, `seconds` the time
    spent in each phase.

    policy: MlpPolicy, CnnPolicy, MultiInputPolicy, or a policy class.
    env: environments, SB3's or ours, a single one, or the id of one.
    learning_rate: the longest step h of the policy, 0.1 to 1, or a schedule; the trust region usually asks for less.
    n_steps: steps of each environment per update; with 16 environments 16 to 256.
    gamma: discount of future rewards, 0.95 to 0.9999.
    gae_lambda: lambda of the advantages, 0.9 to 1.
    ent_coef: weight of the entropy bonus, 0 to 0.01.
    vf_coef: weight of the loss of a critic that `policy_kwargs["optimizer_class"]` trains, 0.25 to 1; ours needs none.
    max_grad_norm: longest gradient of such a critic, 0.1 to 10.
    rms_prop_eps: accepted for A2C's sake, with a warning that it does nothing.
    use_rms_prop: likewise.
    use_sde: state-dependent exploration (gSDE), for continuous actions.
    sde_sample_freq: steps between two draws of its noise, 4 to 64; -1 for one draw per rollout.
    rollout_buffer_class: a buffer class of your own; None for SB3's.
    rollout_buffer_kwargs: its keywords.
    normalize_advantage: give the advantages of a batch mean 0 and deviation 1.
    stats_window_size: episodes whose mean return is logged, 10 to 100.
    tensorboard_log: a folder for TensorBoard; None for none.
    policy_kwargs: the policy's keywords, such as `net_arch`, `activation_fn` and `log_std_init`.
    verbose: 0 for silence, 1 for tables of the logs, 2 for more.
    seed: of every random generator; None for another one each time.
    device: torch's device, or "auto".

    method: the update rule, ng, mid, geo or geof.
    solver: how the policy's natural gradient is solved for, kfac, pcg or cg.
    alpha: which of the alpha-connections, in [-1, 1]; 0 Levi-Civita (the paper), 1 exponential, -1 mixture.
    connection: "joint", or "blocks": a normal policy's mean and deviation each go their own way (docs/large.md).
    calibrate: scale the correction to its least-squares length; False is the published form (docs/geometry.md).
    target_kl: the largest KL divergence of one update, 0.001 to 0.01; with batches of 32k 0.03 to 0.3.
    trust_region: which KL: "predicted" by the exact metric, "actual", searched for, or predicted by the "solver"'s own.
    anneal: shorten steps in proportion to what is left of a call of `learn`, or of all calls that continue each other.
    damping: added to the diagonal of the policy's Fisher matrix, 0.001 to 0.1.
    gradient_averaging: decay of the average of gradients over updates, 0 to 0.95.
    cautious: hold steps to what fresh batches confirm of the last one, and to what earlier batches would see of them.
    curvature_every: measure the policy's curvature on every such step of large batches, 1 to 4; gradients take all.
    cg_iterations: iterations of pcg and cg, 5 to 20.
    factor_averaging: decay of the average of Kronecker factors over updates, the critic's too, 0.9 to 0.99.
    factored_damping: split the damping over Kronecker factors; False adds it to their product, which damps less.
    factors_every: updates between two looks at the policy's Kronecker factors, 1 to 10.
    advantage_floor: divide advantages by no less than this, 0 to 0.3, lest the noise that a solved task leaves of them
        make full steps. It needs rewards scaled by `Normalize` or `VecNormalize`: for tiny raw rewards choose 0.
    critic_updates: Gauss-Newton steps of the critic per batch, 1 to 5.
    critic_learning_rate: longest step of the critic, 0.1 to 1; None for 1, or 1e-3 under an `optimizer_class`.
    critic_solver: how the critic's natural gradient is solved for, kfac, pcg or cg.
    critic_cg_iterations: iterations of the critic's pcg and cg, 2 to 10.
    critic_curvature_every: measure the critic's curvature on every such step of a batch; 1, or 4 in batches of 16k.
    critic_damping: added to the diagonal of the critic's Fisher matrix, 0.01 to 0.1.
    critic_target_kl: largest half of the mean squared change of values in one step, 0.001 to 1; 0 for no limit.
    critic_gradient_averaging: decay of the average of the critic's gradients, 0 to 0.5.
    critic_lambda: lambda of the critic's targets, 0.9 to 1; None for `gae_lambda`, as SB3's buffers have it.
    limits_terminate: take time limits for terminations, as was once usual; nothing that would follow them counts.
    torch_threads: torch's threads during `learn`, 1 to the cores; None for 1 where updates are small, else torch's own.
    ranks: the processes that train this agent together, each with as many environments of its own.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = POLICY_ALIASES
    policy: ActorCriticPolicy
    networks: Networks
    input_follower: InputFollower
    episode_steps: Array | None  # made in each environment's episode so far, if a rollout has ended
    assessed: Assessed | None  # the last rollout, if both networks were run on it at once
    rolled: bool  # was that one call?
    beside: Beside[UpdateStats]  # what is left of the last update
    _last_update: UpdateStats | None

    # fmt: off
    def __init__(
        self, policy: str | type[ActorCriticPolicy], env: GymEnv | str | None, learning_rate: float | Schedule = 0.3,
        n_steps: int = 64, gamma: float = 0.99, gae_lambda: float = 0.95, ent_coef: float = 0.0, vf_coef: float = 0.5,
        max_grad_norm: float = 0.5, rms_prop_eps: float | None = None, use_rms_prop: bool | None = None,
        use_sde: bool = False, sde_sample_freq: int = -1, rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None, normalize_advantage: bool = True,
        stats_window_size: int = 100, tensorboard_log: str | None = None, policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0, seed: int | None = None, device: torch.device | str = "auto", _init_setup_model: bool = True,
        *, method: str = "geo", limits_terminate: bool = False, solver: str = "kfac", alpha: float = 0.0,
        connection: str = "joint", calibrate: bool = True, target_kl: float = 0.003, trust_region: str = "predicted",
        damping: float = 0.01, gradient_averaging: float = 0.9, cautious: bool = True, curvature_every: int = 4,
        cg_iterations: int = 10, factor_averaging: float = 0.95, factored_damping: bool = True, factors_every: int = 1,
        advantage_floor: float = 0.1, critic_updates: int = 1, critic_learning_rate: float | None = None,
        anneal: bool = True, critic_solver: str = "pcg", critic_cg_iterations: int = 6, critic_curvature_every: int = 1,
        critic_damping: float = 0.03, critic_target_kl: float = 0.0, critic_gradient_averaging: float = 0.0,
        critic_lambda: float | None = None, torch_threads: int | None = None, ranks: Ranks = ALONE,
    ) -> None:
        if (rms_prop_eps, use_rms_prop) != (None, None):
            warn("rms_prop_eps and use_rms_prop do nothing here: ACKTR does not use RMSprop", stacklevel=2)
        with refusing_spaces():
            super().__init__(
                policy, cast(GymEnv, env), learning_rate, n_steps, gamma, gae_lambda, ent_coef, vf_coef, max_grad_norm,
                use_sde, sde_sample_freq, rollout_buffer_class, rollout_buffer_kwargs, stats_window_size,
                tensorboard_log, policy_kwargs=policy_kwargs, verbose=verbose, seed=seed, device=device,
                supported_action_spaces=ACTION_SPACES, _init_setup_model=False,
            )
        self.normalize_advantage, self.advantage_floor, self.anneal = normalize_advantage, advantage_floor, anneal
        self.method, self.solver, self.alpha, self.connection = method, solver, alpha, connection
        self.target_kl, self.trust_region, self.damping, self.cautious = target_kl, trust_region, damping, cautious
        self.calibrate, self.gradient_averaging, self.factor_averaging = calibrate, gradient_averaging, factor_averaging
        self.curvature_every, self.factors_every, self.cg_iterations = curvature_every, factors_every, cg_iterations
        self.critic_target_kl, self.factored_damping, self.ranks = critic_target_kl, factored_damping, ranks
        self.critic_lambda, self.critic_solver, self.limits_terminate = critic_lambda, critic_solver, limits_terminate
        self.critic_gradient_averaging, self.critic_curvature_every = critic_gradient_averaging, critic_curvature_every
        self.critic_cg_iterations, self.critic_learning_rate = critic_cg_iterations, critic_learning_rate
        self.critic_damping, self.torch_threads, self.critic_updates = critic_damping, torch_threads, critic_updates
        self.seconds, self.rolled, self.beside = dict[str, float](), False, Beside[UpdateStats]()
        self.forget_rollouts()
        if _init_setup_model:
            self._setup_model()
    # fmt: on

    def _setup_model(self) -> None:
        actor, critic = settings_of(self, ActorSettings), settings_of(self, CriticSettings)
        require(self.torch_threads is None or self.torch_threads >= 1, "torch_threads must be at least 1, or None")
        super()._setup_model()
        self.networks = Networks(self.policy)
        self.policy.optimizer = policy_optimizer(self.networks, actor, self.lr_schedule(1), self.ranks)
        vars(self.policy)["critic_optimizer"] = critic_optimizer(self.networks, critic, self.policy_kwargs, self.ranks)

    @property
    def n_updates(self) -> int:
        """Updates made so far, those before a restart included."""
        return self._n_updates

    @property
    def optimizer(self) -> NaturalGradient:
        """The policy's optimiser, which lives where SB3 looks for it."""
        return cast(NaturalGradient, self.policy.optimizer)

    @property
    def critic_optimizer(self) -> Optimizer:
        """The critic's optimiser, which lives beside the policy's."""
        return vars(self.policy)["critic_optimizer"]

    def _excluded_save_params(self) -> list[str]:
        own = ["networks", "ranks", "_last_update", "input_follower", "assessed", "rolled", "beside"]
        return [*super()._excluded_save_params(), *own]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", "policy.optimizer", "policy.critic_optimizer"], []

    def forget_rollouts(self) -> None:
        """Forget what belongs to earlier rollouts and updates, after another state was restored."""
        self.beside.finish()
        self.input_follower, self._last_update, self.assessed, self.episode_steps = InputFollower(), None, None, None

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to `seconds` of this phase."""
        start = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Collect a rollout as SB3's method does, with one pass of the critic for all of it."""
        with self.input_follower.during_rollout(env):
            return collect(self, env, callback, rollout_buffer, n_rollout_steps)

    def train(self) -> None:
        """Make one step of the policy and several of the critic, on the whole rollout.

        After a rollout of one call the critic is fitted beside the next one: `finish_update` waits for it.
        """
        self.finish_update()
        self.policy.set_training_mode(True)
        # the last rollout may end beyond the last step, and a schedule below zero
        self._current_progress_remaining = max(self._current_progress_remaining, 0.0)
        self._update_learning_rate(self.policy.optimizer)
        limit_step(self.optimizer, self.target_kl, self._current_progress_remaining if self.anneal else 1.0)
        networks, optimizer, buffer = self.networks, self.optimizer, self.rollout_buffer
        batch = self.assessed.batch(buffer) if self.assessed else whole_batch(networks, buffer)
        self.assessed = None
        with self.timed("policy"):
            advantages = self.scaled(batch.advantages)
            losses = improve_policy(networks, optimizer, batch, advantages, self.ent_coef, self.ranks)
        change = self.input_follower.due()
        follow(networks.first_of(networks.actor), change)
        self._n_updates += 1
        stats = policy_stats(self._n_updates, *losses, buffer, optimizer, getattr(self.policy, "log_std", None))
        self.beside.leave(partial(self._fit_critic, batch, change, stats))
        alone = self.ranks.size == 1 and torch.get_num_threads() == 1  # as the thread beside has
        if not (self.rolled and alone and batch.critic and self.num_timesteps < self._total_timesteps):
            self.finish_update()

    def _fit_critic(self, batch: UpdateBatch, change: Change | None, stats: UpdateStats) -> UpdateStats:
        """Make the steps of the critic; return the numbers of the update, the critic's included."""
        how = self.critic_updates, self.vf_coef, self.max_grad_norm
        with self.timed("critic"):
            value_loss = fit_critic(self.networks, self.critic_optimizer, batch, *how, self.ranks)
        follow(self.networks.first_of(self.networks.critic), change)
        self.ranks.agree(list(self.policy.parameters()))  # other machines may round differently
        return replace(stats, value_loss=value_loss)

    def finish_update(self) -> None:
        """Wait until the last update is complete, and log its numbers; whatever looks at the critic asks for this."""
        if (stats := self.beside.finish()) is not None:
            self._last_update = stats
            stats.record(self.logger)

    @property
    def last_update(self) -> UpdateStats | None:
        """The numbers of the last update; None before the first one in this process."""
        self.finish_update()
        return self._last_update

    def scaled(self, advantages: Tensor) -> Tensor:
        """Scale the advantages of a batch as the surrogate takes them."""
        if not self.normalize_advantage or len(advantages) < 2:
            return advantages
        return standardised(advantages, self.advantage_floor, self.ranks)

    def dump_logs(self, iteration: int = 0) -> None:
        """Write the logs, with condition numbers of the factors and seconds by phase."""
        self.finish_update()
        for layer, number in self.optimizer.condition_numbers().items():
            self.logger.record(f"geometry/condition_{layer}", number)
        for phase, seconds in self.seconds.items():
            self.logger.record(f"time/seconds_{phase}", seconds)
        super().dump_logs(iteration)

    def using_threads(self) -> AbstractContextManager[None]:
        """Let torch use this agent's number of threads inside."""
        return using_threads(self.torch_threads or threads_for(self.policy, self.n_steps * self.n_envs, self.device))

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 10,
        tb_log_name: str = "ACKTR",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train for so many steps of all environments together; the arguments are SB3's."""
        how = log_interval, tb_log_name, reset_num_timesteps, progress_bar
        with self.using_threads():
            try:
                return super().learn(total_timesteps, callback, *how)
            finally:
                self.finish_update()

    def get_parameters(self) -> dict[str, dict[str, Any]]:
        """Return the parameters of policy and optimisers, as SB3 saves them."""
        self.finish_update()
        return super().get_parameters()

    def set_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Set the parameters of policy and optimisers, as SB3 loads them."""
        self.finish_update()
        self.assessed = None
        super().set_parameters(*args, **kwargs)
