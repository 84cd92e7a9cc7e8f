"""Numbers on the command line."""

from argparse import ArgumentTypeError

import pytest

from geonpg.scripts.common.parser import count, refuse, seed


@pytest.mark.parametrize("text", ["200000", "200_000", "2e5", "200000.0"])
def test_C13_a_count_may_be_written_as_one_likes(text: str) -> None:
    assert count(text) == seed(text) == 200_000
    for wrong in ("many", "1.5", "1e400", "nan", ""):
        with pytest.raises(ArgumentTypeError, match=f"^must be a whole number, such as 200000 or 2e5, not {wrong!r}$"):
            count(wrong)


@pytest.mark.parametrize("text", ["-1", "1e20", "4294967296"])
def test_B6_absurd_seeds_are_one_sentence(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"^must be from 0 to 4,294,967,295, not {text}$"):
        seed(text)


def test_a_refusal_is_one_sentence_after_the_frames_of_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert refuse("geonpg train", ValueError("no such task")) == 2
    assert refuse("geonpg train", "bad joint", "  File walk.py, line 3\n") == 2
    assert capsys.readouterr().err == "geonpg train: no such task\n  File walk.py, line 3\ngeonpg train: bad joint\n"
