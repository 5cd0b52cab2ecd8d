"""Each rule of partitions: one that breaks it has that one fault."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tatami.api import prepare
from tatami.core.expr import shape
from tatami.core.module import Module
from tatami.indexbook.analyse import analyse
from tatami.poly_view.extract import extract
from tatami.poly_view.ir import PolyView
from tatami.region.fusion.check import check_partition
from tatami.region.partition_ir import Group, Partition
from tatami.tiny.infer import Type
from tatami.tiny.ir import CallOp, IotaOp, Program, ResultOp, ResultType
from tests.poly_view.test_verify import product
from tests.region.fusion.test_decided_sizes import length_regulator
from tests.tiny.build import F16, F32, I8, I64, Build

replace = msgspec.structs.replace


def view_of(tiny: Module[Program]) -> PolyView:
    return extract(tiny, analyse(tiny)).main


def faults(tiny: Module[Program], *groups: str, view: PolyView | None = None) -> list[str]:
    given = Partition(tuple(Group(tuple(g.split())) for g in groups))
    return [f"{d.at}: {d.why}" for d in check_partition(given, tiny.main, view or view_of(tiny))]


TINY = product()
VIEW = view_of(TINY)
MUL, SUM, RELU = (s.value for s in VIEW.statements)
ALL = f"{MUL} {SUM} {RELU}"


def chain(*stored: str) -> Module[Program]:
    """e = exp(x), f = -e, g = |e|, y = f + g. `stored`: outputs in addition to y."""
    b = Build()
    e = b.fn("exp", b.input("x", F32, "M", "N"))
    f, g = b.fn("neg", e), b.fn("abs", e)
    made = {"e": e, "f": f, "g": g}
    return b.module(b.fn("add", f, g), *(made[s] for s in stored))


def widened(*stored: str) -> Module[Program]:
    """h = exp(x) in fp16, e = h in fp32, y = -e."""
    b = Build()
    e = b.cast(b.fn("exp", b.input("x", F16, "N")), F32)
    return b.module(b.fn("neg", e), *(e for _ in stored))


def dequantised(*stored: str) -> Module[Program]:
    """c = q in fp32 of codes in 8 bits, m = c / 2, y = -m, z = |m|."""
    b = Build()
    m = b.fn("mul", b.cast(b.input("q", I8, "N"), F32), b.expand(b.const(0.5, F32), ("N",), ()))
    return b.module(b.fn("neg", m), b.fn("abs", m), *(m for _ in stored))


def exchanged() -> tuple[Module[Program], list[str]]:
    """Two sums over processes, begun in this order, neither of which reads the other; and the ids of all values."""
    b = Build()
    x = b.input("x", F32, 4)
    steps = [
        b.add(CallOp("host", ("all_reduce",), (ResultType(F32, shape(4)),), attrs={"op": "sum", "number": k}), x)
        for k in (0, 1)
    ]
    return b.module(*(b.add(ResultOp(0), s) for s in steps)), list(b.nodes)


def called() -> Module[Program]:
    """The negative of a call's result, and the call's operand."""
    b = Build()
    e = b.fn("exp", b.input("x", F32, 4))
    call = b.add(CallOp("host", ("sort",), (ResultType(F32, shape(4)),)), e)
    return b.module(b.fn("neg", b.add(ResultOp(0), call)))


@pytest.mark.parametrize(
    ("tiny", "groups"),
    [
        (TINY, (ALL,)),
        (TINY, (f"{MUL} {SUM}", RELU)),
        (chain(), ("n1 n2 n3 n4",)),
        (chain(), ("n1", "n2", "n3", "n4")),
        (chain(), ("n1 n2", "n1 n3", "n4")),
        (called(), ("n1", "n2 n3", "n4")),
        (widened(), ("n1 n2 n3", "n2")),
        (widened(), ("n1 n2", "n3", "n2")),
        (called(), ("n1", "n2", "n3", "n4")),
        (dequantised(), ("n1 n4 n5 n6", "n4")),
        (dequantised(), ("n1 n4", "n5", "n4", "n6")),
    ],
)
def test_groups_that_fit(tiny: Module[Program], groups: tuple[str, ...]) -> None:
    assert faults(tiny, *groups) == []


WRONG: list[tuple[Module[Program], tuple[str, ...], list[str]]] = [
    (TINY, (ALL, "q"), ["q: group 1 names q, which is not a computed value"]),
    (TINY, (f"{ALL} n0",), ["n0: group 0 names n0, which is not a computed value"]),
    (TINY, (f"{MUL} {SUM}",), [f"{RELU}: no group computes it"]),
    (TINY, (ALL, RELU), [f"{RELU}: it stands in groups 0 and 1, and is in memory too"]),
    (TINY, (MUL, f"{SUM} {RELU}"), [f"{SUM}: its product stands in another group"]),
    (TINY, (RELU, f"{MUL} {SUM}"), [f"{SUM}: group 0 reads it before group 1 computes it"]),
    (called(), ("n1", "n2 n3 n4"), ["n2: a call shares its group"]),
    (called(), ("n1 n2", "n3", "n4"), ["n2: a call shares its group"]),
    (called(), ("n1", "n2 n3 q", "n4"), ["q: group 1 names q, which is not a computed value"]),
    (widened("e"), ("n1 n2 n3", "n2"), ["n2: it stands in groups 0 and 1, and is in memory too"]),
    (chain(), ("n1 n2 n3", "n1 n4"), ["n1: it stands in groups 0 and 1, and is in memory too"]),
    (chain("e"), ("n1 n2", "n1 n3", "n4"), ["n1: it stands in groups 0 and 1, and is in memory too"]),
    (chain(), ("n4", "n1 n2 n3"), ["n2: group 0 reads it before group 1 computes it", "n3: group 0 reads it before group 1 computes it"]),
    (dequantised("m"), ("n1 n4 n5 n6", "n4"), ["n4: it stands in groups 0 and 1, and is in memory too"]),
    (chain(), ("n2", "n1", "n3", "n4"), ["n1: group 0 reads it before group 1 computes it"]),
]  # fmt: skip


@pytest.mark.parametrize(("tiny", "groups", "wanted"), WRONG, ids=[" | ".join(g) for _, g, _ in WRONG])
def test_a_broken_rule_is_the_one_fault(tiny: Module[Program], groups: tuple[str, ...], wanted: list[str]) -> None:
    assert faults(tiny, *groups) == wanted


def test_values_on_both_sides_of_a_forbidden_edge_are_apart() -> None:
    last = next(e for e in VIEW.edges if (e.producer, e.consumer) == (SUM, RELU))

    def forbidden(**fields: Any) -> PolyView:
        return replace(VIEW, edges=tuple(replace(e, **fields) if e is last else e for e in VIEW.edges))

    view = forbidden(fusible=False, rule="fan_out", change="")
    assert faults(TINY, ALL, view=view) == [f"{SUM}: it may not share a Region with {RELU} (fan_out)"]
    assert faults(TINY, f"{MUL} {SUM}", RELU, view=view) == []
    absent = replace(last, producer="q", fusible=False)
    assert faults(TINY, ALL, view=replace(VIEW, edges=(absent,))) == []
    for change, said in (("", "keep the two in different groups"), ("use a cast", "use a cast")):
        given = Partition((Group((MUL, SUM, RELU)),))
        (found,) = check_partition(given, TINY.main, forbidden(fusible=False, change=change))
        assert found.suggestion == said


def test_a_product_with_a_vector_may_be_apart() -> None:
    view = replace(VIEW, patterns=(replace(VIEW.patterns[0], pattern="dot"),))
    assert faults(TINY, MUL, f"{SUM} {RELU}", view=view) == []


def test_coordinates_and_casts_are_computed_by_every_reader() -> None:
    b = Build()
    places = b.cast(b.add(IotaOp(0), own=Type(I64, shape("N"))), F32)
    x = b.input("x", F32, "N")
    f = b.fn("add", x, places)
    tiny = b.module(b.fn("mul", f, places), f)
    assert [s.value for s in view_of(tiny).statements] == ["n0", "n1", "n3", "n4"]
    assert faults(tiny, "n0 n1 n3", "n0 n1 n4") == []
    assert faults(tiny, "n0 n1 n3 n4", "n1") == []


def test_exchanges_begin_in_one_order_in_all_processes() -> None:
    tiny, (_, first, second, *results) = exchanged()
    one, other = (f"{step} {result}" for step, result in zip((first, second), results))
    assert faults(tiny, one, other) == []
    assert faults(tiny, other, one) == [f"{second}: group 0 has an exchange that begins after that of group 1"]


def test_a_size_is_decided_before_it_is_used() -> None:
    made = prepare(length_regulator(), target="cpu:avx2")
    tiny, given = made.stages["tiny"], made.stages["partition"]["main"]
    view = extract(tiny, analyse(tiny)).main
    assert check_partition(given, tiny.main, view) == []
    found = check_partition(Partition(given.groups[::-1]), tiny.main, view)
    whys = {d.why for d in found if "decides after it" in d.why}
    assert "group 0 has a size that group " in min(whys) and len(whys) > 1
