"""A `main.cu` that runs one compiled program by itself (spec 5 §7.1): ``nvcc -gencode arch=compute_90a,code=sm_90a main.cu``.

It holds the host side: memory, Philox inputs, launches with grid, block and shared bytes, tensor maps, and the
comparison of each output with numbers of the reference. Sizes are fixed in the text; a Region's guarded plans are
decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.kernel import is_met
from tatami.core.module import Module
from tatami.core.numbers.compared import Expected, double_text, names_text, values_text
from tatami.core.page import Page, page
from tatami.cu.expr_text import STORED_TYPE
from tatami.cu.ir import Source
from tatami.cu.map_types import FAULTY_DRIVER, MAP_TYPES, SMALL_BIT, SMALL_SPAN
from tatami.execution.ir import BufferInfo, Choose, Copy, ExecutionPlan, Instruction, Launch, Ptr, SizeArg, TensorMap

CODES = {d: "TT_U8" if d.is_small else f"TT_{d.value.upper()}" for d in STORED_TYPE}
"""Type of an element -> its constant in the text; small ones are bytes."""
PLAIN = tuple(d for d in DType if not d.is_small and d != DType.unknown)
"""The types of elements in the order of the text's constants."""
ONES = {DType.f8e4m3fn: 0x38, DType.f8e5m2: 0x3C, DType.f8e4m3fnuz: 0x40, DType.f8e5m2fnuz: 0x40}
"""Small float -> the code of 1."""


def print_main(
    source: Source,
    execution: Module[ExecutionPlan],
    sizes: Mapping[str, int],
    expected: Sequence[Expected] = (),
    setup_sizes: Mapping[str, int] | None = None,
) -> str:
    """The text of the main. `sizes`: a value for every symbol; `expected` by output (absent: outputs are printed, not compared).
    Raises InvalidExecution for a program that needs more than launches and copies."""
    main = _Main(source, execution, execution.main, dict(sizes), expected)
    setup = None
    if "setup" in execution.programs:
        setup = _Main(source, execution, execution.programs["setup"], {**(setup_sizes or {})}, (), "setup")
    return main.text(setup)


def constant_places(module: Module[ExecutionPlan]) -> dict[str, tuple[int, int]]:
    """Constant -> (offset, length) in `constants.bin`, which holds the module's constants by name."""
    out: dict[str, tuple[int, int]] = {}
    offset = 0
    for name in sorted(module.constants):
        length = module.constants[name].array.nbytes
        out[name] = (offset, length)
        offset += length
    return out


class _Main:
    def __init__(
        self,
        source: Source,
        module: Module[ExecutionPlan],
        plan: ExecutionPlan,
        sizes: dict[str, int],
        expected: Sequence[Expected],
        name: str = "run",
    ) -> None:
        self.name = name
        self.source = source
        self.module = module
        self.plan = plan
        self.sizes = sizes
        self.expected = expected
        self.info = {b.id: b for b in plan.buffers}
        self.pointer = {b.id: f"b{i}" for i, b in enumerate(plan.buffers)}

    def size(self, e: Expr) -> int:
        return int(evaluate(e, self.sizes))

    def count(self, b: BufferInfo) -> int:
        return self.size(b.elements)

    def text(self, setup: _Main | None) -> str:
        expected: list[str] = []
        for k, e in enumerate(self.expected):
            expected.append(f"static const long long at_{k}[] = {{{', '.join(map(str, e.positions)) or '0'}}};")
            expected.append(values_text(k, e))
        programs = [program for program in (setup, self) if program is not None]
        numbers = self.fill_numbers()
        made: dict[str, str] = {}
        if setup is not None:
            ports = zip(setup.plan.output_buffers, setup.plan.signature.outputs)
            made = {port.tensor: f"s[{setup.pointer[id][1:]}]" for id, port in ports}
        return _page("main").fill(
            KERNELS=[f'#include "{u.symbol}.cu"' for u in self.source.units],
            NAMES=names_text(o.tensor for o in self.plan.signature.outputs),
            EXPECTED=expected,
            PROGRAMS=[text for p in programs for text in ("", _page("main_program").fill(NAME=p.name, LAUNCHES=p.launches()))],
            SETUP=setup.memory("s", {}, numbers) if setup is not None else [],
            MEMORY=self.memory("b", made, numbers),
            CHECKS=[self.check(k, self.info[id]) for k, id in enumerate(self.plan.output_buffers)],
            MAP_TYPES=", ".join(f"CU_TENSOR_MAP_DATA_TYPE_{t}" for t in (*(MAP_TYPES[d] for d in PLAIN), "TFLOAT32")),
            FAULTY_DRIVER=FAULTY_DRIVER,
            SMALL_SPAN=SMALL_SPAN,
            SMALL_BIT=SMALL_BIT,
        )

    def check(self, k: int, b: BufferInfo) -> str:
        """The comparison of output number k, or the printing of its numbers."""
        given = f"{k}, b[{self.pointer[b.id][1:]}], {CODES[b.dtype]}, {self.count(b)}"
        if k >= len(self.expected):
            return f"check({given}, nullptr, nullptr, 0, 0, 0);"
        e = self.expected[k]
        return f"bad += check({given}, at_{k}, want_{k}, {len(e.positions)}, {double_text(e.relative)}, {double_text(e.absolute)});"

    def fill_numbers(self) -> dict[str, int]:
        """Input of the caller -> its number, which decides its values; held inputs of `setup` have the same."""
        ports = zip(self.plan.input_buffers, self.plan.signature.inputs)
        inputs = [p.tensor for id, p in ports if self.info[id].kind == "input" and p.tensor not in self.module.constants]
        return {name: k for k, name in enumerate(inputs)}

    def memory(self, array: str, made: Mapping[str, str], numbers: Mapping[str, int]) -> list[str]:
        """Allocation of every buffer, filled or read; constants in `made` are those that setup has computed. `numbers`: of the
        inputs."""
        out = [f"void* {array}[{max(1, len(self.plan.buffers))}];"]
        port_of = {id: port.tensor for id, port in zip(self.plan.input_buffers, self.plan.signature.inputs)}
        for i, b in enumerate(self.plan.buffers):
            if b.parent:
                continue
            name = port_of.get(b.id, "")
            if b.kind == "constant" and name in made:
                out.append(f"{array}[{i}] = {made[name]};")
                continue
            out.append(f"{array}[{i}] = device_memory({max(1, self.count(b)) * b.dtype.itemsize});")
            if b.kind == "constant" or (b.kind == "input" and name in self.module.constants):
                offset, length = constant_places(self.module)[name]
                out.append(f"read_constant({array}[{i}], folder, {offset}, {length});")
            elif b.kind == "input":
                call = (
                    f"fill_codes({array}[{i}], {ONES[b.dtype]}" if b.dtype in ONES else f"fill({array}[{i}], {CODES[b.dtype]}"
                )
                out.append(f"{call}, {self.count(b)}, {numbers[name]});")
        for i, b in enumerate(self.plan.buffers):
            if b.parent:
                base = self.pointer[b.parent][1:]
                offset = 0 if b.offset is None else self.size(b.offset) * b.dtype.itemsize
                out.append(f"{array}[{i}] = (char*){array}[{base}] + {offset};")
        return out

    # -- launches --------------------------------------------------------------------------------
    def launches(self) -> list[str]:
        out: list[str] = []
        for instruction in self.plan.instructions:
            match instruction.op:
                case Launch():
                    out += self.launch(instruction.op)
                case Choose(cases=cases):
                    case_ = next(c for c in cases if all(is_met(x, self.sizes) for x in c.conditions))
                    for launch in case_.launches:
                        out += self.launch(launch)
                case Copy():
                    out += self.copy(instruction)
                case _:
                    raise fail(
                        "InvalidExecution",
                        "main.cu",
                        f"{type(instruction.op).__name__} is not a launch or a copy",
                        "run it with tatami, or compile for the CPU",
                    )
        return out

    def copy(self, instruction: Instruction) -> list[str]:
        source, target = instruction.inputs[0], instruction.outputs[0]
        length = self.count(self.info[target]) * self.info[target].dtype.itemsize
        i, j = self.pointer[target][1:], self.pointer[source][1:]
        return [f'must(cudaMemcpyAsync(b[{i}], b[{j}], {length}, cudaMemcpyDeviceToDevice), "copy");']

    def launch(self, op: Launch) -> list[str]:
        if op.kernel not in {u.symbol for u in self.source.units}:
            raise fail("InvalidExecution", "main.cu", f"kernel {op.kernel} has no CUDA text", "run it with tatami")
        grid = [max(1, self.size(g)) for g in op.grid] or [1]
        if any(self.size(g) == 0 for g in op.grid):
            return []
        args: list[str] = []
        maps: list[str] = []
        for a in op.args:
            match a:
                case Ptr(buffer=buffer):
                    args.append(f"Pointer{{b[{self.pointer[buffer][1:]}]}}")
                case SizeArg(value=value):
                    args.append(f"{self.size(value)}LL")
                case TensorMap():
                    args.append(f"map{len(maps)}")
                    maps.append(self.tensor_map(a, args[-1]))
                case _:
                    assert_never(a)
        text = _page("main_launch").fill(
            MAPS=maps,
            SHARED=op.shared_bytes if op.shared_bytes > 48 * 1024 else 0,
            KERNEL=op.kernel,
            GRID=", ".join(map(str, grid)),
            BLOCK=", ".join(map(str, op.block or (1,))),
            BYTES=op.shared_bytes,
            ARGUMENTS=", ".join(args),
        )
        return [text]

    def tensor_map(self, m: TensorMap, name: str) -> str:
        dtype = self.info[m.buffer].dtype
        dims = ", ".join(str(self.size(d)) for d in m.dims)
        strides = ", ".join(str(self.size(s)) for s in m.strides) or "0"
        box = ", ".join(map(str, m.box))
        walk = ""
        if m.window is not None:
            sides = ((*m.window.lower, *m.window.upper), m.window.steps)
            walk = ", Walk{" + ", ".join(f"{{{', '.join(map(str, x))}}}" for x in sides) + "}"
        return (
            f"const tt_tensor_map {name} = tensor_map(b[{self.pointer[m.buffer][1:]}], {'TT_TF32' if m.tf32 else CODES[dtype]}, {len(m.dims)}, "
            f"{{{dims}}}, {{{strides}}}, {{{box}}}, {m.swizzle}{walk});"
        )


def _page(name: str) -> Page:
    return page("tatami.cu", f"{name}.cu")
