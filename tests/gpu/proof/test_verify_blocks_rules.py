"""Each rule of reductions over blocks of a tile: a kernel that breaks it has that one fault."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tatami.core.expr import Expr, floordiv, var
from tatami.gpu import ir, statement_ir
from tatami.gpu.proof.program import all_statements
from tatami.gpu.proof.verify_blocks import check_blocks
from tests.cu.products.test_block_sums import normalisers, product_of, statistics
from tests.gpu.test_verify import SM80, SM90, change, edited

replace: Any = msgspec.structs.replace
ROWS = product_of(statistics((256, 256, 64), (-1,), stored=True))
COLUMNS = product_of(statistics((256, 256, 64), (-2,), stored=True))
BOTH = product_of(statistics((256, 256, 64), (-1, -2), stored=False))
TAILS = product_of(statistics((301, 200, 72), (-1,), stored=True))
EXPONENTIALS = product_of(normalisers((256, 256, 64), stored=False))


def faults(k: ir.Kernel) -> list[str]:
    return [d.why for d in check_blocks(k)]


def folds(k: ir.Kernel) -> tuple[statement_ir.BlockFold, ...]:
    return next(s.folds for s in all_statements(k.body) if isinstance(s, statement_ir.StBlocks))


def with_folds(k: ir.Kernel, *new: statement_ir.BlockFold, **fields: Any) -> ir.Kernel:
    return edited(k, change(statement_ir.StBlocks, folds=new, **fields))


def test_kernels_of_the_compiler_pass() -> None:
    assert [faults(k) for k in (ROWS, COLUMNS, BOTH, TAILS, EXPONENTIALS, SM80, SM90)] == [[]] * 7
    assert faults(replace(SM80, split=2, template="pair")) == []  # nothing lies in blocks


@pytest.mark.parametrize(
    "fields", [{"barrier_model": "cp_async_group"}, {"template": "pair"}, {"split": 2}, {"groups": ir.Groups("p0", *[var("m")] * 3)}]
)  # fmt: skip
def test_only_whole_sums_of_roles_lie_in_blocks(fields: dict[str, Any]) -> None:
    assert faults(replace(ROWS, **fields)) == ["only whole sums of the warp roles' accumulators lie in blocks"]


def test_blocks_are_whole_in_a_tile() -> None:
    for k, narrow, other in ((ROWS, (64, 96, 32), (96, 64, 32)), (COLUMNS, (96, 64, 32), (64, 96, 32))):
        assert faults(replace(k, tile=narrow)) == [f"a block of 64 is cut by tiles of {narrow[0]}x{narrow[1]}"]
        assert faults(replace(k, tile=other)) == []


@pytest.mark.parametrize(("k", "kept", "count"), [(ROWS, "m", "n"), (COLUMNS, "n", "m")], ids=["rows", "columns"])
def test_addresses_step_with_what_is_kept(k: ir.Kernel, kept: str, count: str) -> None:
    (f,) = folds(k)

    def without(name: str) -> Expr:
        return sum((Expr((t,)) for t in f.index.terms if var(name) != Expr(((t[0][:1], 1),))), start=f.index - f.index)

    wrong = [f.index + var(count), f.index - f.index + var("t"), f.index - f.index + var(kept)]
    wrong += [floordiv(var(kept), f.index - f.index + 2) + var("t"), var(kept) + floordiv(var("t"), f.index - f.index + 2)]
    assert without("q") == f.index
    for index in wrong:
        said = f"its address has to step with {kept} and t, and not with {count}: {index}"
        assert faults(with_folds(k, replace(f, index=index))) == [said]


def test_what_is_summed_with_exponentials_has_its_maximum_before() -> None:
    top, total = folds(EXPONENTIALS)
    assert (top.fn, total.top) == ("max", top.ptr)
    said = [f"{top.ptr} is not a maximum of the rows whose exponentials {total.ptr} sums"]
    for other in (
        (total, top),
        (replace(top, fn="min"), total),
        (replace(top, regs="q"), total),
        (top, replace(total, fn="max")),
    ):
        assert faults(with_folds(EXPONENTIALS, *other)) == said
    assert faults(with_folds(EXPONENTIALS, top, replace(total, top="q"))) == [said[0].replace(top.ptr, "q", 1)]
    assert faults(with_folds(EXPONENTIALS, top, replace(total, top=""))) == []
    n, m = folds(BOTH)
    mixed = (replace(n, fn="max"), replace(m, top=n.ptr, regs=n.regs))
    assert faults(with_folds(BOTH, *mixed)) == [f"{n.ptr} is not a maximum of the rows whose exponentials {m.ptr} sums"]


def test_a_value_is_stored_once() -> None:
    (f,) = folds(ROWS)
    stored = next(s.ptr for s in all_statements(ROWS.body) if isinstance(s, statement_ir.StGlobalVec | statement_ir.StMatrix))
    assert faults(with_folds(ROWS, replace(f, ptr=stored))) == [f"{stored} is stored to more than once"]
    assert faults(with_folds(ROWS, f, f)) == [f"{f.ptr} is stored to more than once"] * 2


def test_what_is_outside_a_result_does_not_count() -> None:
    (f,) = folds(TAILS)
    said = ["rows or columns outside the result count, or are stored: its predicate lacks them"]
    for pred in ((), ("m",), ("n",)):
        assert faults(with_folds(TAILS, f, pred=pred)) == said
    assert faults(with_folds(TAILS, f, pred=("n", "m"))) == []
    (whole,) = folds(ROWS)
    assert faults(replace(with_folds(ROWS, whole, pred=()), tail=("m", "n"))) == []
    assert faults(replace(with_folds(TAILS, f, pred=()), tail=())) == []
