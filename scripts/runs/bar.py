"""The progress bar of `geonpg train`."""

import math
import sys
from typing import Any

from tqdm import tqdm

from geonpg.scripts.runs.plan import episode_means
from geonpg.scripts.runs.process import is_first
from geonpg.scripts.runs.run import Run

# fits 80 columns: the bar itself takes what is left
FORMAT = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} steps, {rate_noinv_fmt}{postfix}, {remaining} left"


class Bar:
    """A progress bar for `Run.train(watch=...)`: steps, steps per second, mean return and time left on one line."""

    def __init__(self, run: Run[Any]) -> None:
        self.bar = tqdm(
            total=run.plan.settings.steps,
            initial=run.steps,
            unit="",
            unit_scale=True,
            dynamic_ncols=True,
            bar_format=FORMAT,
            postfix="return -",
            **({} if is_first() else {"disable": True}),  # otherwise TQDM_DISABLE decides
        )
        if not self.bar.disable:
            self.bar.write(f"training in {run.folder}", file=sys.stderr)

    def __call__(self, run: Run[Any]) -> None:
        self.bar.set_postfix_str(f"return {mean_return(run)}", refresh=False)
        self.bar.update(min(run.steps, self.bar.total) - self.bar.n)

    def close(self) -> None:
        """Close the bar and leave it on the screen."""
        self.bar.close()


def mean_return(run: Run[Any]) -> str:
    """Format the mean return of the latest episodes in a few characters."""
    mean, _ = episode_means(run.agent)
    if math.isnan(mean):
        return "-"
    return f"{mean:.0f}" if abs(mean) >= 1000 else f"{mean:.1f}"
