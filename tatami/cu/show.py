"""The CUDA of a module as one text: every kernel, then the headers that they include."""

from __future__ import annotations

from tatami.core.module import Module
from tatami.cu.ir import Source


def show(module: Module[Source]) -> str:
    """The text of all units and headers of the module."""
    parts: list[str] = []
    for source in module.programs.values():
        parts += [f"/* ==== {unit.symbol}.cu for {unit.arch} ==== */\n{unit.text}" for unit in source.units]
        parts += [f"/* ==== {name} ==== */\n{text}" for name, text in source.headers.items()]
    return "\n".join(parts)
