"""Plans of loops as text: outer axes, passes, storage."""

from __future__ import annotations

from tatami.plan.ir import CpuRows, GpuStream, Scalar


def show_loops(plan: Scalar | CpuRows | GpuStream) -> list[str]:
    """The lines of a plan of loops: outer axes, passes, and the storage of lets."""
    head = {Scalar: "scalar", CpuRows: "cpu_rows", GpuStream: "gpu_stream"}[type(plan)]
    if isinstance(plan, CpuRows):
        head += f" width {plan.width}"
        if plan.blocks is not None:
            head += f", {plan.blocks.axis} in blocks of {plan.blocks.size}"
            head += f", {plan.blocks.round} at a time" if plan.blocks.round else ""
        head += f", {', '.join(plan.nontemporal)} past the caches" if plan.nontemporal else ""
    if isinstance(plan, GpuStream):
        head += f" threads {plan.threads}, {plan.vector_bytes} bytes each"
        head += f", {plan.owners} owners of what is written" if plan.owners > 1 else ""
    lines = [head]
    depth = 1
    for i, a in enumerate(plan.outer):
        how = "parallel " if isinstance(plan, CpuRows) and i < plan.parallel else ""
        step = " by vectors" if isinstance(plan, CpuRows) and a == plan.vector_axis else ""
        lines.append(f"{'  ' * depth}{how}for {a}{step}")
        depth += 1
    for i, p in enumerate(plan.passes):
        loops = " ".join(f"for {a}{' by vectors' if a == p.vector else ''}" for a in p.axes)
        stored = ", ".join(n if plan.storage.get(n) == "register" else f"{n} ({plan.storage.get(n)})" for n in p.lets)
        part = plan.parts[i] if isinstance(plan, GpuStream) and plan.parts else 0
        lines.append(f"{'  ' * depth}{loops + ': ' if loops else ''}{stored}{f' in parts of {part}' if part else ''}")
    if again := [n for n, s in plan.storage.items() if s == "recompute"]:
        lines.append(f"{'  ' * depth}recomputed: {', '.join(again)}")
    return lines
