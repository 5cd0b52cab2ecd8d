"""Order: the dependences of each instruction, its wave, and the linear order (spec 1 "Program", D2.14).

Wave = the longest chain of dependences before an instruction. The linear order is by wave, then by position, so it
is total and deterministic. Collectives begin in the order of their numbers, which is the same in all processes; what an
exchange needs comes first, what needs its result comes after everything that does not, so that exchanges overlap with work.
True dependences go by buffer name, slices included; writes to an input (updates), and to a buffer in another's place, come
after every read of the old value.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import assert_never

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.expr import ZERO, Expr
from tatami.execution.ir import (
    UNORDERED,
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
    Operation,
    SizeArg,
    TensorMap,
    is_collective,
    is_exchange_of_reference,
)
from tatami.frontend.ir import Node
from tatami.frontend.operation import attributes


def roots(plan: ExecutionPlan) -> dict[str, str]:
    """The buffer at the end of each chain of parents. A broken or circular chain ends where it breaks."""
    info = {b.id: b for b in plan.buffers}
    out: dict[str, str] = {}
    for b in plan.buffers:
        chain: list[str] = []
        name = b.id
        while name not in out and info[name].parent in info and name not in chain:
            chain.append(name)
            name = info[name].parent
        root = out.get(name, name)
        for link in (*chain, name):
            out[link] = root
    return out


def placed(info: Mapping[str, BufferInfo], name: str) -> tuple[str, Expr]:
    """(the whole buffer that `name` lies in, its first element there)."""
    start = ZERO
    while info[name].parent:
        start, name = start + (info[name].offset or ZERO), info[name].parent
    return name, start


def operation_sizes(op: Operation) -> tuple[Expr, ...]:
    """Size expressions that an operation evaluates, except extents of buffers."""
    match op:
        case Launch(args=args, grid=grid):
            sizes = [a.value for a in args if isinstance(a, SizeArg)]
            for a in args:
                if isinstance(a, TensorMap):
                    sizes += [*a.dims, *a.strides]
            return (*sizes, *grid)
        case Choose(cases=cases):
            return tuple(
                e
                for c in cases
                for e in (*(k.size for k in c.conditions), *(s for launch in c.launches for s in operation_sizes(launch)))
            )
        case Call(sizes=named) | If(sizes=named) | Loop(sizes=named):
            return tuple(named.values())
        case Host() | Extent() | Copy() | Op():
            return ()
        case _:
            assert_never(op)


def operation_symbols(op: Operation) -> tuple[str, ...]:
    """Size symbols that a run of the operation gives a value."""
    match op:
        case Host(new_symbols=new) | Call(new_symbols=new) | If(new_symbols=new) | Loop(new_symbols=new) | Op(new_symbols=new):
            return new
        case Extent(new_symbols=new):
            return new
        case Launch() | Choose() | Copy():
            return ()
        case _:
            assert_never(op)


def dependences(plan: ExecutionPlan) -> list[list[int]]:
    """For each instruction the positions of those that have to be complete before it, sorted."""
    info = {b.id: b for b in plan.buffers}
    root = roots(plan)
    writers: dict[str, list[int]] = {}
    written_in_root: dict[str, list[int]] = {}
    owner: dict[str, int] = {}
    for i, ins in enumerate(plan.instructions):
        for name in ins.outputs:
            writers.setdefault(name, []).append(i)
            written_in_root.setdefault(root.get(name, name), []).append(i)
        for symbol in operation_symbols(ins.op):
            owner[symbol] = i
    successor = {b.in_place_of: b.id for b in plan.buffers if b.in_place_of}
    slices = _slices(plan)
    before: list[set[int]] = [set() for _ in plan.instructions]
    for i, ins in enumerate(plan.instructions):
        for name in ins.inputs:
            if not name:
                continue
            base = root.get(name, name)
            if base in info and info[base].kind == "input" and name not in slices and name not in _updated(info, writers, name):
                for w in written_in_root.get(base, ()):
                    if w != i:
                        before[w].add(i)
                continue
            for alias in (name, *_ancestors(info, name), *slices.get(name, ())):
                before[i].update(w for w in writers.get(alias, ()) if w != i)
            for w in writers.get(successor.get(name, ""), ()):
                if w != i:
                    before[w].add(i)
        if owner:
            for symbol in _symbols(info, ins):
                if symbol in owner and owner[symbol] != i:
                    before[i].add(owner[symbol])
    return [sorted(b) for b in before]


def _updated(info: dict[str, BufferInfo], writers: dict[str, list[int]], name: str) -> tuple[str, ...]:
    """(`name`,) if it is the updated value of an input, a slice that an instruction writes; else ()."""
    return (name,) if info[name].parent and name in writers else ()


def _ancestors(info: dict[str, BufferInfo], name: str) -> list[str]:
    out: list[str] = []
    while name in info and info[name].parent and info[name].parent not in out:
        name = info[name].parent
        if name in info and info[name].kind == "input":
            break
        out.append(name)
    return out


def _slices(plan: ExecutionPlan) -> dict[str, list[str]]:
    """All slices of each buffer that is not an input, at any depth."""
    info = {b.id: b for b in plan.buffers}
    out: dict[str, list[str]] = {}
    for b in plan.buffers:
        if b.parent:
            for above in _ancestors(info, b.id):
                out.setdefault(above, []).append(b.id)
    return out


def _symbols(info: dict[str, BufferInfo], ins: Instruction) -> set[str]:
    out: set[str] = set()
    for name in (*ins.inputs, *ins.outputs):
        if name in info:
            out |= free_vars(info[name].elements).union(*map(free_vars, info[name].shape))
    for size in operation_sizes(ins.op):
        out |= free_vars(size)
    return out | _named_in_attributes(ins.op)


def _named_in_attributes(op: Operation) -> set[str]:
    """Symbols that the attributes of a reference operation name: `size` of a symbol has no extent that does."""
    if not isinstance(op, Op):
        return set()
    from tatami.frontend.ops import operation

    node = Node(op.name, op.name, (), (), op.attrs)
    try:
        given = attributes(operation(node), node)
    except TatamiError:
        return set()  # `verify` reports it
    found: set[str] = set()
    stack: list[object] = [given]
    while stack:
        match stack.pop():
            case Expr() as e:
                found |= free_vars(e)
            case msgspec.Struct() as s:
                stack.extend(getattr(s, name) for name in s.__struct_fields__)
            case tuple() | list() as items:
                stack.extend(items)
    return found


def waves(plan: ExecutionPlan) -> list[int]:
    """The wave of each instruction. Raises CyclicGraph if the dependences form a circle."""
    before = dependences(plan)
    exchanges = {i for i, ins in enumerate(plan.instructions) if is_collective(ins.op) or is_exchange_of_reference(ins.op)}
    if not exchanges:
        return _longest_chains(plan, before)
    reads = [set(b) for b in before]
    first = sorted(exchanges, key=lambda i: (_number(plan.instructions[i]), i))
    for one, following in pairwise(first):
        before[following] = sorted({*before[following], one})
    chain = _longest_chains(plan, before)
    order = sorted(range(len(before)), key=lambda i: chain[i])
    depth = [0] * len(before)
    """Number of exchanges that have to end one after another before each instruction."""
    for i in order:
        depth[i] = max((depth[j] + (j in exchanges and j in reads[i]) for j in before[i]), default=0)
    begins = set(exchanges)
    """Instructions that an exchange of the same depth needs, and these: they come before the others of their depth."""
    for i in reversed(order):
        if i in begins:
            begins.update(j for j in before[i] if depth[j] == depth[i])
    stage = [2 * d + (i not in begins) for i, d in enumerate(depth)]
    wave = [0] * len(before)
    end = 0
    for number in range(max(stage) + 1):
        begin = end
        for i in (i for i in order if stage[i] == number):
            wave[i] = max([begin, *(wave[j] + 1 for j in before[i])])
            end = max(end, wave[i] + 1)
    return wave


def _number(ins: Instruction) -> int:
    """The place of a collective among those of its program."""
    number = ins.op.attrs.get("number", 0) if isinstance(ins.op, Host | Op) else 0
    return number if isinstance(number, int) else 0


def _longest_chains(plan: ExecutionPlan, before: list[list[int]]) -> list[int]:
    """The length of the longest chain of instructions before each. Raises CyclicGraph."""
    after: list[list[int]] = [[] for _ in before]
    missing = [len(b) for b in before]
    for i, needed in enumerate(before):
        for j in needed:
            after[j].append(i)
    ready = [i for i, n in enumerate(missing) if n == 0]
    wave = [0] * len(before)
    done = 0
    while ready:
        following: list[int] = []
        for i in ready:
            done += 1
            for j in after[i]:
                wave[j] = max(wave[j], wave[i] + 1)
                missing[j] -= 1
                if missing[j] == 0:
                    following.append(j)
        ready = following
    if done < len(before):
        stuck = next(i for i, n in enumerate(missing) if n > 0)
        raise fail(
            "CyclicGraph",
            plan.instructions[stuck].debug_name or f"instruction {stuck}",
            "the instruction waits, through others, for its own result",
            "break the circle: give one of the buffers another writer",
        )
    return wave


def order(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan with waves, its linear order, and first and last uses. Waves of a document are kept if all are given."""
    given = [i.wave for i in plan.instructions]
    wave = given if all(w != UNORDERED for w in given) else waves(plan)
    positions = sorted(range(len(wave)), key=lambda i: wave[i])
    instructions = tuple(msgspec.structs.replace(plan.instructions[i], wave=wave[i]) for i in positions)
    plan = msgspec.structs.replace(plan, instructions=instructions)
    return msgspec.structs.replace(plan, buffers=with_uses(plan))


def with_uses(plan: ExecutionPlan) -> tuple[BufferInfo, ...]:
    """The buffers with the first and last instruction that uses each arena buffer, through its slices too."""
    info = {b.id: b for b in plan.buffers}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for i, ins in enumerate(plan.instructions):
        for name in (*ins.inputs, *ins.outputs):
            if name in info:
                for alias in (name, *_ancestors(info, name)):
                    first.setdefault(alias, i)
                    last[alias] = i
    return tuple(
        msgspec.structs.replace(
            b,
            first_use=first.get(b.id, -1) if b.kind == "arena" else -1,
            last_use=last.get(b.id, -1) if b.kind == "arena" else -1,
        )
        for b in plan.buffers
    )


def execution_order(plan: ExecutionPlan) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...], int], ...]:
    """Spec 1's view of a Program: (kernel or step, inputs, outputs, wave id) in linear order."""
    return tuple((operation_name(i.op), i.inputs, i.outputs, i.wave) for i in plan.instructions)


def operation_name(op: Operation) -> str:
    """The name of an operation in dumps: its kernels, or its kind and program."""
    match op:
        case Launch(kernel=kernel):
            return kernel
        case Choose(cases=cases):
            return "|".join("+".join(launch.kernel for launch in c.launches) for c in cases)
        case Call(program=program):
            return f"call {program}"
        case If(then=then, otherwise=otherwise):
            return f"if {then} else {otherwise}"
        case Loop(body=body):
            return f"loop {body}"
        case Host(routine=routine):
            return f"host {routine}"
        case Extent():
            return "extent"
        case Copy():
            return "copy"
        case Op(name=name):
            return name
        case _:
            assert_never(op)
