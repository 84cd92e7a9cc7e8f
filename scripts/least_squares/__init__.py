"""The optimiser on deterministic least-squares problems: `geonpg residuals`."""
