"""Faults of a streaming plan: passes, storage, parts. Every rule of `plan/loops/schedule.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.target import ACCESS_BYTES
from tatami.plan.ir import GpuStream, Pass
from tatami.plan.loops.schedule import nest_of, stored_moves
from tatami.region.ir import Reduce, Region, Scan
from tatami.region.walk import all_axes, lets_by_name


def invalid_plan(region: Region, why: str, suggestion: str) -> Diagnostic:
    """The diagnostic InvalidPlan for a Region."""
    return diagnostic("InvalidPlan", region.name, why, suggestion)


ROUTINE_THREADS = 256
"""Threads of a block of a routine's kernels, and of a body that a user wrote."""


def schedule_rules(plan: GpuStream, region: Region) -> Iterator[Diagnostic]:
    """Faults of a streaming plan; none if it is obeyed in full."""
    if region.opaque is not None:
        parts = plan.parts
        why = f"the routine {region.opaque.routine} in parts of {', '.join(map(str, parts))}"
        if plan.outer or plan.passes or plan.storage:
            yield invalid_plan(
                region, f"loops for the routine {region.opaque.routine}", "leave outer, passes and storage empty"
            )
        fields = {
            f"{plan.threads} threads": plan.threads != ROUTINE_THREADS,
            f"vector_bytes {plan.vector_bytes}": plan.vector_bytes != ACCESS_BYTES,
            f"groups {', '.join(map(str, plan.groups))}": bool(plan.groups),
            "fused": plan.fused,
            f"{plan.owners} owners": plan.owners != 1,
        }
        if wrong := [words for words, is_wrong in fields.items() if is_wrong]:
            said = f"leave threads {ROUTINE_THREADS}, vector_bytes {ACCESS_BYTES} and the other fields out"
            yield invalid_plan(region, f"{', '.join(wrong)} for the routine {region.opaque.routine}", said)
        if parts and region.opaque.routine not in ("sort", "topk"):
            yield invalid_plan(region, why, "give none: only sorts have parts")
        elif len(parts) > 1 or any(p not in (1 << n for n in range(4, 11)) for p in parts):
            yield invalid_plan(region, why, "give one part, a power of two from 16 to 1024, or none")
        return
    axes, lets = all_axes(region), lets_by_name(region)
    unknown = [a for a in (*plan.outer, *(a for p in plan.passes for a in p.axes)) if a not in axes]
    unknown += [n for n in (*plan.storage, *(n for p in plan.passes for n in p.lets)) if n not in lets]
    if unknown:
        yield invalid_plan(
            region,
            f"{unknown[0]!r} is neither an axis nor a let of the Region",
            f"axes: {', '.join(axes)}; lets: {', '.join(lets)}",
        )
        return
    for names in (plan.outer, *(p.axes for p in plan.passes)):
        if len(set(names)) < len(names):
            yield invalid_plan(region, f"loops over {', '.join(names)}", "name each axis once")
            return
    place: dict[str, int] = {}
    for i, p in enumerate(plan.passes):
        for n in p.lets:
            if n in place:
                yield invalid_plan(region, f"let {n} is in pass {place[n]} and in pass {i}", "put each let in exactly one pass")
            place[n] = i
    for n in lets:
        stored = plan.storage.get(n)
        if stored is None:
            yield invalid_plan(region, f"let {n} has no storage", "give it register, row, workspace or recompute")
        elif (stored == "recompute") == (n in place):
            how = "is recomputed and in a pass" if n in place else "is in no pass and not recomputed"
            yield invalid_plan(region, f"let {n} {how}", "put it in one pass, or recompute it")
        elif stored == "recompute" and isinstance(lets[n].expr, Reduce | Scan):
            yield invalid_plan(region, f"let {n} is a reduce and recomputed", "store it")
    if any(n not in plan.storage or (n not in place and plan.storage[n] != "recompute") for n in lets):
        return
    position = {n: i for i, n in enumerate(lets)}
    for i, p in enumerate(plan.passes):
        if list(p.lets) != sorted(p.lets, key=lambda n: position[n]):
            yield invalid_plan(region, f"pass {i} lists {', '.join(p.lets)}", "list its lets in the order of their definitions")
    for i, p in enumerate(plan.passes):
        yield from _pass(region, plan.outer, i, p)
    yield from _order(region, plan.outer, plan.storage, place)
    yield from _parts(region, plan)
    yield from _kept(region, plan, place)


def _kept(region: Region, plan: GpuStream, place: Mapping[str, int]) -> Iterator[Diagnostic]:
    """Faults of storage: a kernel has registers and rows; one that is fused keeps a row for what a later pass reads."""
    lets = lets_by_name(region)
    recompute = {n for n, how in plan.storage.items() if how == "recompute"}
    for n, how in plan.storage.items():
        if how in ("tile", "workspace"):
            yield invalid_plan(region, f"{n} in a {how}", "a GPU keeps register or row, or recomputes")
    if not plan.fused:
        return
    read = {
        n
        for let in region.lets
        if let.name in place
        for n, _ in stored_moves(let.expr, lets, recompute)
        if place[n] < place[let.name]
    }
    for n in place:
        wanted = "row" if n in read and set(lets[n].axes) - set(plan.outer) else "register"
        if plan.storage[n] in ("register", "row") and plan.storage[n] != wanted:
            yield invalid_plan(region, f"{n} is in a {plan.storage[n]}; its readers need a {wanted}", f"store it as {wanted}")


def _parts(region: Region, plan: GpuStream) -> Iterator[Diagnostic]:
    """Faults of lines in parts, which are allowed for reduces and scans by groups, each part whole vectors; and of owners."""
    lets = lets_by_name(region)
    if not 1 <= plan.owners <= 1024:
        yield invalid_plan(region, f"{plan.owners} owners of what is written", "give 1 to 1024")
    elif plan.owners > 1 and not any(y.indices for y in region.yields):
        why = f"{plan.owners} owners of what is written, which no data place"
        yield invalid_plan(region, why, "give 1")
    if plan.fused and len(set(plan.groups)) > 1:
        why = f"groups of {', '.join(map(str, plan.groups))} in one kernel"
        yield invalid_plan(region, why, "give all passes of a fused kernel the same")
    for name, row in (("groups", plan.groups), ("parts", plan.parts)):
        if row and len(row) != len(plan.passes):
            yield invalid_plan(region, f"{len(row)} {name} for {len(plan.passes)} passes", "give one entry per pass, or none")
            return
    for i, (p, part) in enumerate(zip(plan.passes, plan.parts)):
        if part == 0:
            continue
        if plan.fused or any(not isinstance(lets[n].expr, Reduce | Scan) for n in p.lets):
            yield invalid_plan(
                region, f"pass {i} in parts of {part}: it is fused, or holds more than reduces and scans", "use 0"
            )
        elif part < 16 or part % 16 or not plan.groups or plan.groups[i] < 2:
            why = f"pass {i} in parts of {part} by groups of {plan.groups[i] if plan.groups else 1}"
            yield invalid_plan(region, why, "a part has a multiple of 16 elements and a group of 2 threads or more")


def _pass(region: Region, outer: tuple[str, ...], number: int, p: Pass) -> Iterator[Diagnostic]:
    lets = lets_by_name(region)
    for n in p.lets:
        point, inner, _ = nest_of(lets[n], outer)
        if point | set(inner) != set(p.axes):
            needs = ", ".join(sorted(point | set(inner))) or "nothing"
            yield invalid_plan(
                region,
                f"pass {number} loops over {', '.join(p.axes) or 'nothing'}, let {n} needs {needs}",
                "give the pass exactly the axes of its lets",
            )
        elif set(p.axes[len(p.axes) - len(inner) :]) != set(inner):
            yield invalid_plan(
                region, f"pass {number} does not end with {', '.join(inner)}, which {n} reduces", "put reduced axes innermost"
            )


def _order(
    region: Region, outer: tuple[str, ...], storage: Mapping[str, str], place: Mapping[str, int]
) -> Iterator[Diagnostic]:
    """Faults of order: uses come after definitions, registers do not outlive their point, moved axes are not outer."""
    lets = lets_by_name(region)
    recompute = {n for n, how in storage.items() if how == "recompute"}
    anchored = {n for y in region.yields for n in (y.source, *y.indices)}
    for let in region.lets:
        if (let.name in anchored or isinstance(let.expr, Reduce | Scan)) and (
            missing := [a for a in outer if a not in let.axes]
        ):
            yield invalid_plan(
                region,
                f"outer axis {missing[0]} is not an axis of {let.name}, which would be computed again",
                f"take {missing[0]} out of outer",
            )
        if storage[let.name] == "recompute":
            continue
        for name, moved in stored_moves(let.expr, lets, recompute):
            if wrong := [a for a in outer if a in moved]:
                why = f"{let.name} reads {name} elsewhere along outer axis {wrong[0]}"
                yield invalid_plan(region, why, f"take {wrong[0]} out of outer, or recompute {name}")
            here, there = place[let.name], place[name]
            if there > here:
                yield invalid_plan(region, f"{let.name} in pass {here} uses {name} of pass {there}", "order the passes by use")
            elif there == here and (isinstance(lets[name].expr, Reduce) or moved):
                yield invalid_plan(region, f"{let.name} uses {name}, not complete in pass {here}", "put it in a later pass")
            elif there != here and storage[name] == "register" and set(lets[name].axes) - set(outer):
                yield invalid_plan(
                    region, f"{name} is in a register of pass {there} and used in pass {here}", "store it as a row"
                )
