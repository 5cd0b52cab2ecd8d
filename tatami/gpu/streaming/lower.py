"""A Region that no MMA template takes, as kernels of the streaming template (design §3 gpu, `gpu/stream_ir.py`).

A fused plan is one kernel: a group of threads per outer point goes through all passes. Any other plan is a kernel per
let that reduces, scans, is read at moved coordinates or leaves the Region, with results between kernels in scratch:

    m = max over k of x[i, k]        k0: a group per i, result to scratch
    s = sum over k of exp(x - m)     k1
    y = exp(x - m) / s               k2: a thread per (i, k), result to the output

All other lets are computed where they are used.
"""

from __future__ import annotations

from tatami.core.kernel import Binding, Condition
from tatami.gpu.stream_ir import StreamKernel
from tatami.gpu.streaming.kernel import KernelOfLets
from tatami.gpu.streaming.region import StreamRegion
from tatami.plan.ir import GpuStream
from tatami.region.ir import Let, Reduce, Region, Scan, Yield


def lower_stream(region: Region, plan: GpuStream, conditions: tuple[Condition, ...]) -> list[tuple[StreamKernel, Binding]]:
    """Kernels in order of launch with their bindings, without the kernels' names."""
    s = StreamRegion(region, plan)
    if plan.fused:
        lets = [s.lets[n] for p in plan.passes for n in p.lets]
        taken = [x for x in lets if isinstance(x.expr, Reduce | Scan) or s.yields_of(x)]
        group = max(plan.groups, default=1)
        return [KernelOfLets(s, conditions, None, group, frozenset(), (), tuple(taken)).built()]
    out = []
    declared: set[str] = set()

    def add(let: Let, group: int, yields: tuple[Yield, ...]) -> None:
        kernel, binding = KernelOfLets(s, conditions, let, group, frozenset(declared), yields).built()
        declared.update(n for n, _ in binding.scratch)
        out.append((kernel, binding))

    for let in s.region.lets:
        plain = tuple(y for y in s.yields_of(let) if y not in s.late)
        if plain or s.is_kept(let.name):
            add(let, s.group_of(let), plain)
    for y in s.late:
        add(s.lets[y.source], 1, (y,))
    return out
