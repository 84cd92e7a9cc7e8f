"""A batch in several calls against the same batch in one."""

from collections.abc import Iterator

import pytest
import torch
from small_flows import policy
from torch import Tensor, nn

from geonpg.kfac.linearisation import Linearisation
from geonpg.kfac.network import Call, Network


def images() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 4)).double()


def words() -> nn.Module:
    """With a position between case and output: z is [cases, 3, 4]."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 4)).double()


def linearised() -> Iterator[tuple[str, Linearisation, Linearisation]]:
    for name, module, shape in (("chain", policy(), (4,)), ("images", images(), (1, 4, 4)), ("words", words(), (3, 4))):
        layers = [n for n, m in module.named_modules() if type(m) in (nn.Linear, nn.Conv2d)]
        network, x = Network(module, layers), torch.randn(12, *shape, dtype=torch.float64)
        y = network.layout.read()
        calls = [Call((part,)) for part in x.split([3, 5, 4])]
        yield name, network.linearise_all(y, calls), network.linearise_all(y, [Call((x,))])


CASES = {name: (several, one) for name, several, one in linearised()}


@pytest.mark.parametrize("name", CASES)
def test_E4_derivatives_are_those_of_one_call_with_all_cases(name: str) -> None:
    several, one = CASES[name]
    v, u = torch.randn(one.size, dtype=torch.float64), torch.randn_like(one.z)
    flat = u.reshape(several.z.shape)

    def same(a: Tensor, b: Tensor) -> None:
        torch.testing.assert_close(a, b.reshape(a.shape), rtol=1e-6, atol=1e-6)

    assert several.cases == one.cases
    same(several.z, one.z)
    same(several.first(v), one.first(v))
    for ours, theirs in zip(several.second(v), one.second(v), strict=True):
        same(ours, theirs)
    same(several.pullback(flat), one.pullback(u))
    same(several.pullback_derivative(flat, v), one.pullback_derivative(u, v))


@pytest.mark.parametrize("name", CASES)
def test_E4_signals_are_those_of_one_call_with_all_cases(name: str) -> None:
    several, one = CASES[name]
    u = torch.randn_like(one.z)
    ours, theirs = several.signals(u.reshape(several.z.shape)), one.signals(u)
    assert ours.keys() == theirs.keys()
    for layer in theirs:
        for mine, other in zip(ours[layer], theirs[layer], strict=True):
            torch.testing.assert_close(mine, other)


def test_E4_outputs_of_all_calls_stand_below_one_another() -> None:
    module = policy()
    network, x = Network(module), torch.randn(9, 4, dtype=torch.float64)
    parts = network.outputs_all(network.layout.read(), [Call((x[:2],)), Call((x[2:],))])
    torch.testing.assert_close(parts, module(x).detach())
