"""Compiled steps of optimisers: as eager, in place, and one program for all learning rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from tatami.backends.torch_report import REPORTS

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # in PyTorch's own code
Make = Callable[[Iterable[Any], Any], torch.optim.Optimizer]
OPTIMISERS: dict[str, Make] = {
    "SGD": lambda p, lr: torch.optim.SGD(p, lr=lr),
    "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p, lr: torch.optim.Adam(p, lr=lr),
    "AdamW": lambda p, lr: torch.optim.AdamW(p, lr=lr),
    "AdamW, foreach": lambda p, lr: torch.optim.AdamW(p, lr=lr, foreach=True),
    "SGD, foreach": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, foreach=True),
    "Adam, amsgrad": lambda p, lr: torch.optim.Adam(p, lr=lr, amsgrad=True, weight_decay=0.1),
    "RMSprop": lambda p, lr: torch.optim.RMSprop(p, lr=lr),
    "Adagrad": lambda p, lr: torch.optim.Adagrad(p, lr=lr),
    "NAdam": lambda p, lr: torch.optim.NAdam(p, lr=lr),
}
STEPS = 6


def trained(make: Make, lr: Callable[[float], Any], compiled: bool) -> tuple[list[torch.Tensor], bool]:
    """The parameters after some steps, each with another learning rate, and whether parameters and state kept their memory."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(*shape)) for shape in ((24, 16), (16,), (5, 3, 2))]
    optimiser = make(parameters, lr(1e-2))
    step = torch.compile(optimiser.step, backend="tatami", options={"fallback": False}) if compiled else optimiser.step
    places: list[list[int]] = []
    for k in range(STEPS):
        for p in parameters:
            p.grad = torch.randn_like(p)
        for group in optimiser.param_groups:
            if torch.is_tensor(group["lr"]):
                group["lr"].fill_(1e-2 / (1 + k))
            else:
                group["lr"] = 1e-2 / (1 + k)
        step()
        held = [v for state in optimiser.state.values() for v in state.values() if torch.is_tensor(v) and v.ndim]
        places.append([t.data_ptr() for t in (*parameters, *held)])
    return [p.detach() for p in parameters], all(p == places[1] for p in places[1:])


@pytest.mark.parametrize("kind", ["number", "tensor"])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_are_eagers_in_place_and_by_one_program(name: str, kind: str) -> None:
    if kind == "tensor" and "foreach" in name:
        pytest.skip("PyTorch refuses it")
    torch._dynamo.reset()
    REPORTS.clear()
    lr: Callable[[float], Any] = (lambda v: v) if kind == "number" else torch.tensor
    got, in_place = trained(OPTIMISERS[name], lr, compiled=True)
    wanted, _ = trained(OPTIMISERS[name], lr, compiled=False)
    for g, w in zip(got, wanted, strict=True):
        torch.testing.assert_close(g, w, rtol=2e-6, atol=2e-6)
    assert in_place
    makes_buffers = name in ("momentum", "SGD, foreach")  # in its first step
    first_is_constant = kind == "number"  # in PyTorch: the second number is an argument of the graph
    assert len(REPORTS) == 1 + (makes_buffers or first_is_constant)
    assert all(r.programs == 1 and not r.copies for r in REPORTS)


def test_updates_by_methods_with_a_factor() -> None:
    """An optimiser as users write one."""
    torch._dynamo.reset()
    REPORTS.clear()

    def step(p: torch.Tensor, m: torch.Tensor, g: torch.Tensor, lr: float) -> torch.Tensor:
        m.mul_(0.9).add_(g, alpha=lr)
        p.addcmul_(m, g, value=-lr).addcdiv_(g, m.abs() + 1, value=lr)
        return torch.add(p, m, alpha=lr).add(g, alpha=-lr)

    made = torch.compile(step, backend="tatami", options={"fallback": False})
    torch.manual_seed(0)
    given = [torch.randn(9, 7) for _ in range(3)]
    other = [t.clone() for t in given]
    for lr in (0.1, 0.2, 0.3, 0.4):
        torch.testing.assert_close(made(*given, lr), step(other[0], other[1], other[2], lr), rtol=1e-6, atol=1e-6)
        for a, b in zip(given, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    assert len(REPORTS) == 2


UPDATES: dict[str, Callable[..., torch.Tensor]] = {
    "a number first": lambda p, g, lr: torch.add(2.0, p, alpha=lr),
    "operands of a method by name": lambda p, g, lr: p.addcmul(tensor1=g, tensor2=p, value=lr).sub(other=g, alpha=lr),
    "operands of a function by name": lambda p, g, lr: torch.add(input=p, other=g, alpha=lr),
    "functions": lambda p, g, lr: torch.addcdiv(torch.addcmul(p, g, p, value=lr), g, p.abs() + 1, value=lr),
}


@pytest.mark.parametrize("name", UPDATES)
def test_any_call_of_an_update_takes_a_factor(name: str) -> None:
    torch._dynamo.reset()
    REPORTS.clear()
    step = UPDATES[name]
    made = torch.compile(step, backend="tatami", options={"fallback": False})
    torch.manual_seed(0)
    p, g = torch.randn(4, 5), torch.randn(4, 5)
    for lr in (0.1, 0.2, 0.3, 0.4):
        torch.testing.assert_close(made(p, g, lr), step(p, g, lr), rtol=1e-6, atol=1e-6)
    assert len(REPORTS) == 2


def test_a_result_in_a_given_tensor_is_not_lost() -> None:
    torch._dynamo.reset()

    def step(p: torch.Tensor, g: torch.Tensor, lr: float) -> torch.Tensor:
        torch.add(p, g, alpha=lr, out=p)
        return p * 2

    made = torch.compile(step, backend="tatami")
    p, g = torch.ones(3), torch.arange(3.0)
    for lr in (0.5, 0.25, 0.125):
        mine, other = p.clone(), p.clone()
        torch.testing.assert_close(made(mine, g, lr), step(other, g, lr))
        torch.testing.assert_close(mine, other)


def test_functions_of_lists_are_those_of_their_tensors() -> None:
    torch._dynamo.reset()
    REPORTS.clear()
    f: Any = torch

    def step(a: list[torch.Tensor], b: list[torch.Tensor]) -> list[torch.Tensor]:
        f._foreach_lerp_(a, b, 0.3)
        f._foreach_mul_(a, [1.0, 2.0])
        f._foreach_addcdiv_(a, b, f._foreach_add(f._foreach_abs(b), 1.0), [0.5, -0.5])
        f._foreach_addcmul_(a, b, b, value=0.25)
        f._foreach_copy_(b, f._foreach_maximum(a, b))
        f._foreach_sub_(b, a, alpha=0.5)
        return [*f._foreach_pow(2.0, a), *f._foreach_add(a, b, alpha=3), *f._foreach_clamp_max(a, 0.5), *f._foreach_neg(b)]

    torch.manual_seed(0)
    given = [[torch.randn(4, 3), torch.randn(7)] for _ in range(2)]
    other = [[t.clone() for t in ts] for ts in given]
    got = torch.compile(step, backend="tatami", options={"fallback": False})(*given)
    torch.testing.assert_close(got, step(*other))
    torch.testing.assert_close(given, other)


def test_functions_of_lists_take_numbers_and_names() -> None:
    torch._dynamo.reset()
    f: Any = torch

    def step(a: list[torch.Tensor], b: list[torch.Tensor]) -> list[torch.Tensor]:
        bounds = [*f._foreach_maximum(a, 0.5), *f._foreach_minimum(a, [0.1, -0.2]), *f._foreach_minimum(a, b)]
        scaled = [*f._foreach_mul(a, scalar=3.0), *f._foreach_addcmul(a, b, b, scalars=[2.0, 3.0])]
        return [*bounds, *f._foreach_add(self=a, other=b), *scaled]

    a, b = [torch.tensor([float("nan"), 1.0]), torch.randn(3)], [torch.randn(2), torch.randn(3)]
    got = torch.compile(step, backend="tatami", options={"fallback": False})(a, b)
    torch.testing.assert_close(got, step(a, b), equal_nan=True)
