"""An SB3 policy's two networks, as the natural gradient wants them: modules from observations to outputs z.

A standard policy becomes two `nn.Sequential`s over its own parameters; without a trained feature extractor these take
the written-out path of `geonpg.kfac`. Any other policy is wrapped as it is.
"""

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.distributions import (
    BernoulliDistribution,
    CategoricalDistribution,
    DiagGaussianDistribution,
    Distribution,
    MultiCategoricalDistribution,
    StateDependentNoiseDistribution,
    TanhBijector,
)
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.preprocessing import preprocess_obs
from stable_baselines3.common.torch_layers import FlattenExtractor, MlpExtractor
from stable_baselines3.common.type_aliases import PyTorchObs
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor, nn

from geonpg.errors import Refused
from geonpg.kfac import Bernoulli, Categorical, Family, FreeLogStd, Gaussian, Product

from .observations import Array, Observations, batch_of_one

TIME_UNIT = 10.0  # steps in a unit of the time that a critic with extras sees


class PolicyOutputs(nn.Module):
    """Any policy as a module from observations to its distribution's parameters z."""

    def __init__(self, policy: ActorCriticPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observations: PyTorchObs) -> Tensor:
        """Compute z [n, ...] by the policy's own distribution."""
        return parameters_of(self.policy.get_distribution(observations))


class ValueOutputs(nn.Module):
    """Any policy as a module from observations to values [n, 1]."""

    def __init__(self, policy: ActorCriticPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observations: PyTorchObs) -> Tensor:
        """Compute values [n, 1] by the policy's own method."""
        return self.policy.predict_values(observations)


def parameters_of(distribution: Distribution) -> Tensor:
    """A distribution's parameters, in the order of its family."""
    inner: Any = distribution.distribution  # one of torch's, or a list of them
    if isinstance(distribution, DiagGaussianDistribution | StateDependentNoiseDistribution):
        return torch.cat([inner.mean, inner.stddev.log()], -1)
    if isinstance(distribution, MultiCategoricalDistribution):
        return torch.cat([part.logits for part in inner], -1)
    return inner.logits


def family_of(policy: ActorCriticPolicy) -> Family:
    """The manifold that the policy's distributions form; squashing actions does not change it."""
    distribution = policy.action_dist
    if isinstance(distribution, DiagGaussianDistribution | StateDependentNoiseDistribution):
        return Gaussian()
    if isinstance(distribution, CategoricalDistribution):
        return Categorical()
    if isinstance(distribution, MultiCategoricalDistribution):
        return Product([(Categorical(), int(size)) for size in distribution.action_dims])
    if isinstance(distribution, BernoulliDistribution):
        return Bernoulli()
    raise Refused(f"ACKTR knows no geometry of {type(distribution).__name__}: its actions must be SB3's own kinds")


def draws_of(policy: ActorCriticPolicy, actions: Tensor) -> Tensor:
    """Turn recorded actions [n, ...] into the family's draws."""
    if isinstance(policy.action_dist, CategoricalDistribution):
        return actions.long().flatten()
    return TanhBijector.inverse(actions) if policy.squash_output else actions


def is_standard(policy: ActorCriticPolicy) -> bool:
    """Whether SB3's own code computes this policy's outputs: features, two chains of layers, a linear head each."""
    own = ("forward", "get_distribution", "predict_values", "_get_action_dist_from_latent", "extract_features")
    return (
        all(getattr(type(policy), name) is getattr(ActorCriticPolicy, name) for name in own)
        and type(policy.mlp_extractor) is MlpExtractor
        and type(policy.action_net) is nn.Linear
        and not isinstance(policy.action_dist, StateDependentNoiseDistribution)
    )


def has_state(module: nn.Module) -> bool:
    """Whether the module has parameters or buffers."""
    return any(True for _ in (*module.parameters(), *module.buffers()))


class Networks:
    """A policy's actor and critic: modules, what to feed them, and the parameters that each of them trains.

    Parameters that both use are the actor's: its trust region must know of every change of the policy.
    """

    def __init__(self, policy: ActorCriticPolicy) -> None:
        self.policy, self.family, self.device = policy, family_of(policy), policy.device
        self.standard = is_standard(policy)
        # features that nothing is learnt for are computed once, and leave plain chains of layers behind
        self.fixed_features = self.standard and not has_state(policy.pi_features_extractor)
        self.actor: nn.Module = actor_chain(policy) if self.standard else PolicyOutputs(policy)
        self.critic: nn.Module = critic_chain(policy) if self.standard else ValueOutputs(policy)
        self.extras = bool(getattr(policy, "critic_extras", False))
        if self.extras and not self.fixed_features:
            raise Refused("critic_extras takes observations that are vectors")
        with torch.no_grad():
            inputs = self.inputs(self.tensors(batch_of_one(policy.observation_space)))
            seen = self.critic_inputs(inputs, np.zeros(1))
        self.actor_parameters = used_by(self.actor, inputs)
        owned = {id(p) for p in self.actor_parameters}
        self.critic_parameters = [p for p in used_by(self.critic, seen) if id(p) not in owned]

    def tensors(self, observations: Observations) -> PyTorchObs:
        """Move observations to the policy's device."""
        return obs_as_tensor(observations, self.device)

    def inputs(self, observations: PyTorchObs) -> PyTorchObs:
        """Turn observations into what the modules take.

        These are fixed features, or preprocessed observations, or the observations themselves.
        """
        if self.fixed_features:
            return BasePolicy.extract_features(self.policy, observations, self.policy.pi_features_extractor)
        if self.standard:
            return preprocess_obs(observations, self.policy.observation_space, self.policy.normalize_images)
        return observations

    def critic_inputs(self, inputs: PyTorchObs, times: Array | None, z: Tensor | None = None) -> PyTorchObs:
        """Turn what the actor takes into what the critic takes, which with `critic_extras` is more.

        times: steps since the episodes began, [n].
        z: the actor's outputs, if they are known.
        """
        if not self.extras:
            return inputs
        assert isinstance(inputs, Tensor)
        assert times is not None
        z = self.actor(inputs) if z is None else z
        return torch.cat([inputs, z, torch.as_tensor(times / TIME_UNIT).to(inputs).unsqueeze(1)], 1)

    @property
    def first_layers(self) -> list[nn.Linear]:
        """The linear layers that see the observations themselves; none behind features of another kind."""
        return [*self.first_of(self.actor), *self.first_of(self.critic)]

    def first_of(self, chain: nn.Module) -> list[nn.Linear]:
        """The layer of the actor or of the critic that sees the observations themselves, if there is one.

        A critic's with extras is left out.
        """
        policy = self.policy
        extractor = policy.pi_features_extractor if chain is self.actor else policy.vf_features_extractor
        if type(extractor) is not FlattenExtractor or not self.standard or not isinstance(chain, nn.Sequential):
            return []
        first = chain[0]
        if type(first) is not nn.Linear or not isinstance(first.weight, nn.Parameter) or first.bias is None:
            return []
        if self.extras and chain is self.critic:
            return []
        return [first]

    def values(self, observations: Observations, times: Array | None = None) -> Tensor:
        """Values [n, 1] of a batch of observations; `times` as in `critic_inputs`."""
        return self.critic(self.critic_inputs(self.inputs(self.tensors(observations)), times))

    def assess(self, observations: Observations, actions: Array) -> tuple[Tensor, Tensor]:
        """Values [n, 1] and log-probabilities [n] of a batch of observations and recorded actions.

        As in SB3 the values are those of the policy's `forward`, in which a policy of the user's may show others than
        it predicts.
        """
        seen = self.tensors(observations)
        inputs = self.inputs(seen)
        values = self.critic(inputs) if self.standard else self.policy(seen)[1]
        draws = draws_of(self.policy, torch.as_tensor(actions, device=self.device).float())
        return values, self.family.log_prob(self.actor(inputs), draws)


def actor_chain(policy: ActorCriticPolicy) -> nn.Sequential:
    """The actor of a standard policy, over its own parameters."""
    features = [policy.pi_features_extractor] if has_state(policy.pi_features_extractor) else []
    chain = nn.Sequential(*features, *policy.mlp_extractor.policy_net, policy.action_net)
    if isinstance(policy.action_dist, DiagGaussianDistribution):
        free = FreeLogStd(policy.log_std.numel())
        free.log_std = policy.log_std
        chain.append(free)
    return chain


def critic_chain(policy: ActorCriticPolicy) -> nn.Sequential:
    """The critic of a standard policy, over its own parameters."""
    features = [policy.vf_features_extractor] if has_state(policy.vf_features_extractor) else []
    return nn.Sequential(*features, *policy.mlp_extractor.value_net, policy.value_net)


def used_by(module: nn.Module, inputs: PyTorchObs) -> list[Tensor]:
    """The module's parameters that its output depends on."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    training = module.training
    module.eval()  # looking must not move a running average
    with torch.enable_grad():
        gradients = torch.autograd.grad(module(inputs).sum(), parameters, allow_unused=True)
    module.train(training)
    return [p for p, gradient in zip(parameters, gradients, strict=True) if gradient is not None]
