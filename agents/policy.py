"""The policy classes: SB3's, with an actor and a critic that share nothing."""

from typing import Any

from stable_baselines3.common.policies import (
    ActorCriticCnnPolicy,
    ActorCriticPolicy,
    MultiInputActorCriticPolicy,
)


class SeparateCritic:
    """Features that actor and critic shared would be trained by the actor alone; so each gets its own."""

    def __init__(self, *args: Any, share_features_extractor: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, share_features_extractor=share_features_extractor, **kwargs)


class ACKTRPolicy(SeparateCritic, ActorCriticPolicy):
    """For vectors of observations."""


class ACKTRCnnPolicy(SeparateCritic, ActorCriticCnnPolicy):
    """For images."""


class ACKTRMultiInputPolicy(SeparateCritic, MultiInputActorCriticPolicy):
    """For dictionaries of observations."""
