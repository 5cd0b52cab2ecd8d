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
from tatami.loop.ir import Kernel


class KernelUnits:
    """The units of a program's kernels, by symbol; each is printed once."""

    def __init__(self) -> None:
        self._units: dict[str, Unit] = {}

    def unit(self, kernel: Kernel) -> Unit:
        """The unit of a kernel, printed unless it is there."""
        symbol = kernel.face.symbol
        if symbol not in self._units:
            self._units[symbol] = (print_checked if kernel.extents else print_kernel)(kernel)
        return self._units[symbol]


def print_c(loop: Module[Any], execution: Module[Any], target: Target, printed: KernelUnits | None = None) -> Module[Source]:
    """One Source for all programs of the module. Launched kernels are printed, equal ones once. `printed`: units of these
    kernels, of which some may be printed already."""
    raise_errors(check_launches(loop, execution))
    launched = launched_kernels(execution)
    kernels = {s: k for program in loop.programs.values() for s, k in program.kernels.items() if s in launched}
    printed = printed or KernelUnits()
    units: dict[str, Unit] = {f"{symbol}.c": printed.unit(kernel) for symbol, kernel in kernels.items()}
    units |= routine_units(kernels.values())
    labels = {f"{symbol}.c": label for symbol, label in kernel_labels(execution).items() if f"{symbol}.c" in units}
    return Module({"main": Source(units, VerbatimCode(print_entry(execution)), abi(), labels)})
