"""The policy classes: SB3's, with an actor and a critic that share nothing."""

from typing import Any

from stable_baselines3.common.policies import (
    ActorCriticCnnPolicy,
    ActorCriticPolicy,
    BasePolicy,
    MultiInputActorCriticPolicy,
)
from torch import nn


class SeparateCritic(ActorCriticPolicy):
    """SB3's policy, whose actor and critic have features of their own: shared ones would be trained by the actor alone.

    log_std_init: logarithm of the standard deviation of actions at the start, -2 to 0.
    critic_activation_fn: activation of the critic's hidden layers; None for the actor's.
    All other arguments are SB3's, with its defaults.
    """

    def __init__(
        self,
        *args: Any,
        log_std_init: float = -0.7,
        critic_activation_fn: type[nn.Module] | None = None,
        share_features_extractor: bool = False,
        **kwargs: Any,
    ) -> None:
        self.critic_activation_fn = critic_activation_fn
        kwargs |= {"log_std_init": log_std_init, "share_features_extractor": share_features_extractor}
        super().__init__(*args, **kwargs)

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
