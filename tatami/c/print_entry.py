"""The entry file of a Program in C: it calls the kernels wave by wave (design §3 execution; design §3 c).

    int64_t tatami_entry(buffers, sizes, offsets, arena, pool)
      buffers   inputs and outputs of `main` (Layouts.boundary), then the ConstPool (Layouts.constants)
      sizes     the size symbols of `main` (Layouts.symbols), then the number of threads
      offsets   the slots of `main` (frames), bytes from `arena`
    result      0, or fault code + 256 * instruction number (Layouts.first_instruction + position); FAULT_SIZES counts
                equations instead (Layouts.equations), and `tatami_sides` then has the values of both sides

A program that reads sizes from memory (Extent) works on a copy of its sizes, which has room for them after the threads.

`tatami_call` is the same with one argument: a block of sizes, offsets, arena and pool, and then the buffers.
`tatami_setup` is the same for `setup`, `tatami_setup_<part>` for a part of it (Layouts.setup_parts). Programs that are called are static functions, compiled once. A program with
Python steps has one function per segment, `tatami_segment_<program>_<segment>`, and a program that Python calls is
`tatami_program_<program>`; `tatami_turns` calls one repeatedly, as a loop. No name of a user reaches this text: programs and symbols are numbered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from tatami.c.print_turns import print_following
from tatami.c.size_text import size_text
from tatami.core.expr import ONE, Expr, product
from tatami.core.kernel import THREADS, Condition
from tatami.core.module import Module
from tatami.core.page import Page, page
from tatami.core.sizes.binding import equation_symbols
from tatami.execution.frames import Layouts
from tatami.execution.ir import (
    BufferInfo,
    Call,
    Choose,
    Copy,
    ExecutionPlan,
    Extent,
    Host,
    If,
    Instruction,
    Launch,
    Loop,
    Op,
    Ptr,
    SizeArg,
    launches,
)

FAULT_DEPTH = 4
"""Fault code of the entry: recursion too deep."""
FAULT_TRIP = 5
"""Fault code of the entry: a loop that ran another number of times than its scanned results have room for."""
FAULT_SIZES = 7
"""Fault code of the entry: a call with sizes that break an equation of the callee."""
FAULT_EXTENT = 9
"""Fault code of the entry: an integer of the data that is a size and negative; `tatami_sides` then has it."""
TURNS_BESIDE = 8
"""Minimum number of turns for loops to run in parallel: a turn takes some microseconds, waking a thread some ten."""
PART = 64
"""Maximum number of instructions per C function: compilers take more than linear time for one long function."""

_CALL = "EXPORT int64_t tatami_call(void* const* a) { return tatami_entry(a + 4, a[0], a[1], a[2], a[3]); }"
"""C text of the entry with one pointer instead of five, which takes a caller through ctypes half the time."""

PROGRAM_ARGUMENTS = "void* const* b, void* const* c, const int64_t* s, const int64_t* o, char* arena, tatami_pool* pool"
"""C parameters of a program's function."""
ENTRY_ARGUMENTS = "void* const* buffers, const int64_t* sizes, const int64_t* offsets, void* arena, tatami_pool* pool"
"""C parameters of an entry."""


def print_entry(execution: Module[ExecutionPlan], timed: bool = False) -> str:
    """The text of the entry file. Kernels are declared here and defined in the units.

    timed: the seconds spent in each instruction add up in `tatami_times`, by instruction number."""
    layouts = Layouts(execution)
    execution = layouts.module
    numbers = {name: k for k, name in enumerate(execution.programs)}
    kernels: dict[str, None] = {}
    for plan in execution.programs.values():
        for ins in plan.instructions:
            kernels.update(dict.fromkeys(launch.kernel for launch in launches(ins.op)))
    printers = [_Program(execution, layouts, numbers, name, timed) for name in execution.programs]
    loops = [ins.op for name in layouts.hosted for ins in execution.programs[name].instructions if isinstance(ins.op, Loop)]
    return _page("entry").fill(
        TIMED=timed,
        COUNT=max(1, sum(len(plan.instructions) for plan in execution.programs.values())),
        KERNELS=[f"int {k}(void* const* buffers, const int64_t* sizes, tatami_pool* pool);" for k in kernels],
        BESIDE=any(p.groups(begin, end) for p in printers for begin, end in p.parts()),
        EQUATIONS=bool(layouts.equations),
        PROTOTYPES=[f"static int64_t {f}({PROGRAM_ARGUMENTS});" for p in printers for f in p.functions],
        PROGRAMS=[line for p in printers for line in ("", *p.text())],
        EXPORTS=[line for p in printers for line in _exports(layouts, p)],
        TURNS=any(op.body not in layouts.hosted for op in loops),
        FOLLOWING=print_following(layouts),
    )


def _page(name: str) -> Page:
    return page("tatami.c", f"{name}.c")


def _exports(layouts: Layouts, p: _Program) -> list[str]:
    count = len(layouts.boundary(p.name))
    public: dict[str, str] = {}
    if p.name in layouts.hosted:
        public = {f"tatami_{f}": f for f in p.functions}
    else:
        if p.name == "setup":
            public = {f"tatami_setup_{j}": f for j, f in enumerate(p.functions)}
        elif p.name == "main":
            public["tatami_entry"] = p.functions[0]
        elif layouts.hosted:
            public[f"tatami_{p.functions[0]}"] = p.functions[0]
    out = [
        f"EXPORT int64_t {symbol}({ENTRY_ARGUMENTS}) {{\n"
        f"    return {function}(buffers, buffers + {count}, sizes, offsets, (char*)arena, pool);\n}}"
        for symbol, function in public.items()
    ]
    if p.name == "setup" and p.name not in layouts.hosted:
        calls = "".join(f"    if ((f = {symbol}(buffers, sizes, offsets, arena, pool))) return f;\n" for symbol in public)
        out.append(f"EXPORT int64_t tatami_setup({ENTRY_ARGUMENTS}) {{\n    int64_t f;\n{calls}    return 0;\n}}")
    return [*out, _CALL] if "tatami_entry" in public else out


class _Program:
    """The C functions of one program: one, or one per segment if Python runs between them."""

    def __init__(
        self, module: Module[ExecutionPlan], layouts: Layouts, numbers: dict[str, int], name: str, timed: bool
    ) -> None:
        self.timed = timed
        self.module = module
        self.layouts = layouts
        self.numbers = numbers
        self.name = name
        self.plan = module.programs[name]
        self.base = layouts.first_instruction(name)
        self.symbols = {s: f"s[{i}]" for i, s in enumerate((*layouts.symbols(name), THREADS, *layouts.extents(name)))}
        self.headers = layouts.headers(name)
        self.info = {b.id: b for b in self.plan.buffers}
        self.place: dict[str, str] = {b.id: f"b[{i}]" for i, b in enumerate(layouts.boundary(name))}
        self.place |= {b.id: f"(arena + o[{i}])" for i, b in enumerate(layouts.own(name))}
        pool = {tensor: f"c[{i}]" for i, tensor in enumerate(layouts.constants)}
        for id, port in zip(self.plan.input_buffers, self.plan.signature.inputs):
            if self.info[id].kind == "constant":
                self.place[id] = pool[port.tensor]
        k = numbers[name]
        stem = "segment" if name in layouts.hosted else "part" if name == "setup" else ""
        self.segments: Sequence[tuple[int, int]] = ((0, len(self.plan.instructions)),)
        if stem:
            self.segments = layouts.segments(name) if stem == "segment" else [p[:2] for p in layouts.setup_parts]
        self.functions = [f"{stem}_{k}_{j}" for j in range(len(self.segments))] if stem else [f"program_{k}"]

    def text(self) -> list[str]:
        out = [line for begin, end in self.parts() for group in self.groups(begin, end) for line in self.beside(group)]
        for function, (begin, end) in zip(self.functions, self.segments):
            read = len(self.layouts.extents(self.name))
            out += self.whole(f"{function}_sized" if read else function, begin, end)
            if read:
                count = len(self.symbols)
                of = {"NAME": function, "BODY": f"{function}_sized", "ARGUMENTS": PROGRAM_ARGUMENTS}
                out.append(_page("entry_sizes").fill(**of, COUNT=count, GIVEN=count - read))
        return out

    def whole(self, function: str, begin: int, end: int) -> list[str]:
        """The function of that name that runs the instructions [begin, end), after those that it calls."""
        if end - begin <= PART:
            return self.function(f"static int64_t {function}", begin, end, self.equations())
        out: list[str] = []
        parts = [(f"{function}_part_{i}", i, min(i + PART, end)) for i in range(begin, end, PART)]
        for name, first, last in parts:
            out += self.function(f"static __attribute__((noinline)) int64_t {name}", first, last)
        calls = [f"if ((f = {name}(b, c, s, o, arena, pool))) return f;" for name, _, _ in parts]
        values = {"NAME": function, "ARGUMENTS": PROGRAM_ARGUMENTS, "EQUATIONS": self.equations(), "CALLS": calls}
        out.append(_page("entry_parts").fill(**values))
        return out

    def parts(self) -> list[tuple[int, int]]:
        """(first, end) of the instructions of each C function."""
        return [(i, min(i + PART, end)) for begin, end in self.segments for i in range(begin, end, PART)]

    def groups(self, begin: int, end: int) -> list[list[int]]:
        """Groups of launches, or of loops, of one wave in [begin, end) that run in parallel; a single one is not a group."""
        waves: dict[tuple[int, bool], list[int]] = {}
        for i in range(begin, end):
            ins = self.plan.instructions[i]
            if ins.beside:
                waves.setdefault((ins.wave, isinstance(ins.op, Loop)), []).append(i)
        return [members for members in waves.values() if len(members) > 1]

    def beside(self, group: list[int]) -> list[str]:
        """A chunk function for the pool: item k is the k-th instruction. Kernels divide no work inside it, since the pool is
        busy. A loop is a function of its own before it."""
        loops = [i for i in group if isinstance(self.plan.instructions[i].op, Loop)]
        out = [line for i in loops for line in self.function(f"static int64_t loop_{self.base + i}", i, i + 1)]
        cases: list[str] = []
        for k, i in enumerate(group):
            op = self.plan.instructions[i].op
            if isinstance(op, Launch):
                lines = self.clocked(i, [self.launch(op, f"x->faults[{k}] = f | (INT64_C({self.base + i}) << 8)")])
            else:
                lines = [f"x->faults[{k}] = loop_{self.base + i}(b, c, s, o, arena, pool);"]
            cases += [f"case {k}: {{", *("    " + line for line in lines), "} break;"]
        return [*out, _page("entry_beside").fill(NUMBER=self.base + group[0], CASES=cases)]

    def run_beside(self, group: list[int]) -> list[str]:
        """The C lines that run a group; loops in parallel only if every thread gets the same number of them, and if turns take
        longer than waking threads."""
        first = self.plan.instructions[group[0]]
        if not isinstance(first.op, Loop):
            return self.in_pool(group)
        trip = f"*(const int64_t*){self.address(first.inputs[0])}"
        return [
            f"if (tatami_threads(pool) > 1 && {len(group)} % tatami_threads(pool) == 0 && {trip} >= {TURNS_BESIDE}) {{",
            *("    " + line for line in self.in_pool(group)),
            "} else {",
            "    int64_t f;",
            *(f"    if ((f = loop_{self.base + i}(b, c, s, o, arena, pool))) return f;" for i in group),
            "}",
        ]

    def in_pool(self, group: list[int]) -> list[str]:
        return [
            f"{{ int64_t faults[{len(group)}] = {{0}}; beside_t x = {{b, c, s, o, arena, pool, faults}};",
            f"    tatami_parallel_for(pool, {len(group)}, 1, beside_{self.base + group[0]}, &x);",
            f"    for (int k = 0; k < {len(group)}; ++k) if (faults[k]) return faults[k]; }}",
        ]

    def clocked(self, i: int, lines: list[str]) -> list[str]:
        if not self.timed:
            return lines
        return ["{ double started = now();", *lines, f"tatami_times[{self.base + i}] += now() - started; }}"]

    def equations(self, i: int = -1) -> list[str]:
        """Tests of a program's equations as soon as their sizes are known, before kernels that would read outside their
        operands if one failed: after instruction i, which reads sizes; -1: before anything else."""
        reads = {s: k for k, ins in enumerate(self.plan.instructions) if isinstance(ins.op, Extent) for s in ins.op.new_symbols}

        def latest(of: frozenset[str]) -> int:
            return max((reads.get(s, -1) for s in of), default=-1)

        return [
            f"if (differ({self.size(e.lhs)}, {self.size(e.rhs)})) return {FAULT_SIZES} | (INT64_C({k}) << 8);"
            for k, (program, e) in enumerate(self.layouts.equations)
            if program == self.name and latest(equation_symbols(e)) == i
        ]

    def function(self, head: str, begin: int, end: int, first: Sequence[str] = ()) -> list[str]:
        """One C function that runs the instructions [begin, end)."""
        out: list[str] = []
        wave = -1
        groups = {group[0]: group for group in self.groups(begin, end)}
        elsewhere = {i for group in groups.values() for i in group[1:]}
        for i in range(begin, end):
            if i in elsewhere:
                continue
            ins = self.plan.instructions[i]
            if ins.wave != wave:
                wave = ins.wave
                out.append(f"/* wave {wave} */")
            out += self.run_beside(groups[i]) if i in groups else self.clocked(i, self.instruction(i, ins))
        values = {"HEAD": head, "ARGUMENTS": PROGRAM_ARGUMENTS, "EQUATIONS": first, "INSTRUCTIONS": out}
        return [_page("entry_function").fill(**values)]

    # -- pieces ----------------------------------------------------------------------------------

    def size(self, e: Expr) -> str:
        """C text of an int64_t expression over the program's sizes."""
        return size_text(e, self.symbols)

    def address(self, id: str) -> str:
        """C text of a buffer's address; a slice is its parent plus an offset."""
        b = self.info[id]
        if not b.parent:
            return self.place[id]
        if b.offset is None or not b.offset.terms:
            return self.address(b.parent)
        return f"((char*){self.address(b.parent)} + {self.size(b.offset * b.dtype.itemsize)})"

    def bytes(self, b: BufferInfo) -> str:
        return self.size(b.elements * b.dtype.itemsize)

    def fault(self, i: int, code: str) -> str:
        return f"return {code} | (INT64_C({self.base + i}) << 8)"

    # -- instructions ----------------------------------------------------------------------------

    def instruction(self, i: int, ins: Instruction) -> list[str]:
        match ins.op:
            case Launch():
                return [self.launch(ins.op, self.fault(i, "f"))]
            case Choose(cases=cases):
                out: list[str] = []
                for k, case in enumerate(cases):
                    test = " && ".join(self.condition(c) for c in case.conditions)
                    head = "else " if k and not test else f"{'else ' if k else ''}if ({test or '1'}) "
                    out += [head + "{", *("    " + self.launch(launch, self.fault(i, "f")) for launch in case.launches), "}"]
                return out
            case Copy():
                return [
                    f"copy({self.address(ins.outputs[0])}, {self.address(ins.inputs[0])}, {self.bytes(self.info[ins.outputs[0]])});"
                ]
            case Extent(new_symbols=new):
                out = []
                for id, symbol in zip(ins.inputs, new, strict=True):
                    value = f"*(const int64_t*){self.address(id)}"
                    fault = f"{{ tatami_sides()[0] = {self.symbols[symbol]}; {self.fault(i, str(FAULT_EXTENT))}; }}"
                    out.append(f"((int64_t*)s){self.symbols[symbol].removeprefix('s')} = {value};")
                    out.append(f"if ({self.symbols[symbol]} < 0) {fault}")
                return [*out, *self.equations(i)]
            case Call(program=program):
                arguments = [self.address(n) for n in (*ins.inputs, *ins.outputs)]
                return self.call(i, ins, program, 0, arguments)
            case If(then=then, otherwise=otherwise):
                arguments = [self.address(n) for n in (*ins.inputs[1:], *ins.outputs)]
                return [
                    f"if (*(const unsigned char*){self.address(ins.inputs[0])}) {{",
                    *("    " + line for line in self.call(i, ins, then, 0, arguments)),
                    "} else {",
                    *("    " + line for line in self.call(i, ins, otherwise, 1, arguments)),
                    "}",
                ]
            case Loop():
                return self.loop(i, ins, ins.op)
            case Host() | Op():
                raise ValueError(f"{ins.op} runs from Python")
            case _:
                assert_never(ins.op)

    def launch(self, launch: Launch, on_fault: str) -> str:
        pointers = ", ".join(self.address(a.buffer) for a in launch.args if isinstance(a, Ptr))
        sizes = ", ".join(self.size(a.value) for a in launch.args if isinstance(a, SizeArg))
        arguments = f"(void*[]){{{pointers}}}" if pointers else "0"
        values = f"(const int64_t[]){{{sizes}}}" if sizes else "0"
        return f"{{ int64_t f = {launch.kernel}({arguments}, {values}, pool); if (f) {on_fault}; }}"

    def condition(self, c: Condition) -> str:
        parts: list[str] = []
        text = self.size(c.size)
        if c.divisor != 1:
            parts.append(f"{text} % {c.divisor} == 0")
        if c.low:
            parts.append(f"{text} >= {c.low}")
        if c.high:
            parts.append(f"{text} <= {c.high}")
        return " && ".join(parts) or "1"

    def call(self, i: int, ins: Instruction, program: str, which: int, arguments: list[str]) -> list[str]:
        """A call of a compiled program; `arguments` are the buffers of its interface."""
        header = self.headers[i]
        links = header + 1 + (1 + ins.op.carried if isinstance(ins.op, Loop) else 0)
        given: dict[str, Expr] = getattr(ins.op, "sizes", {})
        sizes = [self.size(given[s]) if s in given else "0" for s in self.layouts.symbols(program)]
        sizes.append(self.symbols[THREADS])
        pointers = f"(void*[]){{{', '.join(arguments)}}}" if arguments else "0"
        function = f"program_{self.numbers[program]}"
        return [
            f"if (!o[{links + which}]) {self.fault(i, str(FAULT_DEPTH))};",
            f"{{ int64_t f = {function}({pointers}, c, (const int64_t[]){{{', '.join(sizes)}}}, o + o[{links + which}], "
            f"arena + o[{header}], pool); if (f) return f; }}",
        ]

    def loop(self, i: int, ins: Instruction, op: Loop) -> list[str]:
        """A loop; carried values alternate between the results' buffers and a second set, scanned ones go to their row."""
        header = self.headers[i]
        n = op.carried
        trip, condition, *rest = ins.inputs
        first, captured = rest[:n], rest[n:]
        carried, scanned = ins.outputs[:n], ins.outputs[n:]
        rows = [self.info[name] for name in scanned]
        takes_condition = self.takes_condition(op, ins)
        arguments = ["it", *(["keep"] if takes_condition else []), *(f"now[{j}]" for j in range(n))]
        arguments += [*(self.address(name) for name in captured), "keep + 1", *(f"then[{j}]" for j in range(n))]
        for name, b in zip(scanned, rows):
            row = self.size(product(b.shape[1:]) * b.dtype.itemsize) if b.shape else self.size(ONE)
            arguments.append(f"((char*){self.address(name)} + *it * {row})")
        return (
            _page("entry_loop")
            .fill(
                TURN=header + 1,
                LIMIT=f"*(const int64_t*){self.address(trip)}" if trip else "INT64_MAX",
                SIZE=max(n, 1),
                FIRST=", ".join(self.address(x) for x in first) or "0",
                RESULTS=", ".join(self.address(x) for x in carried) or "0",
                SECOND=", ".join(f"arena + o[{header + 2 + j}]" for j in range(n)) or "0",
                START=f"*(const unsigned char*){self.address(condition)}" if condition else "1",
                ROWS=self.size(rows[0].shape[0]) if rows else "",
                FAULT=self.fault(i, str(FAULT_TRIP)),
                CALL=self.call(i, ins, op.body, 0, arguments),
                CARRY=[f"now[{j}] = then[{j}];" for j in range(n)],
                COPIES=[f"copy(results[{j}], now[{j}], {self.bytes(self.info[x])});" for j, x in enumerate(carried)],
            )
            .splitlines()
        )

    def takes_condition(self, op: Loop, ins: Instruction) -> bool:
        """True if the body has an input for the condition."""
        kinds = {b.id: b.kind for b in self.module.programs[op.body].buffers}
        ports = [x for x in self.module.programs[op.body].input_buffers if kinds[x] == "input"]
        return len(ports) == len(ins.inputs)
