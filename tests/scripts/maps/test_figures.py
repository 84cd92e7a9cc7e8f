"""The figure of a map, as a README shows it."""

from pathlib import Path

from drawn_figures import has_overlapping_ticks, laid_out, least_text_height
from tiny_maps import TINY_GRID, write_grid, write_synthetic

from geonpg.scripts.maps.analysis import read_map
from geonpg.scripts.maps.figures import map_figure
from geonpg.scripts.maps.trunk import GRID


def test_every_variant_has_a_look_of_its_own(tmp_path: Path) -> None:
    folder = write_grid(tmp_path)
    more = ["pcg/ng", "pcg/ng-4", "ppo", "kfac/geo"]
    tables = [
        '"pcg/ng" = {rule = "ng"}',
        '"pcg/ng-4" = {rule = "ng", substeps = 4}',
        '"ppo" = {rule = "clip"}',
        '"kfac/geo" = {rule = "geo", solver = "kfac"}',
    ]
    (folder / GRID).write_text("\n".join([TINY_GRID, *tables]))
    gains = dict.fromkeys(["pcg/geo", "kfac/ng", *more], 0.01)
    write_synthetic(folder, "Reacher-v4", 3000, gains, 2)
    figure = laid_out(map_figure(read_map(folder)))
    assert least_text_height(figure) >= 11
    assert not has_overlapping_ticks(figure)
    lines = figure.axes[0].get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines) == len(gains)
