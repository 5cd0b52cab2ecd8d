"""The CUDA of a module as one text: every kernel, then the headers that they include."""

from __future__ import annotations

from collections.abc import Iterator

from tatami.core.lines import Line, split_lines, text_of
from tatami.core.module import Module
from tatami.cu.ir import Source
from tatami.execution.views.kernel_labels import comment


def show(module: Module[Source]) -> str:
    """The text of all units and headers of the module."""
    return text_of(show_lines(module))


def show_lines(module: Module[Source]) -> Iterator[Line]:
    """The same by lines, each of a kernel or a header."""
    for program, source in module.programs.items():
        for u in source.units:
            above = f"/* ==== {u.symbol}.cu for {u.arch} ==== */\n{comment(source.labels.get(u.symbol, ''))}"
            yield from split_lines(above + u.text, (program, u.symbol))
        for name, text in source.headers.items():
            yield from split_lines(f"/* ==== {name} ==== */\n{text}", (program, name))
