"""The description of a program for a library without Python: `library.c` in the folder library_text runs what this file prints.

Sizes of a call follow from the shapes of its inputs (`bind_text`), and its memory from its sizes: each program is a table of
its buffers, of which library_text/arena.c makes the offsets when sizes are bound. No name of a user is an identifier; names
of ports and nodes are strings, escaped byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tatami.c.bind_text import bind_text
from tatami.c.size_text import size_text
from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.faults.call_depth import most_calls
from tatami.core.kernel import THREADS
from tatami.core.numbers.compared import escaped
from tatami.core.page import page
from tatami.core.signature import Input, Output
from tatami.core.sizes.binding import bind_sizes
from tatami.core.sizes.conditions import equation_text
from tatami.execution.frames import MAX_SLOTS, Layouts, callees, header_slots
from tatami.execution.ir import Instruction, Loop

_CODES = {d: k for k, d in enumerate(DType)}
"""Type of an element -> its number in model.h: the order of DType."""


@dataclass(frozen=True)
class Constants:
    """The file constants.bin without its header. `offsets`: constant of the module -> its first byte; `size`: bytes of all."""

    offsets: dict[str, int]
    size: int
    digest: bytes
    linked: bool


@dataclass(frozen=True)
class CpuBit:
    """An instruction set that code needs: a bit of cpuid, and bits of XCR0 for the registers that it uses."""

    name: str
    leaf: int
    subleaf: int
    register: int
    bit: int
    state: int


def print_library(layouts: Layouts, constants: Constants, needs: Sequence[CpuBit], step_name: Callable[[str, str], str]) -> str:
    """The C text that describes the programs of `layouts`, of which none has Python steps. `step_name(program, name)`: what a
    fault calls an instruction. Raises UnboundSymbol, RecursionDepth."""
    return _Library(layouts, constants, needs, step_name).text()


class _Library:
    def __init__(
        self, layouts: Layouts, constants: Constants, needs: Sequence[CpuBit], step_name: Callable[[str, str], str]
    ) -> None:
        self.layouts = layouts
        self.constants = constants
        self.needs = needs
        self.step_name = step_name
        self.programs = layouts.module.programs
        self.numbers = {name: k for k, name in enumerate(self.programs)}
        self.main = self.programs["main"]
        self.symbols = {s: f"s[{k}]" for k, s in enumerate(layouts.symbols("main"))}
        self.slots: dict[tuple[str, int], int] = {}

    def text(self) -> str:
        inputs = self.inputs()
        return page("tatami.c", "library.c").fill(
            SETUP="setup" in self.programs,
            LINKED=self.constants.linked,
            TABLES=[*self.ports(inputs), *self.named(), *self.pool(), *self.cpu(), *self.program_tables()],
            SIZES=[line for name in self.programs for line in self.size_functions(name)],
            BIND=bind_text(self.main.signature, inputs, self.symbols),
            RESULTS=self.results(),
            FIELDS=self.fields(inputs),
        )

    # -- ports -----------------------------------------------------------------------------------

    def inputs(self) -> list[Input]:
        """The inputs that a caller passes."""
        kinds = {b.id: b.kind for b in self.main.buffers}
        ports = zip(self.main.input_buffers, self.main.signature.inputs)
        return [p for id, p in ports if kinds[id] == "input"]

    def ports(self, inputs: Sequence[Input]) -> list[str]:
        outputs = self.main.signature.outputs
        kinds = {b.id: b.kind for b in self.main.buffers}
        position = {id: k for k, id in enumerate(i for i in self.main.input_buffers if kinds[i] == "input")}
        updates = [position.get(id, -1) for id in self.main.output_buffers]
        of: tuple[tuple[str, Sequence[Input | Output]], ...] = (("input", inputs), ("output", outputs))
        shapes = [
            _table(f"static const int64_t {name}_shape_{k}[]", [_fixed(s) for s in port.shape])
            for name, ports in of
            for k, port in enumerate(ports)
        ]
        return [
            *shapes,
            _table("static const tatami_model_port inputs[]", [_port("input", k, p, -1) for k, p in enumerate(inputs)]),
            _table(
                "static const tatami_model_port outputs[]", [_port("output", k, p, updates[k]) for k, p in enumerate(outputs)]
            ),
        ]

    def results(self) -> list[str]:
        sizes = [size for port in self.main.signature.outputs for size in port.shape]
        return [f"to[{k}] = {size_text(size, self.symbols)};" for k, size in enumerate(sizes)]

    # -- names for messages ----------------------------------------------------------------------

    def named(self) -> list[str]:
        steps = [self.step_name(name, ins.debug_name) for name, plan in self.programs.items() for ins in plan.instructions]
        equations = [equation_text(e) for _, e in self.layouts.equations]
        return [
            _table("static const char* const steps[]", [escaped(s) for s in steps]),
            _table("static const char* const equations[]", [escaped(e) for e in equations]),
        ]

    def cpu(self) -> list[str]:
        rows = [f"{{{escaped(b.name)}, {b.leaf}, {b.subleaf}, {b.register}, {b.bit}, {b.state}}}" for b in self.needs]
        return [_table("static const tatami_cpu_bit cpu_bits[]", rows)]

    # -- constants -------------------------------------------------------------------------------

    def pool(self) -> list[str]:
        made = self.made()
        number = {name: k for k, name in enumerate(self.layouts.constants)}
        rows = []
        for name in self.layouts.constants:
            if name in self.constants.offsets:
                rows.append(f"{{{self.constants.offsets[name]}, {self.layouts.module.constants[name].nbytes}}}")
            else:
                rows.append(f"{{-1, {made[name]}}}")
        outputs = [f"{{{bytes}, {number.get(name, -1)}}}" for name, bytes in made.items()]
        return [
            _table("static const tatami_constant constants[]", rows),
            _table("static const tatami_made made[]", outputs),
            _table("static const int64_t setup_sizes[]", [str(v) for v in self.setup_sizes().values()]),
        ]

    def setup_sizes(self) -> dict[str, int]:
        """Symbols of `setup`, which the shapes of constants decide."""
        if "setup" not in self.programs:
            return {}
        shapes = {n: t.shape for n, t in self.layouts.module.constants.items()}
        bound = bind_sizes(self.programs["setup"].signature, shapes)
        return {s: bound[s] for s in self.layouts.symbols("setup")}

    def made(self) -> dict[str, int]:
        """Output of `setup` -> bytes, in the order of its boundary."""
        plan = self.programs.get("setup")
        if plan is None:
            return {}
        info = {b.id: b for b in plan.buffers}
        sizes = self.setup_sizes()
        return {
            port.tensor: int(evaluate(info[id].elements, sizes)) * port.dtype.itemsize
            for id, port in zip(plan.output_buffers, plan.signature.outputs)
            if info[id].kind == "output"
        }

    # -- memory of programs ----------------------------------------------------------------------

    def places(self, program: str) -> tuple[list[int], list[list[int]]]:
        """(own buffer -> its place, place -> the buffers that take each other's memory, the first one first)."""
        own = self.layouts.own(program)
        position = {b.id: k for k, b in enumerate(own)}
        home = list(range(len(own)))
        for k in sorted(home, key=lambda k: own[k].first_use):
            if own[k].in_place_of in position:
                home[k] = home[position[own[k].in_place_of]]
        kept = sorted(set(home))
        groups = [sorted((k for k in range(len(own)) if home[k] == h), key=lambda k: own[k].first_use) for h in kept]
        return [kept.index(h) for h in home], groups

    def calls(self, program: str) -> list[Instruction]:
        return [self.programs[program].instructions[i] for i in self.layouts.headers(program)]

    def program_tables(self) -> list[str]:
        out: list[str] = []
        for k, name in enumerate(self.programs):
            count = len(self.calls(name))
            out.append(f"static void bytes_{k}(const int64_t* s, int64_t* to);")
            out += [f"static void callee_{k}_{j}(const int64_t* s, int32_t which, int64_t* to);" for j in range(count)]
            places, groups = self.places(name)
            out.append(_table(f"static const int32_t waves_{k}[][2]", self.waves(name, groups)))
            out.append(_table(f"static const int32_t places_{k}[]", [str(p) for p in places]))
            out.append(_table(f"static const tatami_call_site calls_{k}[]", self.call_sites(name)))
        rows = [self.program_row(k, name) for k, name in enumerate(self.programs)]
        return [*out, _table("static const tatami_program programs[]", rows)]

    def waves(self, program: str, groups: Sequence[Sequence[int]]) -> list[str]:
        plan, own = self.programs[program], self.layouts.own(program)
        wave = [ins.wave for ins in plan.instructions]
        ends = [(own[g[0]].first_use, own[g[-1]].last_use) for g in groups]
        return [f"{{{wave[first]}, {wave[last]}}}" if first >= 0 else "{0, 0}" for first, last in ends]

    def call_sites(self, program: str) -> list[str]:
        rows = []
        for j, ins in enumerate(self.calls(program)):
            numbers = [self.numbers[c] for c in callees(ins)]
            pair = ", ".join(str(n) for n in (*numbers, 0)[:2])
            carried = ins.op.carried if isinstance(ins.op, Loop) else -1
            rows.append(f"{{callee_{self.numbers[program]}_{j}, {len(numbers)}, {{{pair}}}, {carried}, {ins.wave}}}")
        return rows

    def program_row(self, k: int, program: str) -> str:
        calls = self.calls(program)
        values = len(self.places(program)[1]) + sum(ins.op.carried for ins in calls if isinstance(ins.op, Loop))
        counts = (len(self.layouts.symbols(program)), len(self.layouts.own(program)), len(self.places(program)[1]))
        numbers = ", ".join(map(str, (*counts, len(calls), values)))
        return f"{{bytes_{k}, waves_{k}, places_{k}, calls_{k}, {numbers}}}"

    def size_functions(self, program: str) -> list[str]:
        """The functions of `program_tables`, in C."""
        number = self.numbers[program]
        plan, own = self.programs[program], self.layouts.own(program)
        info = {b.id: b for b in plan.buffers}
        symbols = {s: f"s[{k}]" for k, s in enumerate((*self.layouts.symbols(program), THREADS))}
        buffers = [own[g[0]] for g in self.places(program)[1]]
        dead = {b.id for b in buffers if b.first_use < 0}
        for ins in self.calls(program):
            if isinstance(ins.op, Loop):
                buffers += [info[id] for id in ins.outputs[: ins.op.carried]]
        out = [f"static void bytes_{number}(const int64_t* s, int64_t* to) {{", "    (void)s, (void)to;"]
        for k, b in enumerate(buffers):
            text = "0" if b.id in dead else size_text(b.elements * b.dtype.itemsize, symbols)
            out.append(f"    to[{k}] = {text};")
        out.append("}")
        for j, ins in enumerate(self.calls(program)):
            out += self.callee_function(f"callee_{number}_{j}", ins, symbols)
        return out

    def callee_function(self, name: str, ins: Instruction, symbols: dict[str, str]) -> list[str]:
        given: dict[str, Expr] = getattr(ins.op, "sizes", {})
        out = [f"static void {name}(const int64_t* s, int32_t which, int64_t* to) {{", "    (void)s, (void)to;"]
        for which, callee in enumerate(callees(ins)):
            out.append(f"    if (which == {which}) {{")
            for k, symbol in enumerate(self.layouts.symbols(callee)):
                out.append(f"        to[{k}] = {size_text(given[symbol], symbols) if symbol in given else '0'};")
            out.append("    }")
        return [*out, "}"]

    def slot_count(self, program: str, depth: int = 0) -> int:
        """Number of slots of a program, with those of its callees up to the greatest depth."""
        key = (program, depth)
        if key not in self.slots:
            count = len(self.layouts.own(program))
            for ins in self.calls(program):
                count += header_slots(ins)
                count += sum(self.slot_count(c, depth + 1) for c in callees(ins)) if depth < most_calls() else 0
            if count > MAX_SLOTS:
                why = f"its calls unroll to more than {MAX_SLOTS} buffers"
                raise fail("RecursionDepth", program, why, "call itself fewer times per run")
            self.slots[key] = count
        return self.slots[key]

    # -- the whole -------------------------------------------------------------------------------

    def fields(self, inputs: Sequence[Input]) -> list[str]:
        outputs = self.main.signature.outputs
        has_setup = "setup" in self.programs
        values: dict[str, object] = {
            "inputs": "inputs",
            "outputs": "outputs",
            "input_count": len(inputs),
            "output_count": len(outputs),
            "output_axes": sum(len(p.shape) for p in outputs),
            "symbols": len(self.symbols),
            "constant_count": len(self.layouts.constants),
            "made_count": len(self.made()),
            "programs_count": len(self.programs),
            "step_count": sum(len(p.instructions) for p in self.programs.values()),
            "setup": self.numbers.get("setup", -1),
            "main": self.numbers["main"],
            "main_slots": self.slot_count("main"),
            "setup_slots": self.slot_count("setup") if has_setup else 0,
            "setup_sizes": "setup_sizes",
            "programs": "programs",
            "constants": "constants",
            "made": "made",
            "steps": "steps",
            "equations": "equations",
            "cpu": "cpu_bits",
            "cpu_count": len(self.needs),
            "file_bytes": self.constants.size,
            "digest": f"{{{', '.join(map(str, self.constants.digest))}}}",
            "linked": "tatami_linked_constants" if self.constants.linked else "0",
            "bind": "bind",
            "results": "results",
            "set_up": "tatami_setup" if has_setup else "0",
        }
        return [f".{name} = {value}," for name, value in values.items()]


def _fixed(size: Expr) -> str:
    number = size.as_int()
    return "-1" if number is None else str(number)


def _port(kind: str, k: int, port: Input | Output, updates: int) -> str:
    alignment = max(port.alignment, port.dtype.itemsize)
    row = (
        escaped(port.tensor),
        f"{kind}_shape_{k}",
        len(port.shape),
        _CODES[port.dtype],
        port.dtype.itemsize,
        alignment,
        updates,
    )
    return f"{{{', '.join(map(str, row))}}}"


def _table(head: str, rows: Sequence[str]) -> str:
    """A C array; one without rows has a row of zeros, since C has no empty array."""
    zero = "{0}" if "tatami_" in head or "[2]" in head else "0"
    return f"{head} = {{\n{''.join(f'    {row},{chr(10)}' for row in rows or [zero])}}};"
