"""Each kind of plan is described once: an entry of CPU_KINDS, and marks on the fields that hold names (decision 0061)."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from tatami.core.renaming import Mark
from tatami.plan.cpu_kinds import CPU_KINDS, cpu_kind_of, described, in_order
from tatami.plan.ir import AxisName, CpuPlan, CpuTurn, CpuWindow, LetName, SchedulePlan
from tatami.plan.rename import rename_plan
from tatami.region.views.canonical_key import Renaming


def test_every_kind_has_one_entry() -> None:
    assert [kind.plan for kind in CPU_KINDS] == list(get_args(CpuPlan))
    assert len(list(described())) == len(CPU_KINDS)


def test_a_kind_without_an_entry_or_with_two_is_refused() -> None:
    turn = cpu_kind_of(CpuTurn("i", "j", 64, 16))
    assert in_order((CpuTurn,), (turn,)) == (turn,)
    for entries, count in (((), 0), ((turn, turn), 2)):
        with pytest.raises(TypeError, match=f"CpuTurn has {count} entries"):
            in_order((CpuTurn,), entries)
    with pytest.raises(TypeError, match="CpuWindow has 0 entries"):
        in_order((CpuTurn, CpuWindow), (turn,))


def test_an_entry_is_found_by_its_plan() -> None:
    plan = CpuTurn("i", "j", 64, 16)
    assert cpu_kind_of(plan).show(plan) == ["cpu_turn j -> i", "  tiles of 64, width 16"]


NO_NAMES = {
    *("warp_tile", "inst_shape", "arch"),
    *("where", "buffer"),  # fields of Cache, LocalEdge
    *("bind.value", "layout_hints.key", "layout_hints.value", "algo_choice.key", "algo_choice.value"),
}
"""Fields of GPU plans that are words, not names of the Region."""


def unmarked(hint: Any, at: str) -> Iterator[str]:
    """Places in a type that hold text which is neither marked as a name nor one of listed words."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is str:
        yield at
    elif origin is Annotated:
        if not any(isinstance(m, Mark) for m in hint.__metadata__):
            yield from unmarked(args[0], at)
    elif origin is dict:
        yield from unmarked(args[0], f"{at}.key")
        yield from unmarked(args[1], f"{at}.value")
    elif origin in (tuple, Union, types.UnionType):
        for x in args:
            yield from unmarked(x, at)
    elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield from (
            name for field, inner in get_type_hints(hint, include_extras=True).items() for name in unmarked(inner, field)
        )


@pytest.mark.parametrize("kind", get_args(SchedulePlan), ids=lambda kind: kind.__name__)
def test_every_name_of_a_plan_is_marked(kind: type) -> None:
    assert set(unmarked(kind, "")) <= NO_NAMES


def test_a_name_without_a_mark_is_found() -> None:
    class Planted(msgspec.Struct):
        axis: AxisName
        kept: dict[LetName, Literal["row"]]
        inner: tuple[tuple[str, int], ...] = ()
        by: dict[str, LetName] = {}

    assert list(unmarked(Planted, "")) == ["inner", "by.key"]


def test_axes_of_gpu_plans_keep_what_a_tile_makes_of_them() -> None:
    names = Renaming(tensors={}, lets={}, axes={"i": "a0"}, symbols={})
    renamed = rename_plan(CpuTurn("i.o", "k", 64, 16), names)
    assert (renamed.along, renamed.across) == ("a0.o", "k")
