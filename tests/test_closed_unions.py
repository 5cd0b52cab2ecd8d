"""Every dispatch over a closed union of nodes ends in `assert_never` (decision 0061)."""

from __future__ import annotations

import pytest

from tests.closed_unions import PACKAGE, faults, unions

CLOSED = unions()


def test_the_unions_of_nodes_are_known() -> None:
    assert {"region.ir.RegionExpr", "loop.ir.Stmt", "tiny.ir.Op", "plan.ir.CpuPlan", "execution.ir.Operation"} <= CLOSED.keys()


def test_every_dispatch_over_a_closed_union_ends_in_assert_never() -> None:
    found = [
        f"{p.relative_to(PACKAGE)}:{line} {union}"
        for p in sorted(PACKAGE.rglob("*.py"))
        for line, union in faults(p.read_text(), CLOSED)
    ]
    assert not found, "end them in `case _: assert_never(…)`: " + ", ".join(found)


@pytest.mark.parametrize(
    "last", ["    case _:\n        pass", "    case _:\n        raise TypeError", "    case C():\n        pass"]
)
def test_a_dispatch_that_passes_over_new_members_is_found(last: str) -> None:
    closed = {"made.Node": frozenset("ABC")}
    text = f"match node:\n    case A() | B():\n        pass\n{last}\n"
    assert list(faults(text, closed)) == [(1, "made.Node")]
    assert not list(faults(text + "    case other:\n        assert_never(other)\n", closed))


def test_a_question_on_a_few_members_has_a_default() -> None:
    assert not list(
        faults("match node:\n    case A():\n        pass\n    case _:\n        pass\n", {"made.Node": frozenset("ABC")})
    )
