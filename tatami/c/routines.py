"""The units of the routines that kernels call, by routine name."""

from __future__ import annotations

from collections.abc import Iterable

from tatami.c.ir import Unit
from tatami.c.microkernel import routine_unit
from tatami.loop.ir import Call, For, If, Kernel, Parallel, Stmt


def routine_units(kernels: Iterable[Kernel]) -> dict[str, Unit]:
    """File name -> unit of every generated routine (micro-kernels, packs) that the kernels call, each once. Routines of
    the runtime text are not among them."""
    names: set[str] = set()
    for kernel in kernels:
        stack: list[Stmt] = [*kernel.body, *(s for f in kernel.functions for s in f.body)]
        while stack:
            s = stack.pop()
            match s:
                case Call(function=function, routine=True):
                    names.add(function)
                case For(body=body):
                    stack.extend(body)
                case If(then=then, otherwise=otherwise):
                    stack.extend((*then, *otherwise))
                case Parallel(body=body, prologue=prologue):
                    stack.extend((*prologue, *body))
                case _:
                    pass
    found = ((name, routine_unit(name)) for name in sorted(names))
    return {f"{name}.c": unit for name, unit in found if unit is not None}
