"""Plans of loops as text: outer axes, passes, storage."""

from __future__ import annotations

from tatami.plan.ir import CpuRows, GpuStream, LoopPass, LoopPhase, Scalar


def show_phases(plan: Scalar | CpuRows) -> list[str]:
    """The lines of a plan of loops: phases, passes, and the storage of lets."""
    head = "scalar"
    if isinstance(plan, CpuRows):
        head = f"cpu_rows width {plan.width}"
        if plan.blocks is not None:
            head += f", {plan.blocks.axis} in blocks of {plan.blocks.size}"
            head += f", {plan.blocks.round} at a time" if plan.blocks.round else ""
        head += f", turned for {', '.join(plan.turned)}" if plan.turned else ""
        head += f", {', '.join(plan.nontemporal)} past the caches" if plan.nontemporal else ""
    lines = [head, *(f"  {group[0]} for {' '.join(group)}" for group in plan.joined)]
    for phase in plan.phases:
        depth = 1
        for a in phase.outer:
            by = f" by {phase.group}" if phase.group > 1 and a == phase.outer[-1] else ""
            lines.append(f"{'  ' * depth}{'parallel ' if a in phase.threads else ''}for {a}{by}")
            depth += 1
        lines += [f"{'  ' * depth}{_pass(plan, phase, p)}" for p in phase.passes]
    again = [n for n, s in plan.storage.items() if s == "recompute"]
    return [*lines, f"  recomputed: {', '.join(again)}"] if again else lines


def _pass(plan: Scalar | CpuRows, phase: LoopPhase, p: LoopPass) -> str:
    def loop(a: str) -> str:
        how = f"{'parallel ' if a in phase.threads else ''}for {a}"
        return how + (" by vectors" if a == p.vector else " in tiles" if a == p.tile else "")

    def let(n: str) -> str:
        said = [s for s in (plan.storage[n],) if s != "register"] + [f"by vectors of {a}" for a in (p.along.get(n),) if a]
        return f"{n} ({', '.join(said)})" if said else n

    loops = " ".join(map(loop, p.axes))
    return f"{loops + ': ' if loops else ''}{', '.join(map(let, p.lets))}"


def show_passes(plan: GpuStream) -> list[str]:
    """The lines of a streaming plan: outer axes, passes, and the storage of lets."""
    head = f"gpu_stream threads {plan.threads}, {plan.vector_bytes} bytes each"
    head += f", {plan.owners} owners of what is written" if plan.owners > 1 else ""
    lines = [head]
    depth = 1
    for a in plan.outer:
        lines.append(f"{'  ' * depth}for {a}")
        depth += 1
    for i, p in enumerate(plan.passes):
        loops = " ".join(f"for {a}" for a in p.axes)
        stored = ", ".join(n if plan.storage.get(n) == "register" else f"{n} ({plan.storage.get(n)})" for n in p.lets)
        part = plan.parts[i] if plan.parts else 0
        lines.append(f"{'  ' * depth}{loops + ': ' if loops else ''}{stored}{f' in parts of {part}' if part else ''}")
    if again := [n for n, s in plan.storage.items() if s == "recompute"]:
        lines.append(f"{'  ' * depth}recomputed: {', '.join(again)}")
    return lines
