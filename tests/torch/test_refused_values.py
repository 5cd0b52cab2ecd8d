"""Values that eager operators refuse, integers divided by zero and indices that are negative, are refused by compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tatami import backends  # noqa: E402
from tatami.core.diagnostic import TatamiError  # noqa: E402
from tests.torch.test_torch_compile import compiled  # noqa: E402

DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
}
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", DIVISIONS)
def test_integers_divided_by_zero_raise(name: str, dtype: Any) -> None:
    f = DIVISIONS[name]
    run = compiled(f)
    whole, divisors = torch.arange(100).to(dtype), torch.arange(1, 101).to(dtype)
    assert torch.equal(run(whole, divisors), f(whole, divisors))
    for at in (0, 37, 99):
        broken = divisors.clone()
        broken[at] = 0
        with pytest.raises(RuntimeError):
            f(whole, broken)
        for kind in (RuntimeError, ZeroDivisionError, TatamiError):
            with pytest.raises(kind, match="E1813"):
                run(whole, broken)
    assert torch.equal(run(whole, divisors), f(whole, divisors))


@pytest.mark.parametrize("name", DIVISIONS)
def test_what_is_not_computed_may_be_zero(name: str) -> None:
    f = DIVISIONS[name]
    for a, b in (
        (torch.ones(0, 2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)),
        (torch.tensor([1.0, -2.0]), torch.tensor([0.0, 0.0])),
        (torch.ones(2, dtype=torch.int64), torch.tensor([0.0, 2.0])),
    ):
        torch._dynamo.reset()
        torch.testing.assert_close(compiled(f)(a, b), f(a, b), equal_nan=True)


@pytest.mark.parametrize("rows", [0, 3])
def test_open_sizes_decide_whether_anything_is_divided(rows: int) -> None:
    run = compiled(torch.floor_divide)
    zero, two = torch.tensor([0, 2]), torch.tensor([2, 2])
    a = torch.ones(5, 2, dtype=torch.int64)
    torch._dynamo.mark_dynamic(a, 0)
    assert torch.equal(run(a, two), a // 2)
    if rows:
        with pytest.raises(ZeroDivisionError):
            run(torch.ones(rows, 2, dtype=torch.int64), zero)
    else:
        assert run(torch.ones(0, 2, dtype=torch.int64), zero).shape == (0, 2)


@pytest.mark.parametrize("f", [lambda a: a // 0, lambda a: 5 // a, lambda a: 5 % a, lambda a: a % torch.tensor(0)])
def test_numbers_as_one_side(f: Any) -> None:
    with pytest.raises(RuntimeError):
        f(torch.tensor([0, 3]))
    with pytest.raises(ZeroDivisionError):
        compiled(f)(torch.tensor([0, 3]))


def test_a_number_that_is_not_zero_needs_no_look() -> None:
    compiled(lambda a: (a // 3, a % -7))(torch.arange(10))
    compiled(lambda a, b: a // b + a % b)(torch.arange(10), torch.arange(1, 11))
    assert [r.checks for r in backends.torch_reports()] == [0, 2]
    assert "looks at the values of 2 operators" in backends.torch_reports()[-1].text()


def test_the_first_operator_that_eager_refuses_is_named() -> None:
    run = compiled(lambda a, b, c: (a // b, a % c))
    two, zero = torch.tensor([2, 2]), torch.tensor([2, 0])
    for b, c, name in ((two, zero, "remainder"), (zero, two, "floor_divide"), (zero, zero, "floor_divide")):
        with pytest.raises(ZeroDivisionError, match=f"at {name}"):
            run(two, b, c)


def test_a_division_in_training_and_in_a_part_of_a_graph_that_was_cut() -> None:
    def f(x: Any, i: Any, j: Any) -> Any:
        return torch.linalg.eigvalsh(x @ x.T).sum() * (i // j)

    run = torch.compile(f, backend=backends.torch_backend)
    x = torch.randn(4, 4, requires_grad=True)
    run(x, torch.tensor([4]), torch.tensor([2])).sum().backward()
    assert x.grad is not None
    with pytest.raises(ZeroDivisionError):
        run(x, torch.tensor([4]), torch.tensor([0]))


def wide(i: Any) -> Any:
    return i[:, None].expand(3, 3)


INDEXED: dict[str, Callable[[Any, Any], Any]] = {
    "embedding": lambda w, i: torch.nn.functional.embedding(i, w),
    "index_select": lambda w, i: w.index_select(0, i),
    "gather": lambda w, i: w.gather(0, wide(i)),
    "scatter": lambda w, i: w.scatter(0, wide(i), 1.0),
    "scatter_source": lambda w, i: w.scatter(0, wide(i), w[:3]),
    "scatter_add": lambda w, i: w.scatter_add(0, wide(i), w[:3]),
    "scatter_reduce": lambda w, i: w.scatter_reduce(0, wide(i), w[:3], "amax"),
    "index_add": lambda w, i: w.index_add(0, i, w[:3]),
    "index_copy": lambda w, i: w.index_copy(0, i, w[:3]),
    "index_reduce": lambda w, i: w.index_reduce(0, i, w[:3], "amax"),
    "cross_entropy": lambda w, i: torch.nn.functional.cross_entropy(w[:, :3].T, i),
    "index": lambda w, i: w[i],
    "index_fill": lambda w, i: w.index_fill(0, i, 0.0),
    "index_put": lambda w, i: w.index_put((i,), w[:3]),
    "take": lambda w, i: w.take(i),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", INDEXED)
def test_an_index_outside_raises_where_it_does_in_eager(name: str) -> None:
    f, w = INDEXED[name], torch.randn(5, 3)
    run = compiled(f)
    for bad in (1, -1, -5, -6, 5, 15):
        i = torch.tensor([0, bad, 2])
        try:
            wanted = f(w, i)
        except (IndexError, RuntimeError):
            for kind in (IndexError, RuntimeError):
                with pytest.raises(kind, match="E1804"):
                    run(w, i)
        else:
            torch.testing.assert_close(run(w, i), wanted)
