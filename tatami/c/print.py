"""Loop kernels and an execution plan to C: a unit per distinct kernel and per routine they call, one entry file."""

from __future__ import annotations

from typing import Any

from tatami.c.abi import abi
from tatami.c.check_launches import check_launches
from tatami.c.ir import Source, Unit
from tatami.c.print_entry import print_entry
from tatami.c.print_kernel import print_kernel
from tatami.c.routines import routine_units
from tatami.core.diagnostic import raise_errors
from tatami.core.module import Module
from tatami.core.target import Target


def print_c(loop: Module[Any], execution: Module[Any], target: Target) -> Module[Source]:
    """One Source for all programs of the module. Kernels of equal meaning are printed once."""
    raise_errors(check_launches(loop, execution))
    units: dict[str, Unit] = {}
    for program in loop.programs.values():
        for symbol, kernel in program.kernels.items():
            file = f"{symbol}.c"
            if file not in units:
                units[file] = print_kernel(kernel)
    units |= routine_units(kernel for program in loop.programs.values() for kernel in program.kernels.values())
    return Module({"main": Source(units, print_entry(execution), abi())})
