"""CPU candidates of one Region: packed contraction, vector rows, plain loops; the cheapest is the plan."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import product
from tatami.core.target import Target
from tatami.plan.accesses import accesses, gathers_along
from tatami.plan.choose_blocks import reduce_blocks, scan_blocks
from tatami.plan.choose_convolution import find_winograd, winograd_estimate, winograd_plan
from tatami.plan.estimate import (
    contraction_estimate,
    loops_estimate,
    pass_cycles,
    rows_estimate,
    seconds_of_bytes,
    streaming_estimate,
    trips,
    turn_estimate,
    window_estimate,
)
from tatami.plan.ir import (
    CpuContraction,
    CpuRows,
    CpuSplit,
    CpuStreaming,
    CpuTurn,
    CpuWindow,
    CpuWinograd,
    Guarded,
    Pass,
    Rejected,
    Scalar,
    SchedulePlan,
)
from tatami.plan.passes import Skeleton, main_order, nest_of, row_major_order, size_at, skeleton
from tatami.plan.split import crossing_lets, split_parts, split_region
from tatami.poly_core.ir import Contraction, RegionFacts
from tatami.region.convolution import find_convolution
from tatami.region.ir import At, Let, Region, Scan
from tatami.region.kinds import contractions, depends_on, kind_of
from tatami.region.online import find_online
from tatami.region.turned import find_turned
from tatami.region.walk import all_axes, let_uses, lets_by_name
from tatami.region.window import find_window

PARALLEL_SECONDS = 1e-5
"""Work below this is not worth waking threads (notes/cpu.md §6)."""


class Candidate(msgspec.Struct, frozen=True):
    plan: SchedulePlan
    line: str
    estimate: dict[str, float]


def choose_cpu(
    region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int], constants: frozenset[str] = frozenset()
) -> tuple[tuple[Guarded, ...], tuple[Rejected, ...]]:
    """The chosen plan of a Region that is not opaque, and the others with their numbers. `constants`: tensors whose
    value is known at load."""
    if region.opaque is not None:
        plan: SchedulePlan = Scalar((), (), {})
        return (Guarded((), plan, {"total": 0.0}),), ()
    bones = skeleton(region, sizes, target.l2_bytes)
    made: list[Candidate | Rejected] = [scalar_candidate(region, facts, bones, target, sizes)]
    for width in vector_widths(target):
        made.append(rows_candidate(region, facts, bones, target, sizes, width))
        if isinstance(made[-1], Rejected):
            break
    made.append(contraction_candidate(region, facts, target, sizes, constants))
    kind = kind_of(region)
    if kind == "contraction" and not isinstance(find_convolution(region), str):
        made.append(winograd_candidate(region, facts, target, sizes, constants))
    if kind == "map":
        made.append(turn_candidate(region, facts, target, sizes))
    if kind == "stencil":
        made.append(window_candidate(region, facts, target, sizes))
    if kind == "streaming_pair":
        made.append(streaming_candidate(region, facts, target, sizes))
    if (parts := split_candidate(region, facts, target, sizes)) is not None:
        made.append(parts)
    found = [c for c in made if isinstance(c, Candidate)]
    refused = [c for c in made if isinstance(c, Rejected)]
    found.sort(key=lambda c: (c.estimate["total"], c.estimate["compute"]))
    best, rest = found[0], found[1:]
    slower = [
        Rejected(
            c.line, f"slower: {c.estimate['total'] * 1e6:.3g} us against {best.estimate['total'] * 1e6:.3g} us", c.estimate
        )
        for c in rest
    ]
    return (Guarded((), best.plan, _at_sizes(region, best.estimate, sizes)),), (*slower, *refused)


def _at_sizes(region: Region, estimate: dict[str, float], sizes: Mapping[str, int]) -> dict[str, float]:
    from tatami.core.expr import free_vars

    names: dict[str, None] = {}
    for size in all_axes(region).values():
        for n in sorted(free_vars(size)):
            names.setdefault(n)
    return estimate | {f"at.{n}": float(sizes.get(n, 128)) for n in names}


def vector_widths(target: Target) -> tuple[int, ...]:
    """Lanes of the vectors to choose among, widest first: those of a register, and half as many down to 4. fp64 and
    64-bit integers do not narrow them: they take two registers."""
    return (target.lanes, *(w for w in (16, 8, 4) if w < target.lanes))


# -- plain loops and rows --------------------------------------------------------------------------


def scalar_candidate(
    region: Region, facts: RegionFacts, bones: Skeleton, target: Target, sizes: Mapping[str, int]
) -> Candidate:
    plan = Scalar(bones.outer, bones.passes, bones.storage)
    return Candidate(plan, "scalar", loops_estimate(region, facts, plan, target, sizes))


def rows_candidate(
    region: Region, facts: RegionFacts, bones: Skeleton, target: Target, sizes: Mapping[str, int], width: int
) -> Candidate | Rejected:
    """Vector loops: either every pass along the last outer axis, or each pass along its own best axis."""
    if width <= 1:
        return Rejected(
            "cpu_rows", f"vectors of {target.vector_bytes} bytes hold {width} lane of 4 bytes; at least 2 are needed"
        )
    if row_major_order(region):
        return Rejected("cpu_rows", "1 write at computed positions; vector loops take 0")
    moves = accesses(region)
    lets = lets_by_name(region)
    allowed = [a for a in bones.outer if not any(gathers_along(region, let, a) for let in region.lets)] or list(bones.outer)
    own = tuple(_own_vector(region, bones, p, width, moves, sizes) for p in bones.passes)
    best_cycles = sum(c for _, c in own)
    best: tuple[tuple[str, ...], tuple[Pass, ...], str] | None = None
    main = max(range(len(own)), key=lambda i: own[i][1] if own[i][0] else -1.0, default=-1)
    if main >= 0 and own[main][0]:
        passes = tuple(Pass(_vector_last(p, v, bones, lets), p.lets, v) for p, (v, _) in zip(bones.passes, own))
        best = (bones.outer, passes, own[main][0])
    for v in allowed:
        if any(v not in lets[n].axes for p in bones.passes for n in p.lets if bones.storage[n] != "register"):
            continue  # a row that lacks the vector axis is not written by lanes
        if any(
            isinstance(n, At) and v in lets[n.let].axes and n.map[lets[n.let].axes.index(v)].as_name() != v
            for let in region.lets
            for n in let_uses(let.expr)
        ):
            continue
        cycles = sum(pass_cycles(region, bones, p, v, width, moves, sizes) for p in bones.passes)
        if best is None or cycles < best_cycles:
            outer = (*(a for a in bones.outer if a != v), v)
            best, best_cycles = (outer, tuple(Pass(p.axes, p.lets, v) for p in bones.passes), v), cycles
    if best is None:
        return Rejected("cpu_rows", "0 axes to vectorise; 1 is needed")
    outer, passes, vector = best
    serial = rows_estimate(facts, best_cycles, 1, target, sizes)
    parallel = _parallel(region, outer, vector, serial["total"], target, sizes)
    blocks = scan_blocks(region, vector, target, sizes) or reduce_blocks(region, vector, target, sizes)
    where = "the last outer axis" if vector in outer else "pass axes"
    plan = CpuRows(outer, passes, bones.storage, vector, width, parallel, blocks)
    line = f"cpu_rows x{width} along {where}, {parallel} parallel axes"
    if blocks is not None:
        line += f", {blocks.axis} in blocks of {blocks.size}" + (f", {blocks.round} at a time" if blocks.round else "")
    return Candidate(plan, line, loops_estimate(region, facts, plan, target, sizes))


def _own_vector(
    region: Region, bones: Skeleton, p: Pass, width: int, moves: object, sizes: Mapping[str, int]
) -> tuple[str, float]:
    """The pass axis that is cheapest to vectorise along, "" when plain loops are no slower."""
    best, cycles = "", pass_cycles(region, bones, p, "", 1, moves, sizes)  # type: ignore[arg-type]
    lets = lets_by_name(region)
    for a in p.axes:
        if any(gathers_along(region, lets[n], a) for n in p.lets) and len(p.axes) > 1:
            continue
        c = pass_cycles(region, bones, p, a, width, moves, sizes)  # type: ignore[arg-type]
        if c < cycles:
            best, cycles = a, c
    return best, cycles


def _vector_last(p: Pass, vector: str, bones: Skeleton, lets: Mapping[str, Let]) -> tuple[str, ...]:
    """The pass's axes with the vector axis last in its group (point axes, or reduced axes)."""
    if not vector:
        return p.axes
    inner = _inner_axes(p, lets)
    group = [a for a in p.axes if (a in inner) == (vector in inner)]
    moved = [a for a in group if a != vector] + [vector]
    return tuple([*moved, *inner] if vector not in inner else [*(a for a in p.axes if a not in inner), *moved])


def _inner_axes(p: Pass, lets: Mapping[str, Let]) -> tuple[str, ...]:
    """The axes of the pass that its reduces or scans run along."""
    inner = {a for n in p.lets for a in nest_of(lets[n], ())[1]}
    return tuple(a for a in p.axes if a in inner)


def _parallel(
    region: Region, outer: tuple[str, ...], vector: str, seconds: float, target: Target, sizes: Mapping[str, int]
) -> int:
    """Leading outer axes to split: all but a vector axis, or that one too (in whole vectors) when nothing else is left."""
    if seconds < PARALLEL_SECONDS or not outer or target.cores < 2:
        return 0
    lead = outer[:-1] if outer[-1] == vector else outer
    if lead and trips(region, lead, sizes) >= 2 * target.cores:
        return len(lead)
    return len(outer)


# -- contraction -----------------------------------------------------------------------------------

TILES = {"avx512": (12, 32), "avx2": (6, 16), "neon": (8, 12), "generic": (4, 8)}
"""(mr, nr): registers hold mr x nr accumulators, one row of nr and one broadcast (notes/cpu.md §1)."""


MICRO_KERNEL_DTYPES = (DType.fp32, DType.fp64, DType.i32, DType.u32, DType.i64, DType.u64)


def register_tile(target: Target, itemsize: int) -> tuple[int, int]:
    """(mr, nr) of elements of `itemsize` bytes."""
    mr, nr = TILES.get(target.isa, (4, 8))
    return mr, nr * 4 // itemsize


def contraction_candidate(
    region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int], constants: frozenset[str]
) -> Candidate | Rejected:
    """Packed panels and a register tile for the one contraction of the Region."""
    refusal = _contraction_refusal(region, facts)
    if refusal:
        return Rejected("cpu_contraction", refusal)
    c = facts.contractions[0]
    b, m, n, k = (trips(region, group, sizes) for group in (c.batch, c.m, c.n, c.k))
    swap = _wants_swap(region, c, m, n, target, constants)
    wide, narrow = (m, n) if swap else (n, m)
    least = 2 if (c.lhs if swap else c.rhs) in constants else 4
    if narrow < least or wide < 8 or k < 8:
        return Rejected("cpu_contraction", f"sides {narrow} x {wide} x {k}; packing pays from {least} x 8 x 8")
    if m * n * k < 4096:
        return Rejected("cpu_contraction", f"{m * n * k} multiply-adds per batch; packing pays from 4096")
    itemsize = lets_by_name(region)[c.acc].dtype.itemsize
    plan = contraction_plan(c, target, (b, narrow, wide, k), swap, constants, itemsize)
    estimate = contraction_estimate(region, facts, plan, target, sizes)
    how = f"split {plan.split}{' swap' if swap else ''}"
    line = f"cpu_contraction {plan.mr}x{plan.nr} kc {plan.kc} mc {plan.mc} nc {plan.nc} {how}"
    return Candidate(plan, line, estimate)


def _contraction_refusal(region: Region, facts: RegionFacts) -> str:
    """Why the packed template does not take this Region, or ""."""
    if kind_of(region) != "contraction":
        return f"kind {facts.kind}; the template takes contraction"
    if len(facts.contractions) != 1:
        return f"{len(facts.contractions)} contractions; the template takes 1"
    c = facts.contractions[0]
    lets = lets_by_name(region)
    if lets[c.acc].dtype not in MICRO_KERNEL_DTYPES:
        return f"accumulates in {lets[c.acc].dtype}; micro-kernels accumulate in {', '.join(map(str, MICRO_KERNEL_DTYPES))}"
    shape = contractions(region)[0]
    from tatami.region.walk import reads

    for side, operand in (("lhs", shape.lhs), ("rhs", shape.rhs)):
        if not reads(operand):
            return f"{side} reads 0 tensors directly; packing needs 1"
    after = [let.name for let in region.lets if let.name != c.acc]
    outside = [n for n in after if n not in c.epilogue and not _is_helper(region, n, c.acc)]
    if outside:
        return f"{len(outside)} lets ({', '.join(outside[:3])}) are neither prologue nor epilogue; 0 are allowed"
    if any(y.source != c.acc and y.source not in c.epilogue for y in region.yields):
        return "an output is not made from the accumulator in place"
    return ""


def _is_helper(region: Region, name: str, acc: str) -> bool:
    """A pointwise let that does not depend on the accumulator: inlined into packing or epilogue."""
    from tatami.region.ir import Reduce

    lets = lets_by_name(region)
    return not isinstance(lets[name].expr, Reduce | Scan) and not depends_on(name, acc, lets)


def _wants_swap(region: Region, c: Contraction, m: int, n: int, target: Target, constants: frozenset[str]) -> bool:
    """Which operand is the wide, n side. It should hold the innermost output axis, so that tiles are stored by whole
    vectors; unless that side is narrower than a vector and the other is not, or few rows meet a constant operand that
    `setup` can pack: then its packing would cost more than strided stores."""
    order = main_order(region)
    last = next((a for a in reversed(order) if a in c.m or a in c.n), "")
    swap = last in c.m
    constant_side = c.lhs if not swap else c.rhs
    n_side, other = (m, n) if swap else (n, m)
    if n_side < target.lanes <= other:
        return not swap
    if constant_side in constants and n_side < 256 and other >= 2 * target.lanes:
        return not swap
    return swap


def contraction_plan(
    c: Contraction,
    target: Target,
    extent: tuple[int, int, int, int],
    swap: bool,
    constants: frozenset[str],
    itemsize: int = 4,
) -> CpuContraction:
    """Tile sizes from the registers and caches: kc rows of nr stay in L1, mc x kc in half of L2, kc x nc in L3.

    The n side is split where there are slivers enough for all threads and the packed rows stay in cache; else blocks
    of rows, small enough that every thread gets several.
    """
    mr, nr = register_tile(target, itemsize)
    b, narrow, wide, k = extent
    cores = max(1, target.cores)
    kc = 384 if target.l2_bytes >= 512 << 10 else 256
    mc = max(mr, (target.l2_bytes * 3 // 4) // (kc * itemsize) // mr * mr)
    nc = max(nr, min(4096, (target.l3_bytes // 4) // (kc * itemsize)) // nr * nr)
    rows_fit = narrow * k * itemsize <= max(target.l3_bytes // 2, target.l2_bytes)
    if b >= 2 * cores:
        split = "batch"
    elif rows_fit and (wide >= 4 * cores * nr or (narrow < 256 and wide >= 2 * nr)):
        split = "n"
    else:
        split = "m"
        mc = min(mc, max(2, -(-narrow // (4 * cores * mr))) * mr)
    right = c.lhs if swap else c.rhs
    packed = (right,) if right and right in constants else ()
    return CpuContraction(c.acc, mr, nr, kc, mc, nc, target.lanes, swap, split, packed, c.epilogue)  # type: ignore[arg-type]


def winograd_candidate(
    region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int], constants: frozenset[str]
) -> Candidate | Rejected:
    """Fewer products for a 3x3 convolution."""
    tile = register_tile(target, lets_by_name(region)[facts.contractions[0].acc].dtype.itemsize)
    plan = winograd_plan(region, tile, target, sizes, constants)
    if isinstance(plan, str):
        return Rejected("cpu_winograd", plan)
    line = f"cpu_winograd {plan.mr}x{plan.nr}, blocks of {plan.rows}x{plan.columns} tiles, split {plan.split}"
    return Candidate(plan, line, winograd_estimate(region, facts, plan, target, sizes))


WINDOW_BYTES = 24 << 10
"""Of what a block of rows sees: stays in L1."""


def window_candidate(region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> Candidate | Rejected:
    """What the windows of a block of rows see, copied without guards; then vectors along the columns."""
    found = find_window(region)
    if isinstance(found, str):
        return Rejected("cpu_window", found)
    lanes = target.lanes
    if lanes < 4:
        return Rejected("cpu_window", f"vectors of {lanes} elements; the template takes 4 or more")
    extents = all_axes(region)
    itemsize = lets_by_name(region)[found.let].dtype.itemsize
    line = (size_at(extents[found.slides[-1].axis], sizes) * found.slides[-1].stride + 2 * lanes) * itemsize
    rows = max(4, WINDOW_BYTES // (line * found.slides[0].stride) // 4 * 4) if len(found.slides) == 2 else 1
    plan = CpuWindow(found.let, rows, lanes)
    return Candidate(plan, f"cpu_window, blocks of {rows} rows", window_estimate(region, facts, plan, found, target, sizes))


TURN_TILE = 64
"""Elements a side: a tile and what it becomes stay in L1, and a line of it fills four cache lines."""


def turn_candidate(region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> Candidate | Rejected:
    """Square tiles whose lines change places in registers."""
    found = find_turned(region)
    if isinstance(found, str):
        return Rejected("cpu_turn", found)
    itemsize = next(p.memref.dtype.itemsize for p in region.inputs if p.name == found.reads[0].tensor)
    lanes = target.lanes * 4 // itemsize
    sides = [trips(region, (a,), sizes) for a in (found.across, found.along)]
    if lanes not in (4, 8, 16) or min(sides) < lanes:
        return Rejected(
            "cpu_turn", f"sides {sides[0]} x {sides[1]}, vectors of {lanes}; turning takes whole vectors of 4, 8 or 16"
        )
    plan = CpuTurn(found.along, found.across, TURN_TILE, target.lanes)
    estimate = turn_estimate(region, facts, plan, found, target, sizes)
    return Candidate(plan, f"cpu_turn {found.across} to {found.along}, tiles of {TURN_TILE}", estimate)


STREAM_BYTES = 8 << 10
"""Of a block of scores: with a mask and the rows' own operand it stays in L1."""


def streaming_candidate(region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> Candidate | Rejected:
    """Both contractions in one pass over blocks of keys."""
    found = find_online(region)
    if isinstance(found, str):
        return Rejected("cpu_streaming", found)
    lanes = target.lanes
    itemsize = lets_by_name(region)[found.first.acc].dtype.itemsize
    if lanes * 4 // itemsize not in (4, 8, 16):
        return Rejected("cpu_streaming", f"vectors of {lanes * 4 // itemsize} elements; transposing takes 4, 8 or 16")
    mr, nr = register_tile(target, itemsize)
    keys = max(lanes, STREAM_BYTES // (nr * itemsize) // lanes * lanes)
    plan = CpuStreaming(found.first.acc, found.second.acc, mr, nr, keys, lanes)
    estimate = streaming_estimate(region, facts, plan, found, target, sizes)
    return Candidate(plan, f"cpu_streaming {mr}x{nr}, keys in blocks of {keys}", estimate)


def split_candidate(region: Region, facts: RegionFacts, target: Target, sizes: Mapping[str, int]) -> Candidate | None:
    """Several Regions, when a contraction of them pays."""
    parts = split_parts(region)
    if not parts:
        return None
    return Candidate(CpuSplit(parts), f"cpu_split into {len(parts)} parts", split_estimate(region, facts, parts, target, sizes))


def split_estimate(
    region: Region, facts: RegionFacts, parts: tuple[tuple[str, ...], ...], target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """What crosses from part to part is written and read once more."""
    extents, lets = all_axes(region), lets_by_name(region)
    found = {c.acc: c for c in facts.contractions}
    threads = max(1, target.cores)
    compute = 0.0
    for own in split_region(region, parts, set()):
        c = next((found[let.name] for let in own.lets if let.name in found), None)
        sides = () if c is None else tuple(trips(region, group, sizes) for group in (c.m, c.n, c.k))
        if c is not None and min(sides) >= 4 and sides[1] * sides[0] >= 64:
            work = 2.0 * trips(region, (*c.batch, *c.m, *c.n, *c.k), sizes)
            waste = 1.0 + 8.0 / min(sides)
            compute += work * waste / (target.flops_fp32 * 0.6) / threads
            continue
        bones = skeleton(own, sizes, target.l2_bytes)
        rows = rows_candidate(own, facts, bones, target, sizes, vector_widths(target)[0])
        compute += rows.estimate["compute"] if isinstance(rows, Candidate) else 1.0
    crossing = sum(
        size_at(product(extents[a] for a in lets[n].axes), sizes) * lets[n].dtype.itemsize for n in crossing_lets(region, parts)
    )
    bandwidth = target.bandwidth * (4 if crossing * 2 < target.l3_bytes else 1)
    memory = seconds_of_bytes(facts, target, sizes) + 2.0 * crossing / bandwidth
    launch = target.launch_seconds * len(parts)
    return {"compute": compute, "memory": memory, "launch": launch, "total": compute + 2.0 * crossing / bandwidth + launch}


def plan_estimate(
    region: Region, facts: RegionFacts, plan: SchedulePlan, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """The terms of one plan of a Region that is not opaque."""
    match plan:
        case Scalar() | CpuRows():
            return loops_estimate(region, facts, plan, target, sizes)
        case CpuContraction():
            return contraction_estimate(region, facts, plan, target, sizes)
        case CpuWinograd():
            return {} if isinstance(find_winograd(region), str) else winograd_estimate(region, facts, plan, target, sizes)
        case CpuWindow():
            sliding = find_window(region)
            return {} if isinstance(sliding, str) else window_estimate(region, facts, plan, sliding, target, sizes)
        case CpuTurn():
            turned = find_turned(region)
            return {} if isinstance(turned, str) else turn_estimate(region, facts, plan, turned, target, sizes)
        case CpuStreaming():
            pair = find_online(region)
            return {} if isinstance(pair, str) else streaming_estimate(region, facts, plan, pair, target, sizes)
        case CpuSplit(parts=parts):
            return split_estimate(region, facts, parts, target, sizes)
        case _:
            return {}
