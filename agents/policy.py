"""The policy classes: SB3's, with an actor and a critic that share nothing."""

from typing import Any

from stable_baselines3.common.policies import (
    ActorCriticCnnPolicy,
    ActorCriticPolicy,
    MultiInputActorCriticPolicy,
)
from torch import nn


class SeparateCritic(ActorCriticPolicy):
    """Features that actor and critic shared would be trained by the actor alone; so each gets its own.

    critic_activation_fn: of the critic's hidden layers; the actor's by default.
    """

    def __init__(self, *args: Any, critic_activation_fn: type[nn.Module] | None = None, **kwargs: Any) -> None:
        self.critic_activation_fn = critic_activation_fn
        super().__init__(*args, **{"share_features_extractor": False, **kwargs})

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "critic_activation_fn": self.critic_activation_fn}

    def _build_mlp_extractor(self) -> None:
        super()._build_mlp_extractor()
        if self.critic_activation_fn is not None:
            layers = self.mlp_extractor.value_net
            self.mlp_extractor.value_net = nn.Sequential(
                *(layer if isinstance(layer, nn.Linear) else self.critic_activation_fn() for layer in layers)
            )


class ACKTRPolicy(SeparateCritic):
    """For vectors of observations."""


class ACKTRCnnPolicy(SeparateCritic, ActorCriticCnnPolicy):
    """For images."""


class ACKTRMultiInputPolicy(SeparateCritic, MultiInputActorCriticPolicy):
    """For dictionaries of observations."""
