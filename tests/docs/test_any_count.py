"""Signatures that say `Any` become fewer: where a type exists, it stands there."""

from __future__ import annotations

import pytest

from tests.docs.any_count import Kind, counts, uses

COUNTS: dict[str, dict[Kind, int]] = {
    "core": {"alias": 1, "field": 4, "signature": 64},
    "frontend": {"alias": 3, "field": 2, "signature": 21},
    "tiny": {"alias": 4, "field": 2, "signature": 45},
    "indexbook": {"signature": 3},
    "region": {"signature": 30},
    "plan": {"alias": 1, "field": 1, "signature": 5},
    "loop": {"signature": 13},
    "gpu": {"signature": 6},
    "execution": {"field": 1, "signature": 5},
    "c": {"signature": 2},
    "cu": {"signature": 1},
    "runtime": {"alias": 2, "field": 3, "signature": 4},
    "onnx": {"field": 3, "signature": 61},
    "torch": {"signature": 1},
    "backends": {"alias": 2, "field": 2, "signature": 76},
    "derivative": {"field": 1},
    "above": {"alias": 4, "field": 4, "signature": 18},
}
"""`python -m tests.docs.any_count` prints every place and this table. A number may only fall, and is written here when it does;
where no type exists (results of foreign functions, stages by name) `Any` stays and is counted."""


def test_the_numbers_are_those_of_the_table() -> None:
    assert counts() == COUNTS, "give the type, or lower the number: python -m tests.docs.any_count"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(x: Any): ...", ["f(x)"]),
        ("def f(*x: list[Any], **y: 'Any') -> None: ...", ["f(x)", "f(y)"]),
        ("class C:\n    async def f(self, *, x: typing.Any) -> dict[str, Any]: ...", ["f(x)", "f -> dict[str, Any]"]),
        ("class C:\n    x: Callable[..., Any]\n    y: int", ["C.x"]),
        ("Array: TypeAlias = Any", ["Array"]),
        ("Rule = Callable[[Any], None]", ["Rule"]),
        ("x: list[Any] = []\nx = f(Any)\ndef f(x: object, y: Literal['Any']) -> Anyone: ...", []),
    ],
)
def test_a_planted_place_is_found(text: str, found: list[str]) -> None:
    assert [use.name for use in uses(text)] == found
