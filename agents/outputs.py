"""An SB3 policy's two networks, as the natural gradient wants them: modules from observations to outputs z.

A plain policy (vectors in, two chains of layers) becomes two `nn.Sequential`s over the policy's own parameters, which
take the written-out path of `geonpg.kfac`. Any other policy is wrapped as it is and takes torch.func's.
"""

from collections.abc import Callable
from typing import Any

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
from stable_baselines3.common.torch_layers import FlattenExtractor, MlpExtractor
from torch import Tensor, nn

from geonpg.kfac import Bernoulli, Categorical, Family, FreeLogStd, Gaussian, Product

Observations = Any  # a tensor, or a dictionary of tensors


class PolicyOutputs(nn.Module):
    """Any policy, from observations to its distribution's parameters z."""

    def __init__(self, policy: ActorCriticPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observations: Observations) -> Tensor:
        return parameters_of(self.policy.get_distribution(observations))


class ValueOutputs(nn.Module):
    """Any policy, from observations to values [n, 1]."""

    def __init__(self, policy: ActorCriticPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observations: Observations) -> Tensor:
        return self.policy.predict_values(observations)


def parameters_of(distribution: Distribution) -> Tensor:
    """A distribution's parameters, as its family orders them."""
    inner: Any = distribution.distribution
    if isinstance(distribution, DiagGaussianDistribution | StateDependentNoiseDistribution):
        return torch.cat([inner.mean, inner.stddev.log()], -1)
    if isinstance(distribution, MultiCategoricalDistribution):
        return torch.cat([part.logits for part in inner], -1)
    return inner.logits


def family_of(policy: ActorCriticPolicy) -> Family:
    """The manifold that the policy's distributions form. Squashed actions have that of the actions before."""
    distribution = policy.action_dist
    if isinstance(distribution, DiagGaussianDistribution | StateDependentNoiseDistribution):
        return Gaussian()
    if isinstance(distribution, CategoricalDistribution):
        return Categorical()
    if isinstance(distribution, MultiCategoricalDistribution):
        return Product([(Categorical(), int(size)) for size in distribution.action_dims])
    if isinstance(distribution, BernoulliDistribution):
        return Bernoulli()
    raise ValueError(f"ACKTR knows no geometry of {type(distribution).__name__}: its actions must be SB3's own kinds")


def draws_of(policy: ActorCriticPolicy, actions: Tensor) -> Tensor:
    """Recorded actions [n, ...] as the family's draws."""
    if isinstance(policy.action_dist, CategoricalDistribution):
        return actions.long().flatten()
    return TanhBijector.inverse(actions) if policy.squash_output else actions


def plain_parts(policy: ActorCriticPolicy) -> bool:
    """Do this policy's distributions and values come from SB3's own code, on flat vectors?"""
    own = ("get_distribution", "predict_values", "_get_action_dist_from_latent", "extract_features")
    return (
        all(getattr(type(policy), name) is getattr(ActorCriticPolicy, name) for name in own)
        and type(policy.mlp_extractor) is MlpExtractor
        and type(policy.pi_features_extractor) is FlattenExtractor
        and type(policy.vf_features_extractor) is FlattenExtractor
        and type(policy.action_net) is nn.Linear
        and not isinstance(policy.action_dist, StateDependentNoiseDistribution)
    )


class Networks:
    """A policy's actor and critic: modules, what to feed them, and the parameters that each of them trains.

    Parameters that both use are the actor's: its trust region must know of every change of the policy.
    """

    def __init__(self, policy: ActorCriticPolicy, example: Observations) -> None:
        self.policy, self.family = policy, family_of(policy)
        self.plain = plain_parts(policy)
        self.actor, self.critic = chains_of(policy) if self.plain else (PolicyOutputs(policy), ValueOutputs(policy))
        with torch.no_grad():
            inputs = self.inputs(example)
        self.actor_parameters = used_by(self.actor, inputs)
        owned = {id(p) for p in self.actor_parameters}
        self.critic_parameters = [p for p in used_by(self.critic, inputs) if id(p) not in owned]

    def inputs(self, observations: Observations) -> Any:
        """What the modules take: flat features of a plain policy, the observations themselves of any other."""
        if not self.plain:
            return observations
        return BasePolicy.extract_features(self.policy, observations, self.policy.pi_features_extractor)

    @torch.no_grad()
    def act(self, observations: Observations) -> Tensor:
        """One draw per observation, without an SB3 distribution where that can be avoided."""
        if not self.plain:
            return self.policy.get_distribution(observations).get_actions()
        z = self.actor(self.inputs(observations))
        actions = self.family.sample(z)
        return actions.long() if isinstance(self.policy.action_dist, MultiCategoricalDistribution) else actions


def chains_of(policy: ActorCriticPolicy) -> tuple[nn.Sequential, nn.Sequential]:
    """Actor and critic of a plain policy, over its own parameters."""
    layers: list[nn.Module] = [*policy.mlp_extractor.policy_net, policy.action_net]
    if isinstance(policy.action_dist, DiagGaussianDistribution):
        free = FreeLogStd(policy.log_std.numel())
        free.log_std = policy.log_std
        layers.append(free)
    return nn.Sequential(*layers), nn.Sequential(*policy.mlp_extractor.value_net, policy.value_net)


def used_by(module: Callable[[Any], Tensor], inputs: Any) -> list[Tensor]:
    """The module's parameters that its output depends on."""
    assert isinstance(module, nn.Module)
    parameters = [p for p in module.parameters() if p.requires_grad]
    training = module.training
    module.eval()  # looking must not move a running average
    with torch.enable_grad():
        gradients = torch.autograd.grad(module(inputs).sum(), parameters, allow_unused=True)
    module.train(training)
    return [p for p, gradient in zip(parameters, gradients, strict=True) if gradient is not None]
