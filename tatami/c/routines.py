"""The units of the routines that kernels call, by routine name."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

from tatami.c.ir import Unit
from tatami.c.products.along import along_unit
from tatami.c.products.amx_tiles import tile_unit
from tatami.c.products.block_dots import block_dots_unit
from tatami.c.products.codes import codes_unit, codes_units
from tatami.c.products.microkernel import panel_units, routine_unit
from tatami.c.products.places import places_unit
from tatami.c.products.quads import quads_unit
from tatami.c.user_routine import user_unit
from tatami.core.custom.verbatim import VerbatimCode
from tatami.loop.ir import Call, For, If, Kernel, Parallel, Stmt, UserRoutine


def routine_units(kernels: Iterable[Kernel]) -> dict[str, Unit]:
    """File name -> unit of every routine that the kernels call, each once: generated ones (micro-kernels, packs), a user's
    own, and the fixed text of the others (sort, topk, trees). If all calls of a micro-kernel state their rows, it has panels
    for only these."""
    called: dict[str, set[tuple[int, ...]]] = {}
    users: dict[str, UserRoutine] = {}
    for kernel in kernels:
        if kernel.user is not None:
            users[kernel.user.name] = kernel.user
        stack: list[Stmt] = [*kernel.body, *(s for f in kernel.functions for s in f.body)]
        while stack:
            s = stack.pop()
            match s:
                case Call(function=function, routine=True, rows=rows):
                    called.setdefault(function, set()).add(rows)
                case For(body=body):
                    stack.extend(body)
                case If(then=then, otherwise=otherwise):
                    stack.extend((*then, *otherwise))
                case Parallel(body=body, prologue=prologue):
                    stack.extend((*prologue, *body))
                case _:
                    pass
    units: dict[str, Unit] = {}
    for name, all_rows in sorted(called.items()):
        if name in users:
            units[f"{name}.c"] = user_unit(users[name])
        elif (() not in all_rows and (of_rows := panel_units(name, {n for rows in all_rows for n in rows}))) or (
            () not in all_rows and (of_rows := codes_units(name, {n for rows in all_rows for n in rows}))
        ):
            units |= of_rows
        elif (unit := places_unit(name, None if () in all_rows else {n for rows in all_rows for n in rows})) is not None or (
            unit := _generated(name)
        ) is not None:
            units[f"{name}.c"] = unit
        else:
            file = "trees.c" if name == "tatami_tree_ensemble" else "routines.c"
            units[file] = Unit(VerbatimCode((files("tatami.c") / "runtime_text" / file).read_text(encoding="utf-8")))
    return units


def _generated(name: str) -> Unit | None:
    """The unit of a routine whose text depends on its name; None for the fixed ones."""
    makers = (tile_unit, codes_unit, block_dots_unit, along_unit, quads_unit, routine_unit)
    return next((unit for make in makers if (unit := make(name)) is not None), None)
