"""Proofs by guards, against every point of small boxes."""

from __future__ import annotations

from itertools import product

import pytest

from tatami.core.algebra.visit import evaluate
from tatami.core.expr import Expr, expr
from tatami.core.expr import parse_expr as parse
from tatami.indexbook.ir import Guard
from tatami.region.checks.guards import is_proved_inside

AXES = {"i0": "S", "i1": "2", "i2": "3", "i3": "B"}
B = 2


def holds(index: Expr, size: Expr, guard: Guard, n: int, s: int) -> bool:
    """True if the index is inside at every point of the box for these sizes."""
    ranges = [range(evaluate(parse(extent), {"S": s, "B": B})) for extent in AXES.values()]
    for point in product(*ranges):
        at = {**dict(zip(AXES, point, strict=True)), "N": n, "S": s, "B": B}
        stands = 0 <= evaluate(guard.index, at) < evaluate(guard.size, at)
        if stands and not 0 <= evaluate(index, at) < evaluate(size, at):
            return False
    return True


@pytest.mark.parametrize(
    ("index", "size", "guard", "bound", "proved"),
    [
        ("i0//2", "N", "2*i0 + i1", "4*N", True),
        ("i0", "2*N", "2*i0 + i1", "4*N", True),
        ("i0//3", "N", "6*i0 + 3*i1 + i2", "18*N", True),
        ("i0", "N", "2*B*i0 + B*i1 + i3", "2*B*N", True),
        ("i0", "N", "2*B*i0 + B*i1 + i3", "2*B*N + 1", False),
        ("i0", "N", "B*i0 + B*i1 + i3", "B*N", False),
        ("i0//2", "N", "2*i0 + i1", "4*N + 1", False),
        ("i0//2", "N", "2*i0 + i2", "4*N", False),
        ("i0//2", "N", "2*i0 - i1", "4*N", False),
        ("i0//2", "N - 1", "2*i0 + i1", "4*N", False),
    ],
)
def test_a_guard_of_a_multiple_and_a_remainder(index: str, size: str, guard: str, bound: str, proved: bool) -> None:
    given = Guard(parse(guard), parse(bound))
    extents = {name: parse(extent) for name, extent in AXES.items()}
    assert is_proved_inside(parse(index), parse(size), extents, (given,)) == proved
    if proved:
        assert all(holds(parse(index), parse(size), given, n, s) for n in range(4) for s in range(9))


def test_what_is_not_proved_could_fail() -> None:
    """The false cases above are not all false for lack of a proof."""
    assert not holds(parse("i0//2"), parse("N"), Guard(parse("2*i0 + i1"), parse("4*N + 1")), 1, 9)
    assert not holds(parse("i0//2"), parse("N") - expr(1), Guard(parse("2*i0 + i1"), parse("4*N")), 1, 9)


ROW = {"i0": "3", "i1": "3", "i2": "2"}


@pytest.mark.parametrize(
    ("index", "size", "guards", "proved"),
    [
        ("W*(i0 + i1) + 2*i2 - 1", "H*W", {"i0 + i1": "H", "2*i2 - 1": "W"}, True),
        ("W*(2*i0 + 2*i1 - 2) + 2*i2 - 2", "H*W", {"2*i0 + 2*i1 - 2": "H", "2*i2 - 2": "W"}, True),
        ("3*i1 + 22*i0 - 22", "33", {"2*i0 - 2": "3"}, True),
        ("W*H*i1 + W*(2*i0 - 1) + i2", "3*H*W", {"2*i0 - 1": "H", "i2": "W"}, True),
        ("2", "W", {"0": "max(0, (W + 1)//2 - 1)"}, True),
        ("W*(i0 + i1) + 1", "H*W", {"i0 + i1": "H", "0": "W//2"}, True),
        ("W*(i0 + i1) + 2", "H*W", {"i0 + i1": "H", "0": "W//2"}, False),
        ("3", "W", {"0": "max(0, (W + 1)//2 - 1)"}, False),
        ("W*(i0 + i1) + 2*i2 - 1", "H*W", {"i0 + i1": "H"}, False),
        ("W*(i0 + i1) + 2*i2 - 1", "H*W - 1", {"i0 + i1": "H", "2*i2 - 1": "W"}, False),
        ("W*(i0 + i1) + 2*i2", "H*W", {"i0 + i1": "H", "2*i2 - 1": "W"}, False),
        ("W*(i0 + i1 + 1) + 2*i2 - 1", "H*W", {"i0 + i1": "H", "2*i2 - 1": "W"}, False),
    ],
)
def test_guards_of_the_rows_and_columns_of_what_was_one_axis(
    index: str, size: str, guards: dict[str, str], proved: bool
) -> None:
    given = [Guard(parse(i), parse(s)) for i, s in guards.items()]
    extents = {name: parse(extent) for name, extent in ROW.items()}
    assert is_proved_inside(parse(index), parse(size), extents, given) == proved
    leaves = False
    for h, w, *point in product(range(1, 5), range(1, 5), *(range(int(n)) for n in ROW.values())):
        at = {"H": h, "W": w, **dict(zip(ROW, point, strict=True))}
        if all(0 <= evaluate(g.index, at) < evaluate(g.size, at) for g in given):
            leaves |= not 0 <= evaluate(parse(index), at) < evaluate(parse(size), at)
    assert leaves != proved
