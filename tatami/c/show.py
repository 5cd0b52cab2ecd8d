"""The C of a module as one text: every unit, then the entry."""

from __future__ import annotations

from tatami.c.ir import Source
from tatami.core.module import Module
from tatami.execution.views.kernel_labels import comment


def show(module: Module[Source]) -> str:
    """The text of all units and entries of the module."""
    parts: list[str] = []
    for source in module.programs.values():
        for name, unit in source.units.items():
            above = f"/* ==== {name}{' (contracted)' if unit.contract else ''} ==== */\n{comment(source.labels.get(name, ''))}"
            parts.append(above + unit.text)
        parts.append(f"/* ==== entry.c ==== */\n{source.entry}")
    return "\n".join(parts)
