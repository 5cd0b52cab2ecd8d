"""Runs one kernel of the GPU layers on the emulated machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import msgspec
import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.dtype import DType
from tatami.core.kernel import Binding, Condition, KernelFace
from tatami.core.target import PRESETS
from tatami.cu.ir import Unit
from tatami.cu.print import headers, print_unit
from tatami.emulated.report import Report
from tatami.gpu.ir import Kernel
from tatami.gpu.lower import lower_region
from tatami.plan.ir import Guarded
from tatami.region.ir import Param, Region, Target
from tatami.runtime.emulated.machine import Argument, EmulatedMachine, Im2col, LaunchShape, MapOver, Pointer, build_machine

NUMPY = {DType.fp16: np.float16, DType.bf16: ml_dtypes.bfloat16, DType.fp32: np.float32}
Change = Callable[[str], str]


def changed(right: str, wrong: str) -> Change:
    """Puts a fault into a text, which has to have the right words."""

    def change(text: str) -> str:
        assert right in text, f"{right!r} is not in the kernel"
        return text.replace(right, wrong)

    return change


class Built:
    """A contraction Region with one plan, compiled. `change` plants a fault in its text."""

    def __init__(
        self,
        region: Region,
        plan: Any,
        target: str,
        conditions: tuple[Condition, ...] = (),
        change: Change = lambda t: t,
        load: bool = True,
        sms: int = 0,
        lower: Callable[..., tuple[Any, Binding]] = lower_region,
    ) -> None:
        """`sms`: of a smaller GPU, on which persistent CTAs have several tiles each."""
        self.region = region
        machine = PRESETS[target]
        machine = msgspec.structs.replace(machine, sms=sms or machine.sms)
        kernel, self.binding = lower(region, Guarded(conditions, plan), machine)
        self.kernel: Kernel = msgspec.structs.replace(kernel, face=KernelFace("k0", (), len(self.binding.sizes), ""))
        unit = print_unit(self.kernel, PRESETS[target])
        self.text = change(unit.text)
        self.machine = (
            build_machine([Unit(unit.symbol, unit.arch, VerbatimCode(self.text))], headers(()), PRESETS[target])
            if load
            else None
        )

    def run(self, arrays: dict[str, np.ndarray], env: dict[str, int], schedule: int = 0) -> np.ndarray:
        report, made = self.report(arrays, env, schedule)
        assert report is None, report
        return made

    def report(
        self,
        arrays: dict[str, np.ndarray],
        env: dict[str, int],
        schedule: int = 0,
        machine: EmulatedMachine | None = None,
        symbol: str = "k0",
        counts: bool = False,
    ) -> tuple[Report | None, np.ndarray]:
        """(Report of the machine, output). Another `machine` has the kernel under another `symbol`."""
        machine = machine or self.machine
        assert machine is not None
        out = self.region.outputs[0]
        shape = tuple(int(evaluate(s, env)) for s in out.memref.shape)
        dtypes = {p.name: p.memref.dtype for p in self.region.inputs}
        buffers = {name: machine.copied(name, a, dtypes.get(name, DType.fp32)) for name, a in arrays.items()}
        buffers[out.name] = machine.make(out.name, int(np.prod(shape)), out.memref.dtype)
        try:
            launch = replace(self.shape(env, schedule), counts=counts)
            found = machine.run(symbol, self.arguments(buffers, env), launch)
            return found, buffers[out.name].reshape(shape).copy()
        finally:
            for a in buffers.values():
                machine.drop(a)

    def shape(self, env: dict[str, int], schedule: int) -> LaunchShape:
        x, y, z = (int(evaluate(g, env)) for g in self.binding.grid)
        cx, cy, cz = (*self.binding.cluster, 1, 1, 1)[:3]
        return LaunchShape((x, y, z), self.kernel.threads, (cx, cy, cz), self.kernel.shared_bytes, schedule)

    def arguments(self, buffers: dict[str, np.ndarray], env: dict[str, int]) -> list[Argument]:
        b: Binding = self.binding
        out: list[Argument] = [
            Pointer(buffers[n], buffers[n], p.written) for n, p in zip(b.buffers, self.kernel.params, strict=True)
        ]
        out += [int(evaluate(s, env)) for s in b.sizes]
        operands: list[Param | Target] = [*self.region.inputs, *self.region.outputs]
        dtypes = {p.name: p.memref.dtype for p in operands}
        written = {o.name for o in self.region.outputs}
        for m in b.tensor_maps:
            dims, strides = (tuple(int(evaluate(e, env)) for e in x) for x in (m.dims, m.strides))
            a = buffers[m.buffer]
            walk = Im2col.of(m.window, m.box)
            out.append(MapOver(a, a, m.buffer in written, dtypes[m.buffer], dims, strides, m.box, m.swizzle, walk, m.tf32))
        return out
