"""Values of loop kernels as arrays of lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.dtype import DType
from tatami.core.expr import MAX_SIZE, Expr
from tatami.core.numbers import numerics
from tatami.core.numbers.combining import combine
from tatami.core.numbers.numerics import Mode
from tatami.core.tensor import numpy_dtype
from tatami.indexbook.ir import Guard
from tatami.loop import ir

Array: TypeAlias = np.ndarray


class Outside(Exception):
    """An access of a kernel outside a buffer."""


class NoMeaning(Exception):
    """A kernel whose statements do not say what it computes: it calls a routine, which is C text, or an index wraps."""


@dataclass(frozen=True)
class Pointer:
    """A place in a buffer, from which a micro-kernel counts its elements."""

    memory: Array
    start: int = 0

    def places(self, index: Array) -> Array:
        """Positions of elements. Raises Outside if the buffer does not have one of them."""
        found = index + self.start
        if found.size and (found.min() < 0 or found.max() >= self.memory.size):
            raise Outside(f"elements {found.min()} to {found.max()} of {self.memory.size}")
        return found


@dataclass
class Frame:
    """The names of one function: numbers of index expressions, registers, buffers."""

    mode: Mode
    names: dict[str, int]
    buffers: dict[str, Pointer]
    registers: dict[str, Array] = field(default_factory=dict)

    def index(self, e: Expr) -> int:
        found = int(evaluate(e, self.names))
        if abs(found) > MAX_SIZE:
            raise NoMeaning("an index of more than 64 bits")
        return found

    def holds(self, guards: Sequence[Guard]) -> bool:
        return all(0 <= self.index(g.index) < self.index(g.size) for g in guards)

    def value(self, v: ir.Value) -> Array:
        """The lanes of a value."""
        match v:
            case ir.Const(value=value, dtype=dtype):
                return numerics.constant(value, dtype, self.mode).reshape(1)
            case ir.Reg(name=name):
                return self.registers[name]
            case ir.IndexOf(value=value, dtype=dtype, lanes=lanes, step=step):
                lane = np.arange(lanes) * (0 if step is None else self.index(step))
                return numerics.cast(self.index(value) + lane, dtype, self.mode)
            case ir.Load(buffer=buffer, index=index, lanes=lanes, active=active):
                return self._loaded(buffer, self.index(index) + np.arange(lanes), active)
            case ir.Gather(buffer=buffer, index=index, step=step, lanes=lanes, each=each, at=at):
                lane = np.arange(lanes) // each if at is None else self.registers[at.name].astype(np.int64)
                return self._loaded(buffer, self.index(index) + lane * self.index(step), None)
            case ir.Op(fn=fn, args=args):
                return numerics.apply(fn, [self.value(a) for a in args], ir.type_of(v).dtype, self.mode)
            case ir.Fma(x=x, y=y, z=z):
                dtype = ir.type_of(v).dtype
                product = numerics.apply("mul", [self.value(x), self.value(y)], dtype, self.mode)
                return numerics.apply("add", [product, self.value(z)], dtype, self.mode)
            case ir.Cast(x=x, to=to, bits=bits):
                return self._bits(x, to) if bits else numerics.cast(self.value(x), to, self.mode)
            case ir.Within(guards=guards):
                return np.array([self.holds(guards)])
            case ir.LaneRange(low=low, high=high, lanes=lanes):
                lane = np.arange(lanes)
                return (self.index(low) <= lane) & (lane < self.index(high))
            case ir.Random(key=key, counter=counter, lanes=lanes):
                place = self.index(counter) + np.arange(lanes)
                words = numerics.philox(int(self.value(key)[0]), place // 4)
                return np.take_along_axis(words, (place % 4)[:, None], axis=1)[:, 0]
            case _:
                return self._across_lanes(v)

    def _across_lanes(self, v: Across) -> Array:
        match v:
            case ir.Splat(x=x, lanes=lanes):
                return np.repeat(self.value(x), lanes)
            case ir.Lane(x=x, lane=lane):
                return self.value(x)[[self.index(lane)]]
            case ir.Shift(x=x, by=by, fill=fill):
                a, source = self.value(x), np.arange(ir.type_of(v).lanes) - by
                return np.where((source >= 0) & (source < a.size), a[source.clip(0, a.size - 1)], self.value(fill))
            case ir.Across(x=x, y=y, start=start):
                a = self.value(x)
                return np.concatenate([a, self.value(y)])[start : start + a.size]
            case ir.Zip(x=x, y=y, second=second):
                a, b = self.value(x), self.value(y)
                half = slice(a.size // 2, None) if second else slice(a.size // 2)
                return np.stack([a[half], b[half]], axis=1).reshape(-1)
            case ir.Unzip(x=x, y=y, odd=odd):
                return np.concatenate([self.value(x), self.value(y)])[int(odd) :: 2]
            case ir.Horizontal(fn=fn, x=x):
                a, dtype = self.value(x), ir.type_of(v).dtype
                while a.size > 1:
                    middle = a.size // 2
                    a = numerics.apply(combine(fn, dtype), [a[:middle], a[middle:]], dtype, self.mode)
                return a
            case ir.FirstLane(masks=masks):
                every = np.concatenate([self.value(m) for m in masks])
                return np.array([int(every.argmax()) if every.any() else every.size])
            case _:
                assert_never(v)

    def _loaded(self, buffer: str, index: Array, active: Expr | None) -> Array:
        pointer = self.buffers[buffer]
        count = index.size if active is None else min(index.size, max(0, self.index(active)))
        out = np.zeros(index.size, pointer.memory.dtype)
        out[:count] = pointer.memory[pointer.places(index[:count])]
        return out

    def _bits(self, x: ir.Value, to: DType) -> Array:
        """The bits of a declared value, read as another dtype."""
        declared = self.value(x).astype(numpy_dtype(ir.type_of(x).dtype))
        return declared.view(numpy_dtype(to)).astype(numerics.storage_dtype(to, self.mode))


Across: TypeAlias = ir.Splat | ir.Lane | ir.Shift | ir.Across | ir.Zip | ir.Unzip | ir.Horizontal | ir.FirstLane
"""Values whose lanes are made from other lanes."""
