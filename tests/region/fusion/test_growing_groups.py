"""Readers of the values of a program."""

from __future__ import annotations

import tatami as tt
from tatami.api import prepare
from tatami.region.fusion.growing_groups import GrowingGroups


def test_a_value_that_nothing_reads_has_no_readers():
    g = tt.Graph()
    x = g.input("x", (4, 8), tt.fp32)
    a = x.relu()
    g.output("b", a + 1.0)
    g.output("y", a @ x.permute((1, 0)))
    stages = prepare(g, target="cpu:avx2").stages
    program, view = stages["tiny"].main, stages["poly_view"].main
    groups = GrowingGroups(program, view, {})
    assert all(n.id in groups.uses for n in program.nodes)
    unread = [v for v, readers in groups.uses.items() if not readers]
    assert set(unread) >= {value for value in program.outputs if value in groups.uses} and unread
