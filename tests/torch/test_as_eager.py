"""Modules with state, buffers written by index, derivatives that do not exist: as in eager."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from tatami import backends
from tests.torch.test_torch_compile import compiled


def nothing_stays_in_pytorch() -> bool:
    return not any(r.unsupported or r.refused for r in backends.torch_reports())


@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": None}, {"momentum": 0.3, "affine": False}, {"track_running_stats": False}],
    ids=["plain", "cumulative", "no_affine", "no_statistics"],
)
def test_batch_norm_keeps_its_statistics_and_counts(options: dict[str, Any]) -> None:
    eager = torch.nn.Sequential(torch.nn.Conv1d(3, 4, 3), torch.nn.BatchNorm1d(4, **options), torch.nn.ReLU())
    own = copy.deepcopy(eager)
    run = torch.compile(own, backend=backends.torch_backend)
    for _ in range(3):
        x = torch.randn(5, 3, 9)
        wanted, got = eager(x), run(x)
        torch.testing.assert_close(got, wanted)
        wanted.square().sum().backward()
        got.square().sum().backward()
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(own.state_dict()[name], value, msg=name)
    for a, b in zip(own.parameters(), eager.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.compile(own.eval(), backend=backends.torch_backend)(x), eager.eval()(x))
    assert nothing_stays_in_pytorch()


class Buffers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(6, 4))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: Any, i: Any) -> Any:
        self.rows[i] = x
        self.count += 1
        self.rows[0, 1:3] += self.count
        self.rows.index_copy_(0, i + 2, x)
        self.rows[i, 2] = 7.0
        return self.rows.sum(0), self.rows[i]


def test_buffers_are_written_by_index() -> None:
    eager, own = Buffers(), Buffers()
    run = torch.compile(own, backend=backends.torch_backend)
    x, i = torch.randn(2, 4), torch.tensor([1, 3])
    for _ in range(3):
        torch.testing.assert_close(run(x, i), eager(x, i))
        torch.testing.assert_close(list(own.buffers()), list(eager.buffers()))
    with pytest.raises(IndexError):
        run(x, torch.tensor([1, 6]))
    assert nothing_stays_in_pytorch()


def test_a_dropout_that_does_nothing_is_its_argument() -> None:
    def f(x: Any) -> Any:
        a = x.erf()
        b = torch.nn.functional.dropout(a, 0.5, training=False)
        b[0] = 5.0
        return a, b

    got = compiled(f)(torch.ones(3))
    assert got[0].tolist() == f(torch.ones(3))[0].tolist()
    assert got[0].data_ptr() == got[1].data_ptr()


MISSING = {
    "floor_divide": lambda a, b: (a // b + b, a * b),
    "heaviside": lambda a, b: (torch.heaviside(a, b), a * b),
    "in_place": lambda a, b: ((a * b).floor_divide_(2.0), a * b),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_derivative_that_does_not_exist_is_no_error_until_it_is_asked_for(name: str) -> None:
    f = MISSING[name]
    a, b = torch.randn(4), torch.rand(4) + 1
    run = torch.compile(f, backend=backends.torch_backend)
    x = a.clone().requires_grad_()
    missing, product = run(x, b)
    torch.testing.assert_close((missing.detach(), product.detach()), f(a, b))
    product.sum().backward()
    torch.testing.assert_close(x.grad, b)
    with pytest.raises(RuntimeError, match="not implemented"):
        run(x, b)[0].sum().backward()
    assert any("derivative" in why for r in backends.torch_reports() for why in r.refused)
    torch._dynamo.reset()
    assert torch.equal(compiled(f)(a, b)[0], f(a, b)[0])


def test_cumulative_logarithms_of_sums_far_below_the_largest() -> None:
    x = torch.tensor([[0.0, 1000.0, 3.0], [-2000.0, -1999.0, 5.0]])
    torch.testing.assert_close(compiled(lambda x: x.logcumsumexp(1))(x), x.logcumsumexp(1))
    torch.testing.assert_close(compiled(lambda x: x.logcumsumexp(0))(x), x.logcumsumexp(0))


def test_an_argument_may_be_filled_without_being_read() -> None:
    def f(x: Any, y: Any) -> Any:
        x.zero_()
        y.fill_(2.0)
        return x + 1

    x, y = torch.randn(4, 3), torch.randn(5)
    assert torch.equal(compiled(f)(x, y), torch.ones(4, 3))
    assert not x.any() and bool((y == 2).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_choice_between_a_number_and_a_narrow_product_is_summed(dtype: Any) -> None:
    x, y = (torch.randn(225) * 4).to(dtype), torch.randn(225).to(dtype)
    f = lambda x, y: torch.where(x > 0, 0, x * y).sum()  # noqa: E731
    torch.testing.assert_close(compiled(f)(x, y), f(x, y), rtol=2e-2, atol=2e-2)


def test_the_last_nan_of_a_window_is_its_largest() -> None:
    x = torch.randn(1, 2, 7, 8, generator=torch.Generator().manual_seed(0))
    x[0, 0, 2:5, 1:4] = x[0, 1, 1, 1] = float("nan")
    x[0, 1, 3] = 5.0

    def f(x: Any) -> Any:
        pools = torch.nn.functional
        fixed = [pools.max_pool2d(x, k, s, p, return_indices=True) for k, s, p in ((3, 2, 1), (2, 2, 0), (3, 1, 0))]
        return [*fixed, pools.adaptive_max_pool2d(x, (3, 3), return_indices=True)]

    grads = []
    for run in (f, compiled(f)):
        given = x.clone().requires_grad_()
        found = run(given)
        torch.stack([value.sum() for value, _ in found]).sum().backward()
        grads.append(([at for _, at in found], given.grad))
    torch.testing.assert_close(grads[1], grads[0], equal_nan=True)
