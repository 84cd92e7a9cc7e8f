"""Writers of moving pictures: .mp4 by ffmpeg, .gif and .webp by Pillow."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Picture = NDArray[np.uint8]  # [height, width, 3]
Shoot = Callable[[Picture], None]

SAMPLED = 8  # frames whose colours make an animation's palette
WEBP_QUALITY = 60
DISK = "is the disk full?"


@dataclass(frozen=True)
class Look:
    """How a film looks, which decides how large its file is.

    fps: pictures per second, at most (10 to 30): the environment's own rate divided by a whole number.
    width: width of the environment's picture in pixels (200 to 500); None for as it is drawn.
    seconds: how much of the episode is shown (5 to 10); None for all of it.
    colours: size of a .gif's palette (32 to 256).
    curve: whether the run's learning curve stands beside the environment.
    """

    fps: int
    width: int | None = None
    seconds: int | None = None
    colours: int = 64
    curve: bool = False


# Animations are for pages, which load them at once: they have to be small. Movies are not.
LOOKS = {
    ".mp4": Look(fps=30),
    ".gif": Look(fps=15, width=300, seconds=8),
    ".webp": Look(fps=15, width=300, seconds=8),
}


def film(path: Path, kind: str, rate: float, look: Look) -> AbstractContextManager[Shoot]:
    """Open a file for pictures, all of one size; yields the function that appends one."""
    return movie(path, rate) if kind == ".mp4" else animation(path, kind, rate, look.colours)


@contextmanager
def movie(path: Path, rate: float) -> Iterator[Shoot]:
    """Write an .mp4; raise OSError if it is not whole."""
    import imageio_ffmpeg

    writer: Any = None
    frames = 0

    def shoot(frame: Picture) -> None:
        nonlocal writer, frames
        if writer is None:
            size = frame.shape[1], frame.shape[0]
            writer = imageio_ffmpeg.write_frames(
                path, size, fps=rate, macro_block_size=2, ffmpeg_log_level="quiet", output_params=["-f", "mp4"]
            )
            writer.send(None)
        try:
            writer.send(frame)
        except OSError:
            raise OSError(f"ffmpeg gave up: {DISK}") from None
        frames += 1

    try:
        yield shoot
    finally:
        if writer is not None:
            writer.close()
    if frames_in(path) != frames:  # ffmpeg itself does not say whether it could write all of it
        raise OSError(f"it could not be written whole: {DISK}")


def frames_in(path: Path) -> int:
    """Count the pictures in an .mp4; 0 if it cannot be read."""
    import imageio_ffmpeg

    try:
        return int(imageio_ffmpeg.count_frames_and_secs(str(path))[0])
    except RuntimeError:
        return 0


@contextmanager
def animation(path: Path, kind: str, rate: float, colours: int) -> Iterator[Shoot]:
    """Write a .gif or .webp that repeats for ever."""
    pictures: list[Image.Image] = []
    yield lambda frame: pictures.append(Image.fromarray(frame))
    # a .gif counts hundredths of a second; rounding points in time instead of durations keeps the speed
    times = [round(100 * i / rate) for i in range(len(pictures) + 1)]
    options: dict[str, Any] = {"duration": [10 * (end - begin) for begin, end in pairwise(times)], "loop": 0}
    if kind == ".gif":
        palette = sheet(pictures).quantize(colours, method=Image.Quantize.FASTOCTREE)  # others drop rare colours
        pictures = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    else:
        options |= {"quality": WEBP_QUALITY, "method": 4}
    with path.open("wb") as file:
        pictures[0].save(file, format=kind[1:].upper(), save_all=True, append_images=pictures[1:], **options)


def sheet(pictures: list[Image.Image]) -> Image.Image:
    """Stack some of the pictures, for one palette that fits all of them: several would flicker."""
    chosen = pictures[:: max(1, len(pictures) // SAMPLED)]
    return Image.fromarray(np.concatenate([np.asarray(picture) for picture in chosen]))


def narrowed(frame: Picture, width: int | None) -> Picture:
    """Scale a picture to this width, with its proportions."""
    if width is None or width == frame.shape[1]:
        return frame
    height = max(1, round(frame.shape[0] * width / frame.shape[1]))
    return np.asarray(Image.fromarray(frame).resize((width, height), Image.Resampling.LANCZOS))
