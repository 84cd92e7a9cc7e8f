"""Geodesic natural policy gradients: ACKTR for Stable-Baselines3, its optimiser for any torch model, fast environments.

The names below are imported when they are first used, so that `import geonpg` and `geonpg --help` need no torch.
"""

from typing import TYPE_CHECKING

__all__ = ["ACKTR", "NaturalGradient", "Normalize", "__version__", "load", "make_vec"]

if TYPE_CHECKING:
    from geonpg.agents import ACKTR
    from geonpg.envs import Normalize, make_vec
    from geonpg.kfac import NaturalGradient
    from geonpg.scripts.models.loading import load

    __version__: str
else:
    _HOMES = {
        "ACKTR": "geonpg.agents",
        "NaturalGradient": "geonpg.kfac",
        "Normalize": "geonpg.envs",
        "load": "geonpg.scripts.models.loading",
        "make_vec": "geonpg.envs",
    }

    def __getattr__(name: str) -> object:
        """Import a public name on its first use (PEP 562); afterwards it is an ordinary attribute."""
        if name == "__version__":
            from importlib.metadata import version

            value = version("geonpg")
        elif name in _HOMES:
            from importlib import import_module

            value = getattr(import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
