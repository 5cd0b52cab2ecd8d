"""Loop kernels and an execution plan to C: a unit per distinct kernel and per routine they call, one entry file."""

from __future__ import annotations

from typing import Any

from tatami.c.abi import abi
from tatami.c.check_launches import check_launches
from tatami.c.ir import Source, Unit
from tatami.c.kernels.print_kernel import print_kernel
from tatami.c.print_checked import print_checked
from tatami.c.print_entry import print_entry
from tatami.c.routines import routine_units
from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.diagnostic import raise_errors
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.execution.ir import launched_kernels
from tatami.execution.views.kernel_labels import kernel_labels


def print_c(loop: Module[Any], execution: Module[Any], target: Target) -> Module[Source]:
    """One Source for all programs of the module. Launched kernels are printed, equal ones once."""
    raise_errors(check_launches(loop, execution))
    launched = launched_kernels(execution)
    kernels = {s: k for program in loop.programs.values() for s, k in program.kernels.items() if s in launched}
    units: dict[str, Unit] = {
        f"{symbol}.c": (print_checked if kernel.extents else print_kernel)(kernel) for symbol, kernel in kernels.items()
    }
    units |= routine_units(kernels.values())
    labels = {f"{symbol}.c": label for symbol, label in kernel_labels(execution).items() if f"{symbol}.c" in units}
    return Module({"main": Source(units, VerbatimCode(print_entry(execution)), abi(), labels)})
