"""CPU candidates that only convolutions have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

import msgspec

from tatami.core.diagnostic import Diagnostic
from tatami.core.dtype import DType
from tatami.core.target import CACHE_LINE, Target, lanes_of
from tatami.plan.cpu.contraction import MANY, busiest_load, register_tile
from tatami.plan.cpu.convolution_alternatives import planes_alternatives, winograd_alternatives
from tatami.plan.cpu.tile_rules import tile_rules
from tatami.plan.cpu_kind import Asked, CpuKind
from tatami.plan.ir import TURNED_LANES, Candidate, CpuPlanes, CpuWinograd, Rejected
from tatami.plan.loops.estimate import (
    PEAK_SHARE_CONTRACTION,
    clock,
    multiply_adds_per_cycle,
    operations,
    rank,
    roofline,
    seconds_per_packed_byte,
    threads_of_products,
    trips,
)
from tatami.plan.loops.rules import invalid_plan
from tatami.plan.loops.schedule import size_at
from tatami.plan.memory.packed_operands import is_packable
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Region
from tatami.region.views.images.convolution import Convolution, find_convolution, window_size, with_still_axis
from tatami.region.views.images.planes import BAND_ROWS, BANDS, panel_of, planes_of, reach_of
from tatami.region.views.images.winograd import MATRICES, RESULTS, TILES, WINDOW, products_of
from tatami.region.views.kinds import epilogue_of, operand_tensor
from tatami.region.walk import all_axes, lets_by_name

NARROW_SHARE, IDLE_SHARE = 0.92, 0.2
"""Fraction of the FMA peak reached when a tile row is a single vector on a core with more than one FMA per cycle: one load per
FMA; and the fraction of that lost to idle accumulator registers."""
EVEN = 1.05
"""Maximum ratio of the busiest thread's tiles to the average for blocks of tiles that count as balanced."""
CHANNELS_PER_CALL = 5.0
"""Overhead of a call of the micro-kernel, and of writing the sums of one position, in channels that it could sum meanwhile:
measured at 16 to 256 channels."""
TRANSFORM_SHARE = 0.65
"""Ratio of the time of both transforms to that of their operations, with loads and stores: measured at images of 3 to 28 rows."""
CYCLES_PER_STORE = 10.0
"""Cycles to store one vector into a panel if it crosses lines whose rest another channel writes, or only some of its lanes are
stored."""
CYCLES_PER_APART = 1.0
"""Cycles to copy one entry of the image, or to store one result, where neighbours lie apart: in the phases of dilated columns."""
CYCLES_PER_LINE = 2.0
"""Cycles to store one whole vector into a panel within a line, or as a line of its own."""


def find_winograd(region: Region) -> Convolution | str:
    """The convolution that tiles apply to, or the reason why they do not, in numbers."""
    found = find_convolution(region)
    return found if isinstance(found, str) else _not_tiles(region, found) or _refusal(region, found) or found


def find_planes(region: Region) -> Convolution | str:
    """The convolution that planes apply to, or the reason why they do not, in numbers."""
    found = find_convolution(region)
    if isinstance(found, str):
        return found
    found = with_still_axis(region, found)
    return _not_planes(region, found) or _refusal(region, found) or found


def _refusal(region: Region, found: Convolution) -> str:
    """The reason why no template of convolutions takes this one, or ""."""
    acc = lets_by_name(region)[found.shape.acc]
    if acc.dtype not in (DType.fp32, DType.fp64):
        return f"it accumulates in {acc.dtype}; the template takes fp32 and fp64"
    if any(y.source not in (acc.name, *epilogue_of(region, acc.name)) for y in region.yields):
        return "an output is not made from the accumulator in place"
    return ""


def _not_planes(region: Region, found: Convolution) -> str:
    sizes = [window_size(region, s) for s in found.slides]
    windows = " x ".join(map(str, sizes))
    if len(sizes) > 2 or any(size.as_int() is None for size in sizes):
        return f"a window of {windows}; the template takes 1 or 2 known extents"
    return ""


def _not_tiles(region: Region, found: Convolution) -> str:
    extents = all_axes(region)
    windows = " x ".join(str(extents[s.window]) for s in found.slides)
    if len(found.slides) != 2 or any(extents[s.window].as_int() != WINDOW for s in found.slides):
        return f"a window of {windows}; the template takes 3 x 3"
    if wrong := next((s for s in found.slides if s.stride not in TILES or s.dilation != 1 < s.stride), None):
        return (
            f"stride {wrong.stride}, dilation {wrong.dilation}; the template takes strides 1 and 2, and dilation with stride 1"
        )
    return ""


def winograd_candidates(asked: Asked) -> Iterable[Candidate | Rejected]:
    """The plan by tiles of a transformed image; nothing if there is no convolution."""
    found = find_convolution(asked.region) if asked.kind == "contraction" else ""
    if not isinstance(found, str):
        why = _not_tiles(asked.region, found) or _not_packed(asked, found)
        made = why or winograd_candidate(asked.region, asked.facts, found, asked.target, asked.sizes)
        yield Rejected("cpu_winograd", made) if isinstance(made, str) else made


def planes_candidates(asked: Asked) -> Iterable[Candidate | Rejected]:
    """The plan with the image copied to planes; nothing if there is no convolution."""
    found = find_convolution(asked.region) if asked.kind == "contraction" else ""
    if not isinstance(found, str):
        images = with_still_axis(asked.region, found)
        why = _not_planes(asked.region, images) or _not_packed(asked, found)
        made = why or planes_candidate(asked.region, asked.facts, images, asked.target, asked.sizes)
        yield Rejected("cpu_planes", made) if isinstance(made, str) else made


def _not_packed(asked: Asked, found: Convolution) -> str:
    """The reason why `setup` cannot pack the weights of a convolution that a template could otherwise take, or ""."""
    if why := _refusal(asked.region, found):
        return why
    axes = (*found.shape.batch, *found.shape.k, *found.filters)
    if operand_tensor(found.weights) in asked.constants and is_packable(asked.region, found.weights, axes):
        return ""
    return "its weights are not a constant of known extents, and setup packs constants only"


def winograd_candidate(
    region: Region, facts: RegionFacts, found: Convolution, target: Target, sizes: Mapping[str, int]
) -> Candidate | Rejected:
    """The fastest plan with fewer products for a 3x3 convolution."""
    weights = operand_tensor(found.weights)
    itemsize = lets_by_name(region)[found.shape.acc].dtype.itemsize
    if (lanes := lanes_of(target.lanes, itemsize)) not in TURNED_LANES:
        return Rejected("cpu_winograd", f"vectors of {lanes} elements; transposing takes 4, 8 or 16")
    made: list[Candidate] = []
    most = target.vector_registers - 4
    narrow = [(mr, lanes) for mr in (most, lanes) if 0 < mr <= most]
    for mr, nr in (register_tile(target, itemsize), *narrow):
        plan = _winograd_plan(region, found, (mr, nr), weights, target, sizes)
        if nr == lanes:
            plan = msgspec.structs.replace(plan, mr=min(mr, -(-plan.rows * plan.columns // 4) * 4))
        line = f"cpu_winograd {plan.mr}x{plan.nr}, blocks of {plan.rows}x{plan.columns} tiles, split {plan.split}"
        made.append(Candidate(plan, line, winograd_estimate(region, facts, plan, found, target, sizes)))
    return min(made, key=lambda c: rank(c.estimate))


def _winograd_plan(
    region: Region, found: Convolution, tile: tuple[int, int], weights: str, target: Target, sizes: Mapping[str, int]
) -> CpuWinograd:
    """Blocks of tiles whose panels and sums fill three quarters of L2, whole rows if possible. If the weights stay in L2 too,
    blocks are small enough for two copies of a channel's tiles in L1: the transformed tiles, and the lines of panels that the
    next channel continues. Blocks are half to twice as large if threads then have equal numbers of tiles: measured, load
    imbalance costs more."""
    mr, nr = tile
    itemsize = lets_by_name(region)[found.shape.acc].dtype.itemsize
    extents = all_axes(region)
    outer, height, width = _tile_grid(region, found, sizes)
    channels, filters = (trips(region, group, sizes) for group in (found.channels, found.filters))
    cores = max(1, target.cores)
    most = max(mr, target.l2_bytes * 3 // 4 // (products_of(found.slides) * itemsize * (channels + nr)))
    kc = 384 if target.l2_bytes >= 512 << 10 else 256
    is_open = [extents[s.axis].as_int() is None for s in found.slides]
    if MATRICES**2 * channels * filters * itemsize <= target.l2_bytes // 2:
        kept = target.l1_bytes // 3 // (2 * products_of(found.slides) * itemsize)
        most = min(most, max(4 * mr, kept if any(is_open) else min(kept, outer * height * width // (4 * cores))))
    columns = width if width <= 2 * most else -(-width // -(-width // most))
    if any(is_open):  # the kernel cuts blocks of this many tiles from the actual rows
        rows, columns = (1, most) if is_open[1] else (max(1, round(most / columns)), columns)
        return CpuWinograd(found.shape.acc, rows, columns, mr, nr, kc, target.lanes, "tiles", (weights,))
    rows = max(1, min(height, round(most / columns)))
    rows = -(-height // -(-height // rows))
    sizes_near = range(max(1, -(-most // (2 * columns))), min(height, 2 * most // columns) + 1)
    near = [r for r in sizes_near if r == -(-height // -(-height // r))]
    near.sort(key=lambda r: (r != rows, abs(r * columns - most)))
    even = next((r for r in near if _unevenness(outer, height, width, r, columns, cores) <= EVEN), 0)
    rows = even or rows
    items = outer * -(-height // rows) * -(-width // columns)
    split = "tiles" if even or items >= 2 * cores else "channels"
    return CpuWinograd(found.shape.acc, rows, columns, mr, nr, kc, target.lanes, split, (weights,))  # type: ignore[arg-type]


def _tile_grid(region: Region, found: Convolution, sizes: Mapping[str, int]) -> tuple[int, int, int]:
    """Number of images of tiles (each phase of a dilated dimension is one of its own), and rows and columns of tiles of each."""
    extents = all_axes(region)
    results = [-(-size_at(extents[s.axis], sizes) // s.dilation) for s in found.slides]
    height, width = (-(-n // RESULTS) for n in results)
    phases = prod(s.dilation for s in found.slides)
    return trips(region, (*found.shape.batch, *found.images), sizes) * phases, height, width


def _unevenness(outer: int, height: int, width: int, rows: int, columns: int, threads: int) -> float:
    """Load imbalance: the busiest thread's tiles over the average, if threads take blocks as they come; 1 for many blocks."""
    if outer * -(-height // rows) * -(-width // columns) > MANY * threads:
        return 1.0
    downs, acrosses = range(0, height, rows), range(0, width, columns)
    tiles = [min(rows, height - i) * min(columns, width - j) for _ in range(outer) for i in downs for j in acrosses]
    return busiest_load(tiles, threads) * threads / sum(tiles)


def winograd_estimate(
    region: Region, facts: RegionFacts, plan: CpuWinograd, found: Convolution, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Terms in seconds: the products of whole slivers; vector cycles of both transforms; weights that a block streams from
    beyond L2, beyond the time of the first panel's products, since the other panels find them in cache. If L3 does not hold
    the transformed weights, those beyond the window's own add to the products: measured."""
    acc = lets_by_name(region)[plan.acc]
    lanes = lanes_of(plan.width, acc.dtype.itemsize)
    outer, height, width = _tile_grid(region, found, sizes)
    channels, filters = trips(region, found.channels, sizes), trips(region, found.filters, sizes)
    slivers = -(-filters // plan.nr)
    tiles = outer * height * width
    products = products_of(found.slides)
    flops = 2.0 * products * tiles * channels * slivers * plan.nr
    threads = threads_of_products(flops, target.cores)
    rate = clock(target) * threads
    idle = 1.0 - plan.mr / max(plan.mr, target.vector_registers - 4)
    narrow = plan.nr == lanes and multiply_adds_per_cycle(target) > 1.0
    share = PEAK_SHARE_CONTRACTION * (NARROW_SHARE * (1.0 - IDLE_SHARE * idle) if narrow else 1.0)
    share /= 1.0 + CHANNELS_PER_CALL / channels
    compute = flops / (target.flops_fp32 * share) / threads
    vectors = outer * channels * height * -(-width // lanes)
    seen = [RESULTS * n * s.stride + 2.0 for n, s in zip((height, width), found.slides)]
    into = vectors * 4.0 * products + outer * channels * seen[0] * seen[1] * 1.5 / lanes
    if found.slides[-1].dilation > 1:
        into += (outer * channels * seen[0] * seen[1] + tiles * RESULTS**2 * filters) * CYCLES_PER_APART / TRANSFORM_SHARE
    stores = tiles * channels * products / plan.mr * -(-plan.mr // lanes)
    is_whole = plan.split == "tiles" and lanes * acc.dtype.itemsize < CACHE_LINE
    panels = stores * (CYCLES_PER_LINE if is_whole or plan.mr % lanes == 0 else CYCLES_PER_STORE)
    after = operations(region, tuple(n for n in lets_by_name(region) if n != plan.acc))
    back = tiles * slivers * plan.nr / lanes * (3.0 * products + RESULTS**2 * (4.0 + after))
    rows, columns = _block(region, found, plan, height, width)
    blocks = outer * -(-height // rows) * -(-width // columns)
    matrix = channels * slivers * plan.nr * acc.dtype.itemsize
    is_near = MATRICES**2 * matrix * 2 <= target.l2_bytes
    far = 0.0 if is_near else blocks * products * matrix * seconds_per_packed_byte(target) / 2 / threads
    far = max(0.0, far - compute / -(-min(tiles, rows * columns) // plan.mr))
    if MATRICES**2 * matrix >= target.l3_bytes // 2:
        far += (MATRICES**2 - WINDOW**2) * matrix / max(target.bandwidth, 1.0)
    transform = TRANSFORM_SHARE * (into + panels + back) / rate
    return roofline({"compute": compute, "transform": transform, "weights": far}, facts, target, sizes)


def _block(region: Region, found: Convolution, plan: CpuPlanes | CpuWinograd, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of a block of an image of that size: for an open width, as many more rows as keep the block's number of
    entries; for an open height, bands for threads to divide."""
    extents = all_axes(region)
    columns = min(plan.columns, max(1, width))
    rows = plan.rows
    if extents[found.slides[-1].axis].as_int() is None:
        rows = plan.rows * plan.columns // columns
    if len(found.slides) == 2 and extents[found.slides[0].axis].as_int() is None:
        least = BAND_ROWS if isinstance(plan, CpuPlanes) else BAND_ROWS // RESULTS
        rows = min(rows, max(least, -(-height // BANDS)))
    return max(1, min(rows, height)), columns


def planes_candidate(
    region: Region, facts: RegionFacts, found: Convolution, target: Target, sizes: Mapping[str, int]
) -> Candidate:
    """The plan with the image copied once, and products that find their operand by a table."""
    plan = _planes_plan(region, found, target, sizes)
    line = f"cpu_planes {plan.mr}x{plan.nr}, blocks of {plan.rows}x{plan.columns}"
    return Candidate(plan, line, planes_estimate(region, facts, plan, found, target, sizes))


def _reaches(region: Region, found: Convolution) -> tuple[tuple[int, int], int]:
    """Window extent below and right of a result, and number of planes per channel."""
    windows = [(s, size_at(window_size(region, s), {})) for s in found.slides]
    down, across = [0, *(reach_of(s, size) for s, size in windows)][-2:]
    return (down, across), prod(len(planes_of(s, size)) for s, size in windows)


def _image(region: Region, found: Convolution, sizes: Mapping[str, int]) -> tuple[int, int]:
    extents = all_axes(region)
    height, width = [1, *(size_at(extents[s.axis], sizes) for s in found.slides)][-2:]
    return height, width


def _planes_plan(region: Region, found: Convolution, target: Target, sizes: Mapping[str, int]) -> CpuPlanes:
    """Blocks whose planes fill half of L2: whole rows if some fit, at least two blocks per core; for an open width, blocks
    with this number of entries, which the kernel cuts from the actual rows. The operand of kc places of a sliver spans more
    lines than a packed one, and stays in L1 for all filters."""
    itemsize = lets_by_name(region)[found.shape.acc].dtype.itemsize
    mr, nr = register_tile(target, itemsize)
    (down, across), planes = _reaches(region, found)
    height, width = _image(region, found, sizes)
    room = target.l2_bytes // 2 // (trips(region, found.channels, sizes) * planes * itemsize)
    least = min(height, 2 * down + 1)
    cores = max(1, target.cores)
    images = trips(region, (*found.shape.batch, *found.images), sizes)
    wanted = 2 * cores if cores > 1 else 1
    parts = max(-(-width // max(2 * nr, room // (least + down) - across)), -(-wanted // max(1, images * height)))
    columns = -(-width // parts)
    if all_axes(region)[found.slides[-1].axis].as_int() is None:
        columns = max(2 * nr, min(OPEN_WIDTH, room // (least + down) - across))
        height, wanted = max(height, room // columns), 1
    rows = max(1, min(height, room // (columns + across) - down, images * parts * height // wanted))
    rows = -(-height // -(-height // rows))
    kc = max(64, target.l1_bytes * 3 // 4 // (nr * itemsize))
    return CpuPlanes(found.shape.acc, rows, columns, mr, nr, kc, target.lanes, (operand_tensor(found.weights),))


def _parts(height: int, rows: int) -> dict[int, int]:
    """Number of blocks of an image by their rows, balanced as kernels make them.

    >>> _parts(20, 8)
    {6: 1, 7: 2}
    """
    count = max(1, -(-height // rows))
    least, more = divmod(height, count)
    return {n: k for n, k in ((least, count - more), (least + 1, more)) if k}


OPEN_WIDTH = 1024
"""Maximum columns of a block if the width is open."""
CYCLES_PER_COPY = 12.0
"""Cycles per row of an image copied to a plane, in addition to its vectors, for the guards' ranges: measured at rows of 3 to 28
elements."""


def planes_estimate(
    region: Region, facts: RegionFacts, plan: CpuPlanes, found: Convolution, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Terms in seconds: the products of whole slivers (with the ends of rows among them) and whole panels; the copies, by
    vectors; the epilogue."""
    lanes = lanes_of(plan.width, lets_by_name(region)[plan.acc].dtype.itemsize)
    (down, across), planes = _reaches(region, found)
    height, width = _image(region, found, sizes)
    rows, columns = _block(region, found, plan, height, width)
    outer = trips(region, (*found.shape.batch, *found.images), sizes)
    channels, filters = trips(region, found.channels, sizes), trips(region, found.filters, sizes)
    down_blocks, beside = -(-height // rows), outer * -(-width // columns)
    blocks = down_blocks * beside
    slivers = beside * sum(k * -(-((n - 1) * (columns + across) + columns) // plan.nr) for n, k in _parts(height, rows).items())
    panel = panel_of(filters, plan.mr)
    padded = -(-filters // panel) * panel
    work = 2.0 * slivers * plan.nr * padded * trips(region, found.shape.k, sizes)
    threads = threads_of_products(work, min(target.cores, blocks))
    rate = clock(target) * threads
    compute = work / (target.flops_fp32 * PEAK_SHARE_CONTRACTION) / threads
    lines = beside * channels * planes * (height + down_blocks * down)
    copies = lines * (CYCLES_PER_COPY + 1.5 * -(-(columns + across) // lanes))
    after = operations(region, tuple(n for n in lets_by_name(region) if n != plan.acc))
    back = outer * height * -(-width // lanes) * filters * (2.0 + after / 2.0)
    return roofline({"compute": compute, "copies": (copies + back) / rate}, facts, target, sizes)


def _winograd_seconds(
    region: Region, facts: RegionFacts, plan: CpuWinograd, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    found = find_winograd(region)
    return {} if isinstance(found, str) else winograd_estimate(region, facts, plan, found, target, sizes)


def _planes_seconds(
    region: Region, facts: RegionFacts, plan: CpuPlanes, target: Target, sizes: Mapping[str, int]
) -> dict[str, float]:
    found = find_planes(region)
    return {} if isinstance(found, str) else planes_estimate(region, facts, plan, found, target, sizes)


def _image_blocks(plan: CpuWinograd | CpuPlanes, region: Region, target: Target) -> Iterator[Diagnostic]:
    found = find_winograd(region) if isinstance(plan, CpuWinograd) else find_planes(region)
    if isinstance(found, str):
        what = {CpuWinograd: "3x3 convolution to transform", CpuPlanes: "convolution to copy to planes"}
        yield invalid_plan(region, f"no {what[type(plan)]}: {found}", "use a cpu_contraction plan")
        return
    if plan.acc != found.shape.acc:
        yield invalid_plan(region, f"{plan.acc!r} is not the convolution; {found.shape.acc} is", f"name {found.shape.acc}")
    if plan.packed != (weights := operand_tensor(found.weights),):
        yield invalid_plan(region, f"packed {', '.join(plan.packed) or 'none'}; the weights are {weights}", f"pack {weights}")
    yield from tile_rules(plan, lets_by_name(region)[found.shape.acc].dtype, (plan.rows, plan.columns, plan.kc), region, target)


def _show_winograd(plan: CpuWinograd) -> list[str]:
    """The lines of a plan as text."""
    blocks = f"blocks of {plan.rows}x{plan.columns} tiles of 2x2, split {plan.split}, packed {', '.join(plan.packed)}"
    tile = f"tile {plan.mr}x{plan.nr}, kc {plan.kc}, width {plan.width}"
    return [f"cpu_winograd {plan.acc}", f"  {blocks}", f"  {tile}"]


def _show_planes(plan: CpuPlanes) -> list[str]:
    """The lines of a plan as text."""
    blocks = f"blocks of {plan.rows}x{plan.columns}, packed {', '.join(plan.packed)}"
    return [f"cpu_planes {plan.acc}", f"  {blocks}", f"  tile {plan.mr}x{plan.nr}, kc {plan.kc}, width {plan.width}"]


WINOGRAD = CpuKind(
    plan=CpuWinograd,
    regions=frozenset({"contraction"}),
    candidates=winograd_candidates,
    estimate=_winograd_seconds,
    check=_image_blocks,
    show=_show_winograd,
    alternatives=winograd_alternatives,
)
"""The kind of tiles of a transformed image."""

PLANES = CpuKind(
    plan=CpuPlanes,
    regions=frozenset({"contraction"}),
    candidates=planes_candidates,
    estimate=_planes_seconds,
    check=_image_blocks,
    show=_show_planes,
    alternatives=planes_alternatives,
)
"""The kind of images copied to planes."""
