"""The report of a compilation: fusion, plans, copies, host steps. Text from the stages, nothing recomputed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tatami.compilation import Compilation
from tatami.core.cost import estimate, time_estimate
from tatami.core.kernel import condition_text
from tatami.core.module import Module, names_text
from tatami.core.sizes.conditions import equation_text, is_condition
from tatami.core.target import Target
from tatami.execution.ir import Extent
from tatami.node_names import follow, natural, node_names
from tatami.plan.block_reduces.block_sums import reductions_of_products
from tatami.plan.show import name_plan, show_budget, show_estimate, show_layouts
from tatami.region.ir import Region, Step
from tatami.report.copies import moves
from tatami.stages import UP_TO_REGION, UP_TO_TINY
from tatami.tiny.ir import MOVEMENT

if TYPE_CHECKING:
    from tatami.poly_view.ir import PolyView

PRODUCTS = ("matmul", "linear", "gemm", "conv")
"""Operations that may sum integers or keep 8 bits because their operands are dequantised (frontend/rewrites/dequantised.py)."""


@dataclass(frozen=True)
class KernelOrigin:
    """One Region with the importer's names of all nodes fused into it."""

    program: str
    name: str
    kind: str
    sources: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    """Names of these nodes in the graph."""


def kernel_origins(compilation: Compilation) -> list[KernelOrigin]:
    """The kernels of a compilation, in order, with the nodes of the model that each computes."""
    regions: Module[Any] = compilation.stages["region"]
    kinds = {(p, f.region): f.kind for p, facts in compilation.stages["poly_core"].programs.items() for f in facts.regions}
    out = []
    for program, body in regions.programs.items():
        for item in body.body:
            kind = kinds.get((program, item.name), item.kind if isinstance(item, Step) else "")
            nodes = sorted(node_names(compilation.stages.get_made, program, item), key=natural)
            out.append(KernelOrigin(program, item.name, kind, trace(compilation, program, item), tuple(nodes)))
    return out


def trace(compilation: Compilation, program: str, item: Region | Step) -> tuple[str, ...]:
    """The importer's own names of everything that a Region computes; ids of the first stage that was made if that is a later
    one."""
    ids: Iterable[str] = node_names(compilation.stages.get_made, program, item)
    made = compilation.stages.get_made
    value = next((v for name in ("filters", "linked") if (v := made(name)) is not None), made("frontend"))
    if value is not None:
        origins = value.origins.get(program) or value.origins.get("main", {})
        ids = follow(ids, origins) if origins else ids
    return tuple(sorted(ids, key=natural))


def explain(compilation: Compilation) -> str:
    """The whole report as text, ending in a line break."""
    return "\n".join(_report(compilation)) + "\n"


def _sizes(compilation: Compilation) -> Iterator[str]:
    """Equations and conditions on sizes that each call checks; all others were proved when the model was read."""
    made = compilation.stages.get_made
    given = made("frontend") or made("tiny")
    equations = given.main.signature.assumptions if given is not None and "main" in given.programs else ()
    if not equations:
        return
    conditions = [e for e in equations if is_condition(e)]
    equations = tuple(e for e in equations if not is_condition(e))
    if conditions:
        yield ""
        yield "conditions of sizes, checked at each call"
        yield from (f"  {equation_text(e)}  {e.at}" for e in conditions)
    if not equations:
        return
    tiny = made("tiny")
    left = None if tiny is None else {(e.lhs, e.rhs) for e in tiny.main.signature.assumptions}
    yield ""
    yield "sizes assumed to be equal, checked at each call"
    for e in equations:
        how = "" if left is None or (e.lhs, e.rhs) in left else "; one size of the inputs"
        yield f"  {e.lhs} = {e.rhs}  {e.at}{how}"


def _report(compilation: Compilation) -> Iterator[str]:
    yield "kernels"
    for k in kernel_origins(compilation):
        where = "" if k.program == "main" else f" ({k.program})"
        named = f"  ({names_text(k.nodes)})" if k.nodes and not set(k.nodes) <= {*k.sources} else ""
        yield f"  {k.name}{where}  {k.kind:<14} {', '.join(k.sources)}{named}"
    yield from _sizes(compilation)
    yield from _calls(compilation)
    yield from _siblings(compilation)
    yield from _integers(compilation)
    yield from _course(compilation)
    partitions = (
        compilation.stages["partition"] if compilation.first in UP_TO_TINY and "partition" in compilation.stages else {}
    )
    for program, partition in partitions.items():
        yield ""
        yield f"fusion in {program}"
        for v in partition.verdicts:
            word = "fused    " if v.fused else "separate "
            terms = "  ".join(f"{n} {s * 1e6:+.2f} µs" for n, s in v.terms.items())
            halo = " ".join(f"{axis}+{width}" for axis, width in v.halo.items())
            rim = f"  halo {halo} = {v.halo_bytes} bytes" if halo else ""
            time = f"Δtime {v.delta_seconds * 1e6:+.2f} µs  {terms}".rstrip()
            yield f"  {word} {v.producer} -> {v.consumer}  {v.rule}{rim}  {v.why or time}"
    view = compilation.stages.get_made("poly_view")
    if view is not None:
        yield from _edges(view)
    yield from _reductions(compilation)
    yield from _plans(compilation)
    yield from _steps(compilation)
    yield from _joined(compilation)
    yield from _copies(compilation)
    yield from _deferred(compilation)
    if compilation.warnings:
        yield ""
        yield "warnings"
        for w in compilation.warnings:
            yield f"  {w}"


def _reductions(compilation: Compilation) -> Iterator[str]:
    """Reductions of the results of products on a GPU: begun in an epilogue, or the reason why not."""
    if compilation.target.kind != "cuda" or "region" not in compilation.stages:
        return
    for name, program in compilation.stages["region"].programs.items():
        lines = [f"  {let}  {said}" for let, said in reductions_of_products(program, compilation.target)]
        yield from (("", f"reductions of products in {name}", *lines) if lines else ())


def _course(compilation: Compilation) -> Iterator[str]:
    """How each graph of operations became kernels: the four steps of spec 1 "Fusion", in their order (G-29)."""
    made = compilation.stages
    if compilation.first not in UP_TO_TINY or any(n not in made for n in ("tiny", "partition", "region", "execution")):
        return
    for name, program in made["execution"].programs.items():
        if name not in made["tiny"].programs or name not in made["partition"]:
            continue
        nodes = made["tiny"].programs[name].nodes
        moved = sum(isinstance(n.op, MOVEMENT) for n in nodes)
        verdicts = made["partition"][name].verdicts
        regions = [i for i in made["region"].programs[name].body if isinstance(i, Region)]
        waves = len({i.wave for i in program.instructions})
        yield ""
        yield f"course of {name}"
        yield f"  views merged   movement nodes: {moved}, into the reads of other nodes: {len(nodes) - moved} (indexbook)"
        yield f"  fused          edges: {sum(v.fused for v in verdicts)} of {len(verdicts)} (partition)"
        yield f"  lowered        kernels: {len(regions)} (region, plan)"
        yield f"  one program    instructions: {len(program.instructions)}, waves: {waves} (execution)"


def _calls(compilation: Compilation) -> Iterator[str]:
    if compilation.first != "frontend" or "calls" not in compilation.stages or not compilation.stages["calls"]:
        return
    yield ""
    yield "calls"
    for graph, v in compilation.stages["calls"].items():
        yield f"  {graph}  {'inlined' if v.inlined else 'called '}  {v.why}  (decisions key {v.key})"


def _siblings(compilation: Compilation) -> Iterator[str]:
    """Products of one operand that became one product."""
    before, after = (compilation.stages.get_made(name) for name in ("linked", "siblings"))
    if before is None or after is None:
        return
    lines = []
    for program, graph in before.programs.items():
        kept = {n.name for n in after.programs[program].graph}
        joined = {m.name for m in graph.graph} - kept
        names = before.origins.get(program, {})
        for n in after.programs[program].graph:
            first = n.name.removesuffix(f".{n.op}")
            if n.op in PRODUCTS and first in joined:
                members = ", ".join(after.origins.get(program, {}).get(n.name, ())) or ", ".join(names.get(first, (first,)))
                lines.append(f"  {members}{'' if program == 'main' else f' ({program})'}  one product, {n.op}")
    yield from (("", "sibling products", *lines) if lines else ())


def _integers(compilation: Compilation) -> Iterator[str]:
    """Products of dequantised operands that sum integers, and quantisations that reproduce the codes."""
    before, after = (compilation.stages.get_made(name) for name in ("siblings", "integers"))
    if before is None or after is None:
        return
    lines = []
    for program, graph in before.programs.items():
        kept = {n.name for n in after.programs[program].graph}
        changed = [n for n in graph.graph if n.name not in kept]
        where = "" if program == "main" else f" ({program})"
        for n in changed:
            names = ", ".join(before.origins.get(program, {}).get(n.name, (n.name,)))
            made = [m for m in after.programs[program].graph if m.op in PRODUCTS and m.name.startswith(f"{n.name}.")]
            is_integer = any(m.attrs.get("acc_dtype") == "i32" for m in made)
            said = f"{n.op} of integers, sums of i32" if is_integer else f"{n.op} of floats and integers, widened in registers"
            said = "the codes as they are" if n.op == "quantize" else said
            lines.append(f"  {names}{where}  {said}")
    yield from (("", "dequantised operands", *lines) if lines else ())


def _edges(view: Module[PolyView]) -> Iterator[str]:
    for program, body in view.programs.items():
        refused = [e for e in body.edges if not e.fusible]
        if refused or body.excluded:
            yield ""
            yield f"edges and values that cannot fuse in {program}"
        for e in refused:
            yield f"  {e.producer} -> {e.consumer}: {e.rule}" + (f"; {e.change}" if e.change else "")
        for x in body.excluded:
            yield f"  {x.value}: {x.reason}"


def _plans(compilation: Compilation) -> Iterator[str]:
    if "plan" not in compilation.stages:
        return
    for program, plan in compilation.stages["plan"].programs.items():
        yield ""
        yield f"plans of {program}"
        for r in plan.regions:
            for choice in r.choices:
                terms = show_estimate(choice.estimate)
                guard = " when " + " and ".join(map(condition_text, choice.conditions)) if choice.conditions else ""
                yield f"  {r.region}: {name_plan(choice.plan)}{guard}  {terms}".rstrip()
                yield from _budget(choice.estimate, compilation.target)
            yield from (f"    tuned {text}" for text in r.tuned)
            for rejected in r.rejected:
                yield f"    rejected {rejected.plan}: {rejected.why}"
                yield from _budget(rejected.estimate, compilation.target)
        yield from show_layouts(plan.layouts)


def _budget(estimate: dict[str, float], target: Target) -> Iterator[str]:
    found = show_budget(estimate, target)
    if found:
        yield f"      {found}"


def _read_by_code(compilation: Compilation, program: str) -> frozenset[str]:
    """The sizes that compiled code reads from memory."""
    instructions = compilation.stages["execution"].programs[program].instructions
    return frozenset(s for ins in instructions if isinstance(ins.op, Extent) for s in ins.op.new_symbols)


def _steps(compilation: Compilation) -> Iterator[str]:
    for program, body in compilation.stages["region"].programs.items():
        steps = [i for i in body.body if isinstance(i, Step)]
        if steps:
            yield ""
            yield f"steps of {program} that are not kernels"
        for s in steps:
            found = f", finds {', '.join(s.new_symbols)}" if s.new_symbols else ""
            yield f"  {s.name}: {s.kind} {', '.join(s.targets)}{found}"
        read = _read_by_code(compilation, program) if any(s.new_symbols for s in steps) else frozenset()
        if read:
            yield f"  read by compiled code, without Python: {', '.join(sorted(read))}"
        waits = sum(not read.issuperset(s.new_symbols) for s in steps)
        if waits:
            yield f"  synchronisations: {waits}{' a run' if program == 'main' else ' each time it is called'}"


def _joined(compilation: Compilation) -> Iterator[str]:
    """Concatenations without a kernel: their operands are written to their place in the result."""
    for program, plan in compilation.stages["execution"].programs.items() if "execution" in compilation.stages else ():
        slices: dict[str, list[str]] = {}
        for b in plan.buffers:
            if b.kind == "arena" and b.parent:
                slices.setdefault(b.parent, []).append(b.id)
        if slices:
            yield ""
            yield f"joined in place in {program}"
        for whole, parts in slices.items():
            yield f"  {whole}: {', '.join(parts)} are made as parts of it"


def _copies(compilation: Compilation) -> Iterator[str]:
    """Every instruction that only moves elements: bytes read and written, an estimate of the time, and the reason."""
    if "execution" not in compilation.stages or "realised" not in compilation.stages:
        return
    if compilation.stages.get_made("realised") is None and compilation.first not in UP_TO_REGION:
        return  # an execution document came alone: its Regions are not there to look at
    execution = compilation.stages["execution"]
    found = moves(execution, compilation.stages["realised"])
    if found:
        yield ""
        yield "copies"
    for m in found:
        where = "" if m.program == "main" else f" ({m.program})"
        moved = estimate(m.bytes, execution.programs[m.program].signature.defaults)
        seconds = time_estimate(compilation.target, 0.0, moved)
        yield f"  {m.name}{where}  {m.bytes} bytes  {seconds * 1e6:.2f} µs  {m.why}"


def _deferred(compilation: Compilation) -> Iterator[str]:
    """Outputs that a document requests to hand on without memory, and the reason why they have a buffer nevertheless (D2.9)."""
    for program, body in compilation.stages["region"].programs.items():
        asked = [(r, t.name) for r in body.body if isinstance(r, Region) for t in r.outputs if t.materialize == "deferred"]
        if not asked:
            continue
        yield ""
        yield f"deferred values of {program}"
        for r, name in asked:
            readers = ", ".join(x.name for x in body.body if isinstance(x, Region) and name in {i.name for i in x.inputs})
            yield f"  {name}: kept in memory: {r.name} and {readers or 'its readers'} are different kernels; one Region avoids it"
