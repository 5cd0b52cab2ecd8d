"""A `main.c` that runs one compiled program by itself (spec 5 §7.1): `cc *.c -lm -lpthread && ./a.out`.

Sizes are fixed in the text. Inputs are filled from Philox4x32-10 (input number k: key k, word i decides element i),
constants come from `constants.bin` next to the program. Each output is compared with the reference's numbers, which are
computed when this file is written: the sum, the sum of magnitudes, and elements at some positions.
"""

from __future__ import annotations

import msgspec

from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.kernel import THREADS
from tatami.core.module import Module
from tatami.core.numbers.compared import Expected, double_text, names_text, values_text
from tatami.core.page import page
from tatami.execution.frames import Layouts
from tatami.execution.ir import BufferInfo, ExecutionPlan


class Memory(msgspec.Struct, frozen=True):
    """The arena of a program at the fixed sizes: bytes, and the slots of `execution.frames`."""

    bytes: int
    slots: tuple[int, ...]


CODES = {
    DType.bool: "BOOL",
    DType.i8: "I8",
    DType.u8: "U8",
    DType.i16: "I16",
    DType.u16: "U16",
    DType.i32: "I32",
    DType.u32: "U32",
    DType.i64: "I64",
    DType.u64: "U64",
    DType.fp16: "FP16",
    DType.bf16: "BF16",
    DType.fp32: "FP32",
    DType.fp64: "FP64",
    **{d: "U8" for d in DType if d.is_small},
}
"""Type of an element -> its constant in the text."""


def print_main(
    execution: Module[ExecutionPlan],
    sizes: dict[str, dict[str, int]],
    memory: dict[str, Memory],
    expected: tuple[Expected, ...],
    threads: int,
) -> str:
    """The text of the main. `sizes` and `memory` by program (`main`, and `setup` if there is one); `expected` by output."""
    layouts = Layouts(execution)
    if layouts.hosted:
        raise fail(
            "InvalidExecution",
            "main.c",
            "the program has steps that run in Python, which C alone cannot do",
            "run it with `tatami run`, or compile a model whose sizes do not depend on data",
        )
    return _Main(layouts, sizes, memory, expected, threads).text()


class _Main:
    def __init__(
        self,
        layouts: Layouts,
        sizes: dict[str, dict[str, int]],
        memory: dict[str, Memory],
        expected: tuple[Expected, ...],
        threads: int,
    ) -> None:
        self.layouts = layouts
        self.module = layouts.module
        self.sizes = sizes
        self.memory = memory
        self.expected = expected
        self.threads = threads

    def text(self) -> str:
        plan = self.module.main
        info = {b.id: b for b in plan.buffers}
        boundary = self.layouts.boundary("main")
        constants = self.layouts.constants
        inputs = [b for b in boundary if b.kind == "input"]
        place = {b.id: k for k, b in enumerate(boundary)}
        checks = [
            f"bad += check({k}, b[{place[id]}], {CODES[info[id].dtype]}, {self.count('main', info[id])}, at_{k}, want_{k}, "
            f"{len(e.positions)}, {double_text(e.total)}, {double_text(e.magnitude)}, {double_text(e.relative)}, {double_text(e.absolute)});"
            for k, (id, e) in enumerate(zip(plan.output_buffers, self.expected, strict=True))
        ]
        return page("tatami.c", "main.c").fill(
            TABLES=[*self.tables(), *self.checks()],
            NAMES=names_text(o.tensor for o in plan.signature.outputs),
            THREADS=self.threads,
            ALIGNMENT=max((64, *(port.alignment for port in plan.signature.inputs))),
            BUFFERS=max(1, len(boundary) + len(constants)),
            MEMORY=[f"b[{k}] = memory({self.count('main', b) * b.dtype.itemsize});" for k, b in enumerate(boundary)],
            INPUTS=[f"fill(b[{k}], {CODES[b.dtype]}, {self.count('main', b)}, {k});" for k, b in enumerate(inputs)],
            CONSTANTS=self.constants(len(boundary)),
            SETUP=self.setup(len(boundary)) if "setup" in self.module.programs else "",
            ARENA=self.memory["main"].bytes,
            CHECKS=checks,
        )

    def count(self, program: str, b: BufferInfo) -> int:
        return int(evaluate(b.elements, {**self.sizes[program], THREADS: self.threads}))

    def tables(self) -> list[str]:
        out: list[str] = []
        for program in ("main", "setup"):
            if program in self.module.programs:
                values = [self.sizes[program].get(s, 0) for s in self.layouts.symbols(program)]
                out.append(_array(f"{program}_sizes", [*values, self.threads]))
                out.append(_array(f"{program}_slots", list(self.memory[program].slots)))
        return out

    def checks(self) -> list[str]:
        out: list[str] = []
        for k, e in enumerate(self.expected):
            out.append(_array(f"at_{k}", list(e.positions)))
            out.append(values_text(k, e))
        return out

    def constants(self, start: int) -> list[str]:
        """C lines that read the module's constants and allocate room for those that `setup` makes."""
        names = self.layouts.constants
        known = [n for n in names if n in self.module.constants]
        lines: list[str] = []
        if known:
            lines.append("FILE* file = open_constants(folder);")
        else:
            lines.append("(void)folder;")
        made = self.setup_outputs()
        for k, name in enumerate(names):
            if name in self.module.constants:
                size = self.module.constants[name].array.nbytes
                lines.append(f"b[{start + k}] = memory({size}); read_constant(file, b[{start + k}], {size});")
            else:
                lines.append(f"b[{start + k}] = memory({made[name]});")
        if known:
            lines.append("fclose(file);")
        return lines

    def setup_outputs(self) -> dict[str, int]:
        plan = self.module.programs.get("setup")
        if plan is None:
            return {}
        info = {b.id: b for b in plan.buffers}
        return {
            port.tensor: self.count("setup", info[id]) * port.dtype.itemsize
            for id, port in zip(plan.output_buffers, plan.signature.outputs)
        }

    def setup(self, start: int) -> str:
        plan = self.module.programs["setup"]
        boundary = self.layouts.boundary("setup")
        names = self.layouts.constants
        info = {b.id: b for b in plan.buffers}
        port_of = {id: port.tensor for id, port in zip(plan.output_buffers, plan.signature.outputs)}
        held = dict(zip(self.layouts.held, self.layouts.held_positions))
        port_of |= {id: port.tensor for id, port in zip(plan.input_buffers, plan.signature.inputs) if port.tensor in held}
        place = {**{name: start + k for k, name in enumerate(names)}, **held}
        given: list[str] = []
        for k, b in enumerate(boundary):
            name = port_of.get(b.id, "")
            source = f"b[{place[name]}]" if name in place else f"memory({self.count('setup', info[b.id]) * b.dtype.itemsize})"
            given.append(f"s[{k}] = {source};")
        given += [f"s[{len(boundary) + k}] = b[{start + k}];" for k in range(len(names))]
        buffers = max(1, len(boundary) + len(names))
        return page("tatami.c", "main_setup.c").fill(BUFFERS=buffers, GIVEN=given, ARENA=self.memory["setup"].bytes)


def constant_names(execution: Module[ExecutionPlan]) -> tuple[str, ...]:
    """Names of the constants in the order of `constants.bin`, one after another."""
    return tuple(n for n in Layouts(execution).constants if n in execution.constants)


def _array(name: str, values: list[int]) -> str:
    lines = [", ".join(f"INT64_C({v})" for v in values[i : i + 8]) for i in range(0, len(values), 8)]
    return f"static const int64_t {name}[] = {{{(',' + chr(10) + '    ').join(lines) or '0'}}};"
