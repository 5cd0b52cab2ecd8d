"""Plans of loops by what is wished of them, for tests that have no estimate to choose by."""

from __future__ import annotations

from typing import NamedTuple

from tatami.plan.ir import Blocks, CpuRows
from tatami.plan.views.form_passes import Wish
from tatami.plan.views.wished_plans import rows_plan
from tatami.region.ir import Region


class Wished(NamedTuple):
    """Outer axes, the axis of vectors, their width, and blocks."""

    outer: tuple[str, ...]
    vector: str
    width: int
    blocks: Blocks | None = None

    def plan(self, region: Region) -> CpuRows:
        return rows_plan(region, Wish(self.outer, self.vector, {}, self.blocks), self.width)
