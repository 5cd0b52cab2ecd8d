"""Compiles small programs with hand-written kernels, so that the entry and the runtime are tested alone."""

from __future__ import annotations

from typing import Any

from tatami.c.print_entry import print_entry
from tatami.core.expr import product
from tatami.core.kernel import Binding
from tatami.core.module import Module
from tatami.core.target import PRESETS
from tatami.execution.ir import ExecutionPlan
from tatami.execution.lower import lower
from tatami.execution.verify import verify
from tatami.region.ir import Binary, Program, Region, Unary
from tatami.runtime.building.objects import Unit, build, program_units
from tatami.runtime.cpu.pool import get_pool, load_program
from tatami.runtime.cpu.program import CpuProgram
from tatami.runtime.function import Function

KERNELS = """\
#include "tatami.h"
#define KERNEL(name, value) \\
    int k_##name(void* const* b, const int64_t* s, tatami_pool* p) { \\
        const float* x = b[0]; const float* y = s[1] > 2 ? b[1] : 0; float* z = b[s[1] - 1]; \\
        for (int64_t i = 0; i < s[0]; i++) z[i] = (value); \\
        return 0; }
KERNEL(neg, -x[i])
KERNEL(relu, x[i] > 0 ? x[i] : 0)
KERNEL(abs, x[i] < 0 ? -x[i] : x[i])
KERNEL(add, x[i] + y[i])
KERNEL(mul, x[i] * y[i])
int k_floor(void* const* b, const int64_t* s, tatami_pool* p) { return 1; }
"""


class Kernels:
    def __init__(self, bindings: tuple[Binding, ...]) -> None:
        self.bindings = bindings


def bindings(program: Program) -> tuple[Binding, ...]:
    out = []
    for r in program.body:
        if isinstance(r, Region):
            body = r.lets[0].expr
            assert isinstance(body, Unary | Binary)
            names = tuple(x.tensor for x in ([body.x] if isinstance(body, Unary) else [body.x, body.y]))  # type: ignore[union-attr]
            buffers = (*names, r.outputs[0].name)
            count = product(r.outputs[0].memref.shape)
            out.append(Binding(r.name, f"k_{body.fn}", buffers, (count, product([len(buffers)]))))
    return tuple(out)


def plan_of(region: Module[Program]) -> Module[ExecutionPlan]:
    kernels: Module[Any] = Module({n: Kernels(bindings(p)) for n, p in region.programs.items()})
    execution = lower(region, None, kernels)
    assert verify(execution) == []
    return execution


def compiled(region: Module[Program], threads: int = 1, sizes: dict[str, int] | None = None, timed: bool = False) -> Function:
    execution = plan_of(region)
    units = (Unit(KERNELS), Unit(print_entry(execution, timed)), *program_units())
    library = load_program(build(units, PRESETS["cpu:generic"]))
    return Function(execution, CpuProgram(execution, library, get_pool(threads), threads), sizes=sizes)
