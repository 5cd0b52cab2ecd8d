"""Text that a unit has once: quotients of sizes where its function begins, <math.h> where something of it is used."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.c.kernels.definitions import MAKERS
from tatami.c.kernels.needs import Needs
from tatami.c.kernels.print_index import Bound, index_text
from tatami.core.expr import expr


def test_a_quotient_of_sizes_is_named_once_and_what_a_loop_counts_is_not() -> None:
    bound, needs = Bound(frozenset(["s0", "s1"])), Needs(MAKERS)
    inner = "min(4, (s0 + 7)//8)"
    assert index_text(expr(f"x2*({inner}) + (s0 + 7)//8 + x2//3"), needs, bound).count("n0") == 1
    assert index_text(expr(f"2*({inner})"), needs, bound) == "(n1 * 2)"
    assert bound.lines == [
        "  const int64_t n0 = t_floor_division((s0 + 7), 8);\n",
        "  const int64_t n1 = t_index_min(n0, 4);\n",
    ]


def test_a_quotient_by_a_size_may_be_computed_where_that_size_is_zero() -> None:
    bound = Bound(frozenset(["s0", "s1"]))
    assert index_text(expr("s0//s1"), Needs(MAKERS), bound) == "n0"
    assert bound.lines == ["  const int64_t n0 = t_floor_division(s0, t_index_max(s1, 1));\n"]
    assert index_text(expr("x//s1"), Needs(MAKERS), bound) == "(t_floor_division(x, s1))"


def test_a_window_of_open_sizes_spells_no_quotient_of_sizes_out_inside_its_loops() -> None:
    g = tt.Graph("window")
    x = g.input("x", ("B", 8, "H", "W"), tt.fp32)
    w = g.constant(np.ones((8, 1, 3, 3), np.float32))
    y = x.conv(w, stride=2, padding=1, groups=8)
    g.output("y", y.conv(w, stride=2, padding=1, groups=8))
    texts = [u.text for u in prepare(g, target="cpu:avx2").stages["c"].main.units.values()]
    assert any("const int64_t n0 = t_floor_division(" in t for t in texts)
    for text in texts:
        others = [line for line in text.splitlines() if not line.startswith("  const int64_t n")]
        assert not re.search(r"t_floor_division\(\(?s\d", "\n".join(others)), text[:200]


@pytest.mark.parametrize(("op", "header"), [("abs", False), ("relu", False), ("asinh", True), ("erf", True)])
def test_math_h_is_read_where_something_of_it_is_called(op: str, header: bool) -> None:
    """tests/c/kernels/test_scalar_ops.py compiles every operation with undeclared functions as errors."""
    g = tt.Graph("g")
    g.output("y", getattr(g.input("x", ("N",), tt.fp64), op)())
    texts = [u.text for u in prepare(g, target="cpu:avx2").stages["c"].main.units.values()]
    assert any("#include <math.h>" in t for t in texts) == header
