"""Files that move: what is read back from them is what was shot."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from geonpg.scripts.models import film as films
from geonpg.scripts.models.film import LOOKS, Picture, film, narrowed


def pictures(number: int) -> list[Picture]:
    """A red square that wanders over a grey slope."""
    shade = np.linspace(40, 200, 64).astype(np.uint8)
    scenes = [np.repeat(np.tile(shade, (48, 1))[:, :, None], 3, axis=2) for _ in range(number)]
    for i, scene in enumerate(scenes):
        scene[10:20, 2 * i : 2 * i + 8] = (220, 20, 20)
    return scenes


def shot(path: Path, rate: float, scenes: list[Any]) -> None:
    with film(path, path.suffix, rate, LOOKS[path.suffix]) as shoot:
        for scene in scenes:
            shoot(scene)


@pytest.mark.parametrize("kind", [".gif", ".webp"])
def test_an_animation_is_read_back_as_it_was_shot(kind: str, tmp_path: Path) -> None:
    scenes, path = pictures(20), tmp_path / f"square{kind}"
    shot(path, 125 / 8, scenes)
    seconds = 0.0
    with Image.open(path) as found:
        assert (found.n_frames, found.size) == (20, (64, 48))
        assert found.info["loop"] == 0, "for ever"
        for i, scene in enumerate(scenes):
            found.seek(i)
            assert np.abs(np.asarray(found.convert("RGB"), dtype=int) - scene).mean() < 8
            seconds += found.info["duration"] / 1000
    assert seconds == pytest.approx(20 * 8 / 125, abs=0.006), "a .gif counts hundredths of a second; the speed is kept"


def test_rare_colours_stay_in_a_small_palette(tmp_path: Path) -> None:
    shot(tmp_path / "square.gif", 10, pictures(5))
    with Image.open(tmp_path / "square.gif") as found:
        colours = found.convert("RGB").getcolors()
        assert colours is not None
        assert len(colours) <= 64
        red, green, _ = found.convert("RGB").getpixel((4, 15))
        assert red > 200
        assert green < 40


def test_a_movie_that_lost_pictures_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shot(tmp_path / "square.mp4", 10, pictures(5))
    assert films.frames_in(tmp_path / "square.mp4") == 5
    monkeypatch.setattr(films, "frames_in", lambda path: 4)
    with pytest.raises(OSError, match=r"it could not be written whole: is the disk full\?"):
        shot(tmp_path / "lost.mp4", 10, pictures(5))


def test_a_film_that_breaks_off_is_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "square.gif"
    with pytest.raises(AttributeError):
        shot(path, 10, [*pictures(1), None])
    assert not path.exists()


def test_narrower_pictures_keep_their_proportions() -> None:
    (scene,) = pictures(1)
    assert narrowed(scene, None) is scene
    assert narrowed(scene, 32).shape == (24, 32, 3)
