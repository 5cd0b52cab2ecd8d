"""The C of a module as one text: every unit, then the entry."""

from __future__ import annotations

from collections.abc import Iterator

from tatami.c.ir import Source
from tatami.core.lines import Line, split_lines, text_of
from tatami.core.module import Module
from tatami.execution.views.kernel_labels import comment


def show(module: Module[Source]) -> str:
    """The text of all units and entries of the module."""
    return text_of(show_lines(module))


def show_lines(module: Module[Source]) -> Iterator[Line]:
    """The same by lines, each of a file without its suffix: a kernel's file has the name of its symbol."""
    for program, source in module.programs.items():
        for name, unit in source.units.items():
            above = f"/* ==== {name}{' (contracted)' if unit.contract else ''} ==== */\n{comment(source.labels.get(name, ''))}"
            yield from split_lines(above + unit.text, (program, name.removesuffix(".c")))
        yield from split_lines(f"/* ==== entry.c ==== */\n{source.entry}", (program, "entry"))
