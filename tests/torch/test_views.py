"""Results that are views of arguments in eager are views of them in compiled code: what is written there shows in both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tatami import backends  # noqa: E402
from tests.torch.test_torch_compile import compiled  # noqa: E402

VIEWS: dict[str, Callable[[Any], Any]] = {
    "split": lambda x: (x * 2, x.split([1, 3], 1)[0]),
    "the last of a split": lambda x: (x * 2, x.split([1, 3], 1)[1]),
    "chunk": lambda x: (x * 2, x.chunk(2, 1)[1]),
    "unbind": lambda x: (x * 2, x.unbind(0)[1]),
    "all of unbind": lambda x: tuple(x.unbind(0)),
    "split and transpose": lambda x: (x * 2, x.split(2, 1)[0].t()),
    "split of a transpose": lambda x: (x * 2, x.t().split(2, 0)[1]),
    "split and expand": lambda x: (x * 2, x.split(1, 1)[2].expand(3, 5)),
    "split of a split": lambda x: (x * 2, x.split([1, 3], 1)[1].split([2, 1], 1)[1]),
    "split and reshape": lambda x: (x * 2, x.split(2, 0)[0].reshape(2, 2, 2)),
    "tensor_split": lambda x: (x * 2, torch.tensor_split(x, 2, 1)[0]),
    "slice": lambda x: (x * 2, x[:, :1]),
    "diagonal": lambda x: (x * 2, x.unbind(0)[0].diag_embed().diagonal()),
}


def argument(kind: str, grad: bool) -> Any:
    whole = torch.arange(30.0).add(1)
    made = {"plain": whole[:12].reshape(3, 4), "part": whole[5:17].reshape(3, 4), "gaps": whole.reshape(5, 6)[1:4, 1:5]}
    made["turned"] = whole[:12].reshape(4, 3).t()
    return made[kind].detach().requires_grad_(grad)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("kind", ["plain", "part", "gaps", "turned"])
@pytest.mark.parametrize("name", VIEWS)
def test_what_is_written_to_a_view_shows_in_the_argument(name: str, kind: str, grad: bool) -> None:
    f, left = VIEWS[name], {}
    for run in (f, compiled(f)):
        x = argument(kind, grad)
        made = run(x)
        if grad:
            torch.autograd.backward([y for y in made if y.requires_grad], [torch.ones_like(y) for y in made if y.requires_grad])
        made[-1].detach().unsafe_chunk(1)[0].zero_() if "expand" in name else made[-1].detach().zero_()
        left[run] = (x.detach().clone(), [(y.detach().clone(), y.stride()) for y in made], x.grad)
    eager, ours = left.values()
    assert torch.equal(eager[0], ours[0])
    for (a, steps), (b, own) in zip(eager[1], ours[1], strict=True):
        assert torch.equal(a, b) and steps == own
    assert (eager[2] is None) == (ours[2] is None)
    assert not grad or torch.equal(eager[2], ours[2])
    assert not any(r.refused or r.unsupported for r in backends.torch_reports())


def test_views_of_open_sizes_begin_where_they_do_in_eager() -> None:
    def f(x: Any) -> Any:
        return x * 2, x.split([1, x.shape[1] - 1], 1)[1]

    run = compiled(f)
    for rows, columns in ((3, 4), (5, 6), (2, 9)):
        x, y = (torch.ones(rows, columns, requires_grad=True) for _ in range(2))
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(x, 1)
        run(x)[1].detach().zero_()
        f(y)[1].detach().zero_()
        assert torch.equal(x, y)


SHARED: dict[str, Callable[[Any], Any]] = {
    "a part after the whole": lambda y: (y, y.split(2, 1)[0]),
    "a part before the whole": lambda y: (y.split(2, 1)[0], y),
    "turned": lambda y: (y, y.t()),
    "parts that meet": lambda y: (y[1:], y[:2]),
    "parts that do not": lambda y: y.unbind(0),
    "the same twice": lambda y: (y, y.view(-1)),
    "of something turned": lambda y: (y.t().contiguous().t()[1:], y),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", SHARED)
def test_results_share_memory_as_in_eager(name: str, grad: bool) -> None:
    def f(x: Any) -> Any:
        return (*SHARED[name](x * 2), *SHARED[name](x.sum(1, keepdim=True) + x))

    left = []
    for run in (f, compiled(f)):
        made = run(torch.arange(12.0).reshape(3, 4).requires_grad_(grad))
        made[1].detach().zero_()
        made[-2].detach().mul_(3)
        left.append([y.detach().clone() for y in made])
    for a, b in zip(*left, strict=True):
        assert torch.equal(a, b) and a.stride() == b.stride()


def test_a_copy_stays_a_copy() -> None:
    x = torch.ones(3, 4, requires_grad=True)
    run = compiled(lambda x: (x * 2, x.split(2, 1)[0].clone(), x.split(2, 1)[0].contiguous(), x.t().reshape(-1)))
    for y in run(x)[1:]:
        y.detach().zero_()
    assert torch.equal(x, torch.ones(3, 4))
