"""ACKTR behind Stable-Baselines3's interface. Start with `acktr.py`."""

from .acktr import ACKTR
from .policy import ACKTRCnnPolicy, ACKTRMultiInputPolicy, ACKTRPolicy

__all__ = ["ACKTR", "ACKTRCnnPolicy", "ACKTRMultiInputPolicy", "ACKTRPolicy"]
