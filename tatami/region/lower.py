"""From tiny + IndexBook + Partition to Regions in explicit form (spec 3 §6.7, spec 5 §3; D2.10).

    n7 = MUL(n5, n6); n8 = REDUCE(n7)      n5_r (m, k)     read n0[m, k]
                                      ->   n5   (m, n, k)  broadcast_in_dim n5_r, dims [0, 2]
                                           n7   (m, n, k)  mul n5, n6
                                           n8   (m, n)     reduce sum over k of n7

One let per base value under its tiny id, and one or more per movement between them, under the id of the movement. The rules of
`canonicalise` then fold all movement into reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from tatami.core.algebra.assumed import Assumed
from tatami.core.expr import Expr
from tatami.core.layout import ROW_MAJOR, Layout, MemRef
from tatami.core.module import Module, Origins
from tatami.indexbook.ir import IndexBook
from tatami.poly_view.ir import PolyView, Statement
from tatami.region.form.form_region import form_region
from tatami.region.form.keep_inside import keep_inside
from tatami.region.form.program_facts import ProgramFacts
from tatami.region.form.stored_values import choose_storage
from tatami.region.ir import Opaque, Param, Region, Step, Target
from tatami.region.ir import Program as RegionProgram
from tatami.region.partition_ir import Group, Partition
from tatami.tiny.ir import CallOp, InputOp, Node, Program, ResultOp


def lower(
    tiny: Module[Program],
    indexbook: Module[IndexBook],
    poly_view: Module[PolyView],
    partitions: Mapping[str, Partition],
) -> Module[RegionProgram]:
    """The program of Regions and steps for every program of the module, in explicit form."""
    programs: dict[str, RegionProgram] = {}
    origins: dict[str, Origins] = {}
    for name, program in tiny.programs.items():
        programs[name], origins[name] = lower_program(
            program, indexbook.programs[name], poly_view.programs[name], partitions[name]
        )
    return Module(programs, tiny.constants, origins)


def lower_program(
    program: Program, book: IndexBook, view: PolyView, partition: Partition, only: Collection[int] | None = None
) -> tuple[RegionProgram, dict[str, tuple[str, ...]]]:
    """Regions and steps of one program, and the tiny ids behind each Region and let. `only`: numbers of the groups that become
    Regions; None: all."""
    nodes = {n.id: n for n in program.nodes}
    statements = {s.value: s for s in view.statements}
    readers = _readers(program, view.statements)
    facts = ProgramFacts(
        program=program,
        nodes=nodes,
        book=book,
        statements=statements,
        edges={(e.producer, e.consumer): e for e in view.edges},
        patterns={p.value: p for p in view.patterns},
        readers=readers,
        writer=_writers(partition, readers),
        layouts=_layouts(program, nodes),
        symbols=_symbols(program),
        stored=choose_storage(program, book, statements, readers, partition),
        assumed=Assumed(program.signature.assumptions),
    )
    makers = _makers(readers, partition)
    body: list[Region | Step] = []
    origins: dict[str, tuple[str, ...]] = {}
    for k, group in enumerate(partition.groups):
        if only is not None and k not in only:
            continue
        call = next((v for v in group.values if isinstance(nodes[v].op, CallOp)), None)
        if call is not None:
            item: Region | Step = _call(f"r{k}", nodes[call], group, nodes, facts.layouts)
            origins[item.name] = group.values
        else:
            outside = {v: {""} if makers.get(v) == k else set() for v in group.values}
            own = msgspec.structs.replace(facts, readers={**readers, **outside})
            formed, made = form_region(own, f"r{k}", group.values)
            item = keep_inside(formed, facts.assumed)
            origins.update(made)
        body.append(item)
    by_tensor = {n.op.tensor_id: n.id for n in program.nodes if isinstance(n.op, InputOp)}
    inputs = tuple(by_tensor.get(port.tensor, f"in{k}") for k, port in enumerate(program.signature.inputs))
    return RegionProgram(program.signature, inputs, program.outputs, tuple(body)), origins


def _makers(readers: Mapping[str, set[str]], partition: Partition) -> dict[str, int]:
    """Number of the group that stores a value, for every value that some group reads without computing it. A value that all
    its readers recompute (a coordinate, a small constant) is not stored."""
    groups = [frozenset(g.values) for g in partition.groups]
    held: dict[str, list[int]] = {}
    for k, group in enumerate(partition.groups):
        for v in group.values:
            held.setdefault(v, []).append(k)
    out: dict[str, int] = {}
    for v, places in held.items():
        for r in readers.get(v, set()):
            if r not in held or any(v not in groups[k] for k in held[r]):
                out[v] = places[0]
    return out


def _readers(program: Program, statements: tuple[Statement, ...]) -> dict[str, set[str]]:
    """Ids that read each value from memory; "" stands for a program output."""
    out: dict[str, set[str]] = {}
    for s in statements:
        for access in s.reads:
            out.setdefault(access.tensor, set()).add(s.value)
    for node in program.nodes:
        if isinstance(node.op, CallOp):
            for v in node.src:
                out.setdefault(v, set()).add(node.id)
    for v in program.outputs:
        out.setdefault(v, set()).add("")
    return out


def _writers(partition: Partition, readers: Mapping[str, set[str]]) -> dict[str, str]:
    """Name of the first Region that computes a value, for every value that a reader outside its groups needs. A repeated value
    (a cast, a coordinate) that every reader computes again is stored nowhere."""
    home: dict[str, list[int]] = {}
    for k, group in enumerate(partition.groups):
        for v in group.values:
            home.setdefault(v, []).append(k)
    out = {}
    for v, groups in home.items():
        if any(not set(home.get(reader, (-1,))) <= set(groups) for reader in readers.get(v, ())):
            out[v] = f"r{groups[0]}"
    return out


def _layouts(program: Program, nodes: Mapping[str, Node]) -> dict[str, Layout]:
    by_tensor = {n.op.tensor_id: v for v, n in nodes.items() if isinstance(n.op, InputOp)}
    out = {by_tensor[p.tensor]: p.layout for p in program.signature.inputs if p.layout is not None and p.tensor in by_tensor}
    for port, v in zip(program.signature.outputs, program.outputs):
        if port.layout is not None:
            out.setdefault(v, port.layout)
    return out


def _symbols(program: Program) -> frozenset[str]:
    from tatami.core.algebra.visit import free_vars

    sizes: set[Expr] = {size for n in program.nodes for size in n.shape}
    found = (n.op.new_symbols for n in program.nodes if isinstance(n.op, CallOp))
    return frozenset().union(*map(free_vars, sizes), *found)


def _call(name: str, node: Node, group: Group, nodes: Mapping[str, Node], layouts: Mapping[str, Layout]) -> Region | Step:
    """An opaque Region for a routine, or a step for any other call."""
    op = node.op
    assert isinstance(op, CallOp)
    ids = {n.op.index: v for v in group.values if isinstance((n := nodes[v]).op, ResultOp)}
    results = [(ids.get(k, f"{node.id}_{k}"), r) for k, r in enumerate(op.results)]
    if op.kind == "routine":
        sources = tuple(dict.fromkeys(node.src))
        return Region(
            name=name,
            iters=(),
            reduce_axes=(),
            inputs=tuple(Param(v, MemRef(nodes[v].dtype, nodes[v].shape, layout=layouts.get(v, ROW_MAJOR))) for v in sources),
            outputs=tuple(Target(v, MemRef(r.dtype, r.shape)) for v, r in results),
            lets=(),
            yields=(),
            opaque=Opaque(op.targets[0], dict(op.attrs), node.src if node.src != sources else (), op.code),
        )
    return Step(
        name=name,
        kind=op.kind,
        targets=op.targets,
        inputs=node.src,
        outputs=tuple(Param(v, MemRef(r.dtype, r.shape)) for v, r in results),
        sizes=dict(op.sizes),
        new_symbols=op.new_symbols,
        attrs=dict(op.attrs),
    )
