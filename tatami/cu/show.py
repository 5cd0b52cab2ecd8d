"""The CUDA of a module as one text: every kernel, then the headers that they include."""

from __future__ import annotations

from tatami.core.module import Module
from tatami.cu.ir import Source
from tatami.execution.views.kernel_labels import comment


def show(module: Module[Source]) -> str:
    """The text of all units and headers of the module."""
    parts: list[str] = []
    for source in module.programs.values():
        for u in source.units:
            parts.append(f"/* ==== {u.symbol}.cu for {u.arch} ==== */\n{comment(source.labels.get(u.symbol, ''))}{u.text}")
        parts += [f"/* ==== {name} ==== */\n{text}" for name, text in source.headers.items()]
    return "\n".join(parts)
