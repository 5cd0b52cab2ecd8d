"""Memory of a kernel: its rings and barriers, what the statements need of them, and vectors that the epilogue reads."""

from __future__ import annotations

from itertools import pairwise

from tatami.core.algebra.simplify import is_run
from tatami.core.diagnostic import Diagnostic
from tatami.gpu.ir import Kernel
from tatami.gpu.proof.faults import invalid
from tatami.gpu.proof.program import all_statements
from tatami.gpu.statement_ir import Epilogue, StGlobalVec, StMatrix, TmaFetch
from tatami.gpu.streaming.axes import unconditional_reads
from tatami.gpu.views.effects import effects
from tatami.region.ir import Read


def check_memory(kernel: Kernel) -> list[Diagnostic]:
    """Faults of shared memory: rings and barriers are disjoint, inside the shared bytes, and aligned as TMA and wgmma need."""
    out = []
    spans = []
    for r in kernel.smem:
        pitch = r.tma_pitch if kernel.has_roles else r.slot_bytes
        spans.append((r.base, r.base + pitch * (r.slots - 1) + r.slot_bytes, r.name))
        if kernel.has_roles and r.base % 1024:
            out.append(
                invalid(kernel, r.name, f"base {r.base} is not a multiple of 1024, which TMA and wgmma want of a swizzled tile")
            )
    for b in kernel.barriers:
        spans.append((b.base, b.base + 8 * b.slots, b.name))
        if b.base % 8:
            out.append(invalid(kernel, b.name, f"base {b.base} is not a multiple of 8"))
    rings = {r.name: r for r in kernel.smem}
    used = {name for s in all_statements(kernel.body) for row in (effects(kernel, s),) for name in (*row.reads, *row.fills)}
    out += [invalid(kernel, name, "the kernel has no such ring") for name in sorted(used - rings.keys())]
    results = {s.ring for s in all_statements(kernel.body) if isinstance(s, Epilogue)}
    results |= {s.dst_smem for s in all_statements(kernel.body) if isinstance(s, StMatrix)}
    for r in kernel.smem:
        if r.name not in results and r.slots != (1 if r.once else kernel.stages):
            out.append(invalid(kernel, r.name, f"{r.slots} slots, and the kernel has {kernel.stages} stages"))
    for s in all_statements(kernel.body):
        if isinstance(s, Epilogue) and s.ring:
            row = kernel.tile[1] // kernel.cols * 4
            ring = rings.get(s.ring)
            if ring is None or ring.rows < kernel.threads // 2 or ring.row_bytes < row:
                why = f"the epilogue lays down {kernel.threads // 2} rows of {row} bytes, which the ring does not hold"
                out.append(invalid(kernel, s.ring, why))
        if isinstance(s, TmaFetch) and (s.dst_smem not in rings or s.bytes != s.chunks * rings[s.dst_smem].slot_bytes):
            size = rings[s.dst_smem].slot_bytes if s.dst_smem in rings else 0
            out.append(invalid(kernel, s.dst_smem, f"{s.bytes} bytes are expected of {s.chunks} slots of {size}"))
    out += _wide_faults(kernel)
    spans.sort()
    for (_, end, name), (start, _, other) in pairwise(spans):
        if start < end:
            out.append(invalid(kernel, other, f"overlaps {name} ({start} < {end})"))
    if spans and max(s[1] for s in spans) > kernel.shared_bytes:
        out.append(invalid(kernel, spans[-1][2], f"ends at {spans[-1][1]}, behind the {kernel.shared_bytes} shared bytes"))
    return out


def _wide_faults(kernel: Kernel) -> list[Diagnostic]:
    """Faults of vectors that the epilogue reads: each is a read that every result makes, of neighbours in memory, as wide as an
    access and the columns of a thread. That they are aligned follows from the Region and the plan (`schedule.py`)."""
    out = []
    statements = all_statements(kernel.body)
    stored = max((s.width for s in statements if isinstance(s, StGlobalVec)), default=1)
    dtypes = {p.name: p.dtype for p in kernel.params}
    for s in statements:
        if not isinstance(s, Epilogue):
            continue
        columns = stored if s.ring else 4 if kernel.template == "fma" else 2
        made = {r for let in s.ops for r in unconditional_reads(let.expr, {})}
        for w in s.wide:
            if Read(w.param, (w.index,)) not in made or w.param not in dtypes:
                out.append(invalid(kernel, w.param, f"a vector of {w.param}[{w.index}], which no result is made of"))
            elif w.width not in (2, 4, 8) or columns % w.width or w.width * dtypes[w.param].itemsize > 16:
                why = f"{w.width} elements of {w.param} at once; a thread has {columns} columns, and an access 16 bytes at most"
                out.append(invalid(kernel, w.param, why))
            elif not is_run(w.index, "n", w.width):
                out.append(invalid(kernel, w.param, f"{w.width} columns of {w.param}[{w.index}] are not neighbours in memory"))
        if len(set(s.wide)) != len(s.wide):
            out.append(invalid(kernel, "Epilogue", "a vector is read twice"))
    return out
