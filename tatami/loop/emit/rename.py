"""A plan in the names of `plan/views/own_names.py`: those of the Region whose kernel it shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from tatami.core.renaming import renamed
from tatami.plan.ir import AXIS, LET, READ, WRITTEN, SchedulePlan
from tatami.plan.views.own_names import Names

P = TypeVar("P", bound=SchedulePlan)


def rename_plan(plan: P, names: Names) -> P:
    """The plan in the Region's new names. Unknown names stay (they match nothing); a suffix stays as well."""

    def known(names: Mapping[str, str]) -> Callable[[str], str]:
        def name(whole: str) -> str:
            head, dot, rest = whole.partition(".")
            return names.get(head, head) + dot + rest

        return name

    tables = {AXIS: names.axes, LET: names.lets, READ: names.inputs, WRITTEN: names.outputs}
    return renamed(plan, {mark: known(table) for mark, table in tables.items()})
