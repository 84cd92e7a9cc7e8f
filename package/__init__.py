"""Geodesic natural policy gradients: `geonpg.agents`, `geonpg.kfac`, `geonpg.envs`, and the `geonpg` command."""
