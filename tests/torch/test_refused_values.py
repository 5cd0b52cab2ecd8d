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
        return torch.linalg.matrix_exp(0.01 * x @ x.T).sum() * (i // j)

    run = torch.compile(f, backend=backends.torch_backend)
    x = torch.randn(4, 4, requires_grad=True)
    run(x, torch.tensor([4]), torch.tensor([2])).sum().backward()
    assert x.grad is not None
    with pytest.raises(ZeroDivisionError):
        run(x, torch.tensor([4]), torch.tensor([0]))


def wide(i: Any) -> Any:
    return i[:, None].expand(3, 3)


def set_item(w: Any, i: Any) -> Any:
    out = w.clone()
    out[i, 0] = w[:3, 1]
    return out


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
    "embedding_of_int32": lambda w, i: torch.nn.functional.embedding(i.int(), w),
    "rows_that_nobody_reads": lambda w, i: w[i][:1],
    "embedding_that_nobody_reads": lambda w, i: torch.nn.functional.embedding(i, w)[:1],
    "rows_that_are_not_chosen": lambda w, i: torch.where(i[:, None] >= 100, w[i], 0.0),
    "take_along_dim": lambda w, i: w.take_along_dim(wide(i), 0),
    "index_by_two": lambda w, i: w[i, i.clamp(-3, 2)],
    "index_of_columns": lambda w, i: w.t()[:, i],
    "index_add_of_int32": lambda w, i: w.index_add(0, i.int(), w[:3], alpha=2),
    "put": lambda w, i: w.put(i, w.flatten()[:3], accumulate=True),
    "set_item": set_item,
    "scatter_without_self": lambda w, i: w.scatter_reduce(0, wide(i), w[:3], "mean", include_self=False),
    "scatter_multiply": lambda w, i: w.scatter(0, wide(i), 2.0, reduce="multiply"),
    "scatter_choice": lambda w, i: w[:, :3].T.scatter(1, i[:, None], 7.0),
    "ignored_target": lambda w, i: torch.nn.functional.cross_entropy(w.T, i, ignore_index=-1),
    "ignored_target_5": lambda w, i: torch.nn.functional.nll_loss(w.T, i, ignore_index=5, reduction="none"),
    "one_hot": lambda w, i: torch.nn.functional.one_hot(i, 5).to(w.dtype) @ w,
    "max_unpool": lambda w, i: torch.nn.functional.max_unpool1d(w.T[:, :3], i.expand(3, 3), 2),
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


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", ["index_add", "index_copy", "index_reduce"])
@pytest.mark.parametrize("shape", [(2,), (2, 2), (2, 3, 1)])
def test_a_source_of_other_slices_raises_as_in_eager(name: str, shape: tuple[int, ...]) -> None:
    more = ("amax",) if name == "index_reduce" else ()
    f = lambda w, i, source: getattr(w, name)(0, i, source, *more)  # noqa: E731
    w, i, source = torch.randn(5, 3), torch.tensor([0, 4]), torch.randn(shape)
    with pytest.raises((RuntimeError, IndexError)):
        f(w, i, source)
    torch._dynamo.reset()
    with pytest.raises((RuntimeError, IndexError)):
        torch.compile(f, backend=backends.torch_backend)(w, i, source)


def test_an_index_is_looked_at_once_for_all_that_read_by_it() -> None:
    w, i = torch.randn(5, 3), torch.tensor([0, 4, 2])
    compiled(lambda w, i: (w[i], (2 * w)[i], w.index_select(0, i), w.t()[:, i]))(w, i)
    assert [r.checks for r in backends.torch_reports()] == [2]


def test_reads_that_were_looked_at_have_no_branch() -> None:
    run = torch.compile(lambda w, i: torch.nn.functional.embedding(i, w) * 2, backend=backends.torch_backend)
    run(torch.randn(50, 64), torch.arange(40))
    ((function,),) = [list(r.alive) for r in backends.torch_reports()]
    assert " if " not in function.stages["loop"].text


NEGATIVE: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda x: x.new_zeros(x.shape[0] - 5),
    "narrow": lambda x: x.narrow(0, 0, x.shape[0] - 5),
    "expand": lambda x: x[:1].expand(x.shape[0] - 6),
    "pad": lambda x: torch.nn.functional.pad(x, (0, -4)),
    "range": lambda x: torch.arange(0, x.shape[0] - 5),
    "split": lambda x: x.split(x.shape[0] - 5),
    "unfold": lambda x: x.unfold(0, x.shape[0] - 5, 1),
    "pool": lambda x: torch.nn.functional.avg_pool1d(x[None], 5),
}


@pytest.mark.parametrize("name", NEGATIVE)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_size_below_zero_raises(name: str, dynamic: bool) -> None:
    f = NEGATIVE[name]
    run = torch.compile(f, backend=backends.torch_backend, dynamic=dynamic)
    longer = torch.randn(8)
    wanted = f(longer)
    torch.testing.assert_close(run(longer), wanted)
    with pytest.raises((RuntimeError, ValueError)):
        f(torch.randn(3))
    with pytest.raises((RuntimeError, ValueError)):
        run(torch.randn(3))
