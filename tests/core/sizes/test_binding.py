"""Size symbols get their values from shapes, requests and defaults."""

from __future__ import annotations

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.signature import Equation, Input, Output, Signature
from tatami.core.sizes.binding import bind_sizes

F = DType.fp32


def signature(*shapes: tuple, **fields: object) -> Signature:
    return Signature(tuple(Input(f"x{k}", F, shape(*s)) for k, s in enumerate(shapes)), **fields)  # type: ignore[arg-type]


def test_linear_sizes_are_solved_in_any_order() -> None:
    s = signature(("G*C", 2), ("C", "2*N + 1"))
    assert bind_sizes(s, {"x0": (12, 2), "x1": (3, 7)}) == {"C": 3, "G": 4, "N": 3}


def test_sizes_come_before_defaults() -> None:
    s = Signature((), (Output("y", F, shape("K")),), defaults={"K": 4})
    assert bind_sizes(s, {}) == {"K": 4}
    assert bind_sizes(s, {}, {"K": 7}) == {"K": 7}


@pytest.mark.parametrize(
    ("shapes", "kind"),
    [
        ({"x0": (2,)}, "InputMismatch"),
        ({"x0": (2, 3), "x1": (4, 2)}, "AxisAlignmentMismatch"),
        ({}, "UnboundSymbol"),
    ],
)
def test_faults(shapes: dict[str, tuple[int, ...]], kind: str) -> None:
    with pytest.raises(TatamiError, match=kind):
        bind_sizes(signature(("M", "K"), ("K", "N")), shapes)


def test_assumptions_are_checked_with_both_values() -> None:
    s = signature(("M",), ("N",), assumptions=(Equation(expr("M"), expr("2*N"), "reshape"),))
    assert bind_sizes(s, {"x0": (4,), "x1": (2,)}) == {"M": 4, "N": 2}
    with pytest.raises(TatamiError, match=r"E1304 .* at reshape: M = 5 where 2\*N = 4"):
        bind_sizes(s, {"x0": (5,), "x1": (2,)})


def test_wrong_constant_size_names_the_axis() -> None:
    with pytest.raises(TatamiError, match="axis 1 of x0"):
        bind_sizes(signature(("M", 4)), {"x0": (1, 5)})
