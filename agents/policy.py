"""The policy classes: SB3's, with an actor and a critic that share nothing."""

from typing import Any

import torch
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.common.policies import (
    ActorCriticCnnPolicy,
    ActorCriticPolicy,
    BasePolicy,
    MultiInputActorCriticPolicy,
)
from stable_baselines3.common.type_aliases import Schedule
from torch import nn

from geonpg.errors import Refused

LAST_ROWS = 0.1  # length of the rows of the policy's last layer at the start, with `unit_rows`


class SeparateCritic(ActorCriticPolicy):
    """SB3's policy, whose actor and critic have features of their own: shared ones would be trained by the actor alone.

    log_std_init: logarithm of the standard deviation of actions at the start, -2 to 0.
    critic_activation_fn: activation of the critic's hidden layers; None for the actor's.
    unit_rows: rows of weights have length 1 at the start, 0.1 in the policy's last layer; they are not orthogonal.
    critic_extras: the critic also sees the parameters of the policy's normal distribution and the time step, which
        `ACKTR` shows it; `predict_values` knows neither, and cannot be called.
    All other arguments are SB3's, with its defaults.
    """

    def __init__(
        self,
        *args: Any,
        log_std_init: float = -0.7,
        critic_activation_fn: type[nn.Module] | None = None,
        unit_rows: bool = False,
        critic_extras: bool = False,
        share_features_extractor: bool = False,
        **kwargs: Any,
    ) -> None:
        self.critic_activation_fn, self.unit_rows, self.critic_extras = critic_activation_fn, unit_rows, critic_extras
        kwargs |= {"log_std_init": log_std_init, "share_features_extractor": share_features_extractor}
        super().__init__(*args, **kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("critic_activation_fn", "unit_rows", "critic_extras")}
        return {**super()._get_constructor_parameters(), **own}

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        if self.unit_rows:
            for layer in self.modules():
                if isinstance(layer, nn.Linear):
                    normalize_rows(layer, LAST_ROWS if layer is self.action_net else 1.0)

    def _build_mlp_extractor(self) -> None:
        super()._build_mlp_extractor()
        if self.critic_activation_fn is not None:
            layers = self.mlp_extractor.value_net
            self.mlp_extractor.value_net = nn.Sequential(
                *(layer if isinstance(layer, nn.Linear) else self.critic_activation_fn() for layer in layers)
            )
        if self.critic_extras:
            self._widen_critic()

    def _widen_critic(self) -> None:
        """Let the critic's first layer take mean and log std of every action and the time step beside the features."""
        layers = self.mlp_extractor.value_net
        first = layers[0] if len(layers) > 0 else None
        if not isinstance(first, nn.Linear) or not isinstance(self.action_dist, DiagGaussianDistribution):
            raise Refused("critic_extras takes continuous actions and a critic with hidden layers")
        size = first.in_features + 2 * self.action_dist.action_dim + 1
        layers[0] = nn.Linear(size, first.out_features, device=first.weight.device)


@torch.no_grad()
def normalize_rows(layer: nn.Linear, length: float) -> None:
    """Draw a layer's weights anew, with rows of this length and no bias."""
    rows = torch.randn_like(layer.weight)
    layer.weight.copy_(length * rows / rows.norm(dim=1, keepdim=True))
    layer.bias.zero_()


class ACKTRPolicy(SeparateCritic):
    """The policy for vectors of observations."""


class ACKTRCnnPolicy(SeparateCritic, ActorCriticCnnPolicy):
    """The policy for images."""


class ACKTRMultiInputPolicy(SeparateCritic, MultiInputActorCriticPolicy):
    """The policy for dictionaries of observations."""


# By SB3's names.
POLICY_ALIASES: dict[str, type[BasePolicy]] = {
    "MlpPolicy": ACKTRPolicy,
    "CnnPolicy": ACKTRCnnPolicy,
    "MultiInputPolicy": ACKTRMultiInputPolicy,
}
