"""Statements of loop kernels: a kernel is run on arrays, its threads one after the other.

Two runs, of which one is `turned`, tell whether a result depends on the order of threads or on memory that nothing wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

import numpy as np

from tatami.core.dtype import DType
from tatami.core.numbers.numerics import Mode, storage_dtype
from tatami.loop import ir
from tests.loop.meaning.values import Array, Frame, NoMeaning, Outside, Pointer

CHUNKS = 3
"""Number of pieces into which threads divide a loop, as in the pool of `tests/loop/compiled.py`."""
MOST_STEPS = 1 << 18
"""Maximum number of statements and blocks of a run."""


class TooLong(Exception):
    """A kernel that takes more than MOST_STEPS statements and blocks."""


def run(kernel: ir.Kernel, arrays: Sequence[Array], sizes: Sequence[int], mode: Mode = "declared", turned: bool = False) -> int:
    """Run a kernel on its flat buffers, in the order of its parameters; its fault. `turned`: the first piece of work first, and
    other numbers in scratch. Raises Outside, TooLong, NoMeaning."""
    numbers = {f"s{i}": n for i, n in enumerate(sizes)}
    buffers = {p.name: Pointer(a) for p, a in zip(kernel.params, arrays, strict=True)}
    machine = Machine({f.name: f for f in kernel.functions}, mode, turned)
    machine.block(kernel.body, Frame(mode, numbers, buffers))
    return machine.fault


class Machine:
    """The run of one kernel: its functions, the steps that it has taken, its fault."""

    def __init__(self, functions: Mapping[str, ir.Function], mode: Mode, turned: bool = False) -> None:
        self.functions = functions
        self.mode = mode
        self.turned = turned
        self.steps = 0
        self.fault = 0

    def block(self, body: Sequence[ir.Stmt], f: Frame) -> None:
        self.step()
        for stmt in body:
            self.step()
            self.statement(stmt, f)

    def step(self) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooLong

    def statement(self, stmt: ir.Stmt, f: Frame) -> None:
        match stmt:
            case ir.Declare(reg=reg, value=value, integer=integer):
                f.registers[reg.name] = f.value(value)
                if integer:
                    f.names[reg.name] = int(f.registers[reg.name][0])
            case ir.Assign(reg=reg, value=value):
                f.registers[reg.name] = f.value(value)
                if reg.name in f.names:
                    f.names[reg.name] = int(f.registers[reg.name][0])
            case ir.SetLane(reg=reg, lane=lane, value=value):
                changed = f.registers[reg.name].copy()
                changed[f.index(lane)] = f.value(value)[0]
                f.registers[reg.name] = changed
            case ir.Store(buffer=buffer, index=index, value=value, active=active):
                lanes = f.value(value)
                count = lanes.size if active is None else min(lanes.size, max(0, f.index(active)))
                pointer = f.buffers[buffer]
                pointer.memory[pointer.places(f.index(index) + np.arange(count))] = lanes[:count]
            case ir.For(var=var, start=start, stop=stop, body=body, step=step, down=down):
                values = range(f.index(start), f.index(stop), step)
                for n in reversed(values) if down else values:
                    f.names[var] = n
                    self.block(body, f)
            case ir.If(cond=cond, then=then, otherwise=otherwise):
                self.block(then if f.value(cond)[0] else otherwise, f)
            case ir.Parallel():
                self.parallel(stmt, f)
            case ir.LocalBuffer(name=name, dtype=dtype, elements=elements):
                f.buffers[name] = Pointer(self.scratch(dtype, f.index(elements)))
            case ir.Fault(code=code):
                self.fault = max(self.fault, code)
            case ir.Call():
                self.call(stmt, f)
            case ir.Prefetch():
                pass
            case _:
                assert_never(stmt)

    def parallel(self, p: ir.Parallel, f: Frame) -> None:
        count = f.index(p.count)
        part = count // CHUNKS + 1
        begins = range(0, count, part)
        for begin in begins if self.turned else reversed(begins):
            own = Frame(self.mode, {**f.names, "begin": begin}, dict(f.buffers))
            self.block(p.prologue, own)
            for n in range(begin, min(count, begin + part)):
                own.names[p.var] = n
                self.block(p.body, own)

    def call(self, c: ir.Call, f: Frame) -> None:
        if c.routine:
            raise NoMeaning(c.function)
        function = self.functions[c.function]
        inner = Frame(self.mode, {}, {})
        for p, a in zip(function.params, c.args, strict=True):
            match a:
                case ir.Pointer(buffer=buffer, index=index):
                    outer = f.buffers[buffer]
                    inner.buffers[p.name] = Pointer(outer.memory, outer.start + f.index(index))
                case ir.Integer(value=value):
                    inner.names[p.name] = f.index(value)
        self.block(function.body, inner)

    def scratch(self, dtype: DType, elements: int) -> Array:
        """Memory that nothing has written."""
        if not 0 <= elements <= MOST_STEPS:
            raise Outside(f"scratch of {elements} elements")
        return unwritten(storage_dtype(dtype, self.mode), elements, self.turned)


def unwritten(dtype: np.dtype, elements: int, turned: bool = False) -> Array:
    """Memory that nothing has written: NaN in floats, large numbers in integers; with `turned`, other numbers."""
    if dtype.kind == "f" and not turned:
        return np.full(elements, np.nan, dtype)
    return np.full(elements * dtype.itemsize, 0x45 if turned else 0xA5, np.uint8).view(dtype)
