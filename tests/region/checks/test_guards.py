"""Proofs by guards, against every point of small boxes."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tatami.core.algebra.assumed import Assumed
from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.expr import Expr, expr
from tatami.core.expr import parse_expr as parse
from tatami.core.signature import Equation
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


FREE = "i1*((i0 - N)//2)"
"""An index whose ends are not known."""
PROVED: dict[str, tuple[str, str, dict[str, str], tuple[tuple[str, str], ...]]] = {
    "the box alone": ("i0 + 1", "N + 1", {"i0": "N"}, ()),
    "a remainder": ("((-i0 - 1)//a)*a + a + i0", "a", {"i0": "2*a"}, ()),
    "digits of an axis": (
        "-2*b*(i1//(b - 1)) + 2*i1 + 2*(i1//(b - 1)) + 1", "2*b", {"i0": "2*b", "i1": "2*a*b - 2*a"}, ()),
    "the guard itself": ("i0 - 2", "N", {"i0": "9"}, (("i0 - 2", "N"),)),
    "one of two guards": ("i0", "3", {"i0": "9"}, (("i0 - 1", "8"), ("i0", "3"))),
    "the low side by the box, the high one by a guard": ("i0 + 2", "6", {"i0": "6"}, (("i0", "4"),)),
    "the high side by the box, the low one by a guard": ("i0 - 2", "5", {"i0": "7"}, (("i0 - 3", "9"),)),
    "a guard of a larger index": ("i0 - 1", "7", {"i0": "9"}, (("i0 - 2", "6"),)),
    "each side by a guard of its own": ("i0", "7", {"i0": "N"}, (("i0 - 1", "N"), ("i0 + 1", "8"))),
    "the same in the other order": ("i0", "7", {"i0": "N"}, (("i0 + 1", "8"), ("i0 - 1", "N"))),
    "each side by a guard, and none is the box": ("i0 - 3", "4", {"i0": "N"}, (("i0 - 3", "N"), ("i0", "7"))),
    "the same turned": ("i0 - 3", "4", {"i0": "N"}, (("i0", "7"), ("i0 - 3", "N"))),
    "against a guard": ("N - 1 - i0", "N", {"i0": "N + 5"}, (("i0", "N"),)),
    "against a guard, low": ("-i0 + 1", "3", {"i0": "4"}, (("i0", "2"),)),
    "against a guard, high": ("-i0 + 9", "4", {"i0": "7"}, (("i0 - 2", "5"), ("i0 - 7", "2"))),
    "against two guards": ("7 - i0", "6", {"i0": "N"}, (("i0", "8"), ("i0 - 2", "N"))),
    "against two guards, turned": ("7 - i0", "6", {"i0": "N"}, (("i0 - 2", "N"), ("i0", "8"))),
    "with one guard and against another": ("i0", "6", {"i0": "N"}, (("9 - i0", "10"), ("5 - i0", "N"))),
    "a guard of an index without bounds": ("i0", "3", {"i0": "9", "i1": "3"}, ((FREE, "N"), ("i0", "3"))),
    "an index without bounds": (f"{FREE} + 1", "N + 1", {"i0": "9", "i1": "3"}, ((FREE, "N"),)),
    "an index without bounds, turned": (f"N - {FREE}", "N + 1", {"i0": "9", "i1": "3"}, ((FREE, "N"),)),
    "a quotient": ("i0//2", "N", {"i0": "S", "i1": "2"}, (("2*i0 + i1", "4*N"),)),
    "a quotient by a size": ("i0", "N", {"i0": "S", "i1": "B"}, (("B*i0 + i1", "B*N"),)),
    "a quotient, by the second of two guards": ("i0//2", "N", {"i0": "S", "i1": "2"}, (("i1", "2"), ("2*i0 + i1", "4*N"))),
    "a quotient, along the second of two axes": (
        "i0 + i1", "N", {"i0": "S", "i1": "B"}, (("2*i0 + 2*i1 + (i0//2)*2 - (i0//2)*2", "2*N"),)),
    "a quotient and what has no bounds": (
        "i2", "N", {"i0": "9", "i1": "3", "i2": "S", "i3": "2"}, ((f"2*i2 + {FREE}", "2*N"), ("2*i2 + i3", "2*N"))),
    "rows of an image": ("W*(i0 + i1) + i2", "H*W", {"i0": "3", "i1": "3", "i2": "2"}, (("i0 + i1", "H"), ("i2", "W"))),
    "a multiple of a guard": ("2*i0 - 4", "8*b", {"i0": "4*b + 3"}, (("i0 - 2", "4*b"),)),
    "a multiple against a guard": ("3*a - 3 - 3*i0", "3*a", {"i0": "a + 3"}, (("i0", "a"),)),
    "a guard of blocks": ("-b*i2 + 3*b + i3", "2*b", {"i2": "4", "i3": "b"}, (("i2 - 2", "2"),)),
    "of two guards with one axis, the first": ("2*i0", "2*a", {"i0": "a + 2", "i1": "3"}, (("i0", "a"), ("i0 + i1", "9*a"))),
    "a guard that brings another axis is left": (
        "W*i0 + i2", "H*W", {"i0": "H + 2", "i1": "3", "i2": "4"}, (("i0 + i1", "9*H"), ("i0", "H"), ("i2", "W"))),
    "a size that a guard gives": ("2", "W", {}, (("0", "W - 2"),)),
    "a size that a guard of a half gives": ("2", "W", {}, (("0", "max(0, (W + 1)//2 - 1)"),)),
    "a size that a guard above 0 gives": ("5", "W", {}, (("3", "W//2"),)),
    "a size from two halves": ("1", "W", {}, (("0", "W//2 + H - H"), ("0", "H//2"))),
    "a size and axes": ("i0 + 1", "W", {"i0": "2"}, (("0", "W - 2"),)),
    "a low side that a guard gives": ("W - 3", "W", {}, (("0", "W - 2"),)),
    "a quotient under a guard of more": ("(2*b*i2 + i3)//c", "2*b", {"i2": "2*c", "i3": "2*b"}, (("i2", "c"),)),
    "two digits": ("i0//7", "7", {"i0": "98"}, (("i0", "49"),)),
    "an index that only the floors of guards bound": (
        "(i0 + 1)//4", "7", {"i0": "28"}, (("i0", "27"),)),
}  # fmt: skip


def stays(index: Expr, size: Expr, extents: dict[str, Expr], guards: list[Guard]) -> bool:
    """True if the index is inside at every point of the box where the guards hold, for sizes from 1 to 4."""
    used = sorted(
        {n for e in (index, size, *extents.values(), *(x for g in guards for x in (g.index, g.size))) for n in free_vars(e)}
    )
    symbols = [n for n in used if n not in extents]
    for values in product(range(1, 5), repeat=len(symbols)):
        at = dict(zip(symbols, values))
        for point in product(*(range(evaluate(extent, at)) for extent in extents.values())):
            there = at | dict(zip(extents, point))
            reached = all(0 <= evaluate(g.index, there) < evaluate(g.size, there) for g in guards)
            if reached and not 0 <= evaluate(index, there) < evaluate(size, there):
                return False
    return True


@pytest.mark.parametrize("name", PROVED)
def test_each_way_to_prove_and_what_is_near_it(name: str) -> None:
    """The claim holds at every point; a change by one is not claimed where it does not hold."""
    index, size, box, given = PROVED[name]
    i, n = parse(index), parse(size)
    extents = {axis: parse(extent) for axis, extent in box.items()}
    guards = [Guard(parse(at), parse(count)) for at, count in given]
    assert is_proved_inside(i, n, extents, guards)
    assert stays(i, n, extents, guards)
    near = [(i + 1, n, guards), (i - 1, n, guards), (i, n - 1, guards), (-i, n, guards), (2 * i, n, guards)]
    for k, g in enumerate(guards):
        others = guards[:k], guards[k + 1 :]
        near.append((i, n, [*others[0], *others[1]]))
        for more in (Guard(g.index, g.size + 1), Guard(g.index + 1, g.size), Guard(g.index - 1, g.size)):
            near.append((i, n, [*others[0], more, *others[1]]))
    refuted = 0
    for index_, size_, guards_ in near:
        if not stays(index_, size_, extents, guards_):
            refuted += 1
            assert not is_proved_inside(index_, size_, extents, guards_), (str(index_), str(size_), guards_)
    assert refuted


UNPROVED: dict[str, tuple[str, str, dict[str, str], tuple[tuple[str, str], ...]]] = {
    "a factor that is an axis": ("i0", "N", {"i0": "N + 2", "i1": "3"}, (("i0*i1", "N"),)),
    "a remainder that is too large": ("i0", "N", {"i0": "S", "i1": "3"}, (("2*i0 + i1 - 1", "2*N"),)),
    "a remainder below 0": ("i0", "N", {"i0": "S", "i1": "2"}, (("2*i0 - i1", "2*N"),)),
    "a multiple of less than one": ("2*i0", "N", {"i0": "S"}, (("i0", "N"),)),
    "a multiple that runs back": ("i0", "N", {"i0": "S"}, (("9 - 2*i0", "2*N"),)),
    "twice a quotient": ("2*(i0//2)", "N", {"i0": "S", "i1": "2"}, (("2*i0 + i1", "4*N"),)),
    "a quotient and more": ("i0//2 + i2", "N", {"i0": "S", "i1": "2", "i2": "2"}, (("2*i0 + i1", "4*N"),)),
    "a product of quotients": ("(i0//2)*(i2//2)", "N", {"i0": "S", "i1": "2", "i2": "9"}, (("2*i0 + i1", "4*N"),)),
    "a size of half as much": ("3", "W", {}, (("0", "W//2 - H + 1"),)),
    "twice a half": ("3", "W", {}, (("0", "2*(W//2) - 1"),)),
    "a guard of an axis": ("1", "W", {"i0": "3"}, (("i0", "W"),)),
    "a quotient by what may be below 0": ("8", "W + N", {}, (("0", "W//(N - 9) + 2"),)),
    "a half of a difference": ("W", "2*W - H", {}, (("0", "(W - H)//2 + H"),)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNPROVED)
def test_what_looks_like_a_proof_and_is_none(name: str) -> None:
    index, size, box, given = UNPROVED[name]
    extents = {axis: parse(extent) for axis, extent in box.items()}
    guards = [Guard(parse(at), parse(count)) for at, count in given]
    assert not stays(parse(index), parse(size), extents, guards)
    assert not is_proved_inside(parse(index), parse(size), extents, guards)


@pytest.mark.parametrize(
    ("equation", "index", "size", "extents", "guards", "proved"),
    [
        (("M", "N"), "i0", "N", {"i0": "M"}, (), True),
        (("M", "N"), "i0", "N - 1", {"i0": "M"}, (), False),
        (("M", "N"), "i0 + 1", "N", {"i0": "N + 3"}, (("i0 + 1", "M"),), True),
        (("M", "N"), "i0 + M - N", "9", {"i0": "12"}, (("i0 + N - M", "9"),), True),
        (("M", "N"), "i0", "N", {"i0": "N + 3"}, (), False),
        (("min(M, N)", "N"), "i0", "M", {"i0": "N"}, (), True),
        (("max(M, N)", "M"), "i0", "M", {"i0": "N"}, (), True),
        (("min(M, N)", "N"), "i0", "M - 1", {"i0": "N"}, (), False),
    ],
)
def test_equations_between_sizes(
    equation: tuple[str, str], index: str, size: str, extents: dict[str, str], guards: Any, proved: bool
) -> None:
    box = {axis: parse(extent) for axis, extent in extents.items()}
    given = [Guard(parse(at), parse(count)) for at, count in guards]
    assumed = Assumed([Equation(parse(equation[0]), parse(equation[1]), "x")])
    assert is_proved_inside(parse(index), parse(size), box, given, assumed) == proved
    assert not is_proved_inside(parse(index), parse(size), box, given)
