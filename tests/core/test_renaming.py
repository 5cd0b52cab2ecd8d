"""Marked names are changed wherever a record holds them, and nothing else is."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest

from tatami.core.renaming import Mark, renamed

AXIS, LET = Mark("axis"), Mark("let")
NAMES = {AXIS: "axis {}".format, LET: "let {}".format}


class Inner(msgspec.Struct, frozen=True):
    axis: Annotated[str, AXIS]
    size: int = 4


class Outer(msgspec.Struct, frozen=True):
    let: Annotated[str, LET]
    plain: str
    axes: tuple[Annotated[str, AXIS], ...] = ()
    groups: tuple[tuple[Annotated[str, LET], ...], ...] = ()
    pair: tuple[int, Annotated[str, AXIS]] = (0, "x")
    keyed: dict[Annotated[str, LET], str] = {}
    both: dict[Annotated[str, LET], Annotated[str, AXIS]] = {}
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()


def test_names_are_changed_in_every_place() -> None:
    old = Outer("a", "a", ("i", "j"), (("a",), ("b", "c")), (1, "i"), {"a": "row"}, {"a": "i"}, Inner("i"), (Inner("j", 8),))
    assert renamed(old, NAMES) == Outer(
        "let a",
        "a",
        ("axis i", "axis j"),
        (("let a",), ("let b", "let c")),
        (1, "axis i"),
        {"let a": "row"},
        {"let a": "axis i"},
        Inner("axis i"),
        (Inner("axis j", 8),),
    )


def test_an_absent_record_stays_absent() -> None:
    assert renamed(Outer("a", "b"), NAMES).inner is None


def test_names_in_a_choice_of_types_are_refused() -> None:
    class Either(msgspec.Struct, frozen=True):
        value: Inner | int

    with pytest.raises(TypeError, match="one type, or one type or None"):
        renamed(Either(3), NAMES)


def test_names_in_another_container_are_refused() -> None:
    class Listed(msgspec.Struct, frozen=True):
        axes: frozenset[Annotated[str, AXIS]] = frozenset()

    with pytest.raises(TypeError, match="tuples, dicts and records only"):
        renamed(Listed(), NAMES)


class Plain(msgspec.Struct, frozen=True, tag=True):
    size: int = 1


class Other(msgspec.Struct, frozen=True, tag=True):
    text: str = "i"


class Holder(msgspec.Struct, frozen=True):
    value: Plain | Other


def test_a_choice_of_records_without_names_stays() -> None:
    held = Holder(Other())
    assert renamed(held, NAMES) is held
