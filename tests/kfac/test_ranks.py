"""Two processes that share a batch take the step of one that has it all."""

from pathlib import Path
from typing import Any

import pytest
import rank_processes
import torch
import torch.distributed as dist

from geonpg.kfac import ProcessGroup
from geonpg.kfac.ranks import ALONE

Results = list[dict[str, Any]]  # of both ranks


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return rank_processes.run(rank_processes.combinations_and_sharing, 2, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def two(both: list[tuple[dict[str, Any], dict[str, Any]]]) -> Results:
    return [combinations for combinations, _ in both]


@pytest.fixture(scope="module")
def shared(both: list[tuple[dict[str, Any], dict[str, Any]]]) -> Results:
    return [shared for _, shared in both]


def test_two_ranks_end_where_one_process_does_for_every_rule_and_solver(two: Results) -> None:
    alone = rank_processes.every_combination()
    start = torch.cat([p.detach().reshape(-1) for p in rank_processes.plain_policy().parameters()])
    for name, parameters in alone.items():
        assert (two[0][name] - parameters).abs().max() < 1e-9, name
        if "norm" not in name:
            assert (parameters - start).abs().max() > 1e-3, f"{name} did not move"


def test_ranks_agree_to_the_last_bit(two: Results) -> None:
    for name, parameters in two[0].items():
        assert torch.equal(parameters, two[1][name]), name


def test_what_is_shared(shared: Results) -> None:
    first, second = shared
    for name in ("mean", "number", "least", "moments", "collected", "rows", "any", "shared out", "agreed"):
        assert str(first[name]) == str(second[name]), name
    assert first["mean"].tolist() == [1.5, 3.0]
    assert (first["number"], first["least"], first["any"]) == (0.5, 4.0, (True, False))
    everything = torch.arange(8.0)
    assert first["moments"] == pytest.approx((float(everything.mean()), float(everything.std())))
    assert [first["own"].tolist(), second["own"].tolist()] == [[0, 1, 2], [3, 4, 5]]
    assert [x.tolist() for x in first["collected"]] == [[0], [1]]
    assert [x.tolist() for x in first["rows"]] == [[0.0], [0.0, 1.0]]
    assert [x.tolist() for x in first["shared out"]] == [[1.0], [2.0, 2.0], [3.0, 3.0, 3.0]]
    assert first["agreed"].tolist() == [0.0, 0.0]


def test_ranks_agree_on_tensors_of_every_kind(tmp_path: Path) -> None:
    """One process is enough to see what rounding would do: the integer has no float32 of its own."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        tensors = [torch.randn(2, 3), torch.tensor(16777217), torch.randn(3)]
        before = [x.clone() for x in tensors]
        ProcessGroup().agree(tensors)
    finally:
        dist.destroy_process_group()
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))


def test_alone_nothing_changes() -> None:
    x = torch.randn(4)
    assert ALONE.mean(x) is x
    assert ALONE.own(x) is x
    assert ALONE.rows(x) == [x]
    assert ALONE.any(True)
    assert not ALONE.any(False)
    with pytest.raises(ValueError, match="init_process_group"):
        ProcessGroup()
