"""A plan for two products in one kernel on the GPU (spec 3 §8, notes: gpu §4): its tile, and whether it has warp roles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

import msgspec

from tatami.core.algebra.visit import free_vars, step_of, substitute
from tatami.core.expr import ONE, ZERO, Expr, product
from tatami.core.kernel import Condition, is_divisible
from tatami.core.layout import address, slices
from tatami.core.target import Target
from tatami.plan.ir import TWO_PASS, Guarded, Rejected, Sm80Pair, Sm90Pair
from tatami.plan.loops.schedule import size_at
from tatami.plan.pairs.estimate import pair_estimate
from tatami.plan.pairs.work import balanced_section
from tatami.plan.views.pair_limits import MAX_SECTION, PairPlan, pair_limits, pair_rules
from tatami.plan.views.product_limits import MAX_SPLIT, sm80_instruction
from tatami.region.ir import Read, Region
from tatami.region.views.pairs.pair import PairView, pair_view
from tatami.region.walk import all_axes

TILES = ((128, 64, 32), (128, 32, 32), (64, 64, 16), (64, 32, 16), (128, 64, 16), (32, 64, 16), (16, 64, 16))
"""Tiles by warps: rows, keys per block, rows per warp."""
WIDE_TILES = ((128, 32, 32), (64, 32, 32), (128, 32, 16), (64, 32, 16), (64, 16, 16), (32, 32, 16), (16, 32, 16), (16, 16, 16))
"""The same for operands of 32 bits."""
STAGES = (1, 2)
"""Slots of keys and values of a plan by warps."""
ROLE_TILES = ((2, 176), (2, 128), (2, 112), (2, 80), (2, 64), (3, 128), (3, 96), (3, 64), (1, 128), (1, 64))
"""Tiles by roles: warpgroups of 64 rows, keys per block; those of published kernels before smaller ones (notes: gpu §4)."""
ROLE_TILES_OF_SEVERAL = ((2, 96), (2, 80), (2, 64), (2, 48), (2, 32), (3, 32), (1, 96), (1, 64))
"""The same if there are several first products, each with a tile of registers."""
ROLE_STAGES = (2, 3, 4)
"""Slots of keys and values of a plan by roles. The simulation picks one per tile: at depth 64 a third and a fourth pay, and
keys that are also the values stay until both products have read them."""
WIDEST = 256
"""Maximum depth and number of columns: registers and shared memory hold no more."""
SECTION_BYTES = 32 << 20
"""Keys and values, in bytes, of the batches whose tiles are interleaved: L2 holds them in addition to the rest (notes: gpu
§4)."""
LENGTH = 2048
"""Number of rows or keys assumed if it is not known: long enough that the plan decides the time, not memory or launches."""
CLOSE = 1.01
"""Ratio of times below which the simulation does not tell plans apart."""
PART_OF_LAUNCH = 0.1
"""Share of a launch, whose time is an assumption, below which plans by roles and by warps are not told apart."""
Fit = tuple[PairPlan, dict[str, float]]
"""A plan with the terms of its estimate."""


def choose_pair(
    region: Region, target: Target, sizes: Mapping[str, int]
) -> tuple[tuple[Guarded, ...], tuple[Rejected, ...]] | str:
    """The choices, for sizes that allow TMA or 16-byte copies and for all others, and the rejected plans with both numbers; or
    the reason why there is none. Copies are as wide as a choice's promises allow."""
    found = _pair_of(region)
    if isinstance(found, str):
        return found
    view, uneven = found
    fits, broken = _candidates(region, view, uneven, target, sizes)
    plain = next((f for f in fits if isinstance(f[0], Sm80Pair)), None)
    if plain is None:
        return broken[0].why
    (best, estimate), *others = fits
    total = estimate["total"]
    slower = [Rejected(name_pair(p), f"{_compared(e['total'], total)} {total * 1e6:.4g} us", e) for p, e in others]
    even = tuple(Condition(e, 16 // view.dtype.itemsize) for e in uneven if e.as_int() is None)
    promised = even if len(even) == len(uneven) else ()
    if isinstance(best, Sm90Pair):
        keys = all_axes(region)[view.keys]
        promised = (*promised, *(() if keys.as_int() is not None else (Condition(keys, low=1),)))
    choices = [Guarded(promised, best, estimate)]
    if promised:
        choices.append(Guarded((), *plain))
    return tuple(choices), (*broken, *slower)


def _compared(total: float, best: float) -> str:
    word = "slower" if total > CLOSE * best else "no quicker" if total >= best else "not told apart"
    return f"{word}: {total * 1e6:.4g} us against"


def pair_plans(region: Region, target: Target, sizes: Mapping[str, int]) -> tuple[Fit, ...]:
    """The plans that fit, with their estimates, the fastest first; empty if the template does not take the Region."""
    found = pair_candidates(region, target, sizes)
    return () if isinstance(found, str) else found[0]


def pair_candidates(
    region: Region, target: Target, sizes: Mapping[str, int]
) -> tuple[tuple[Fit, ...], tuple[Rejected, ...]] | str:
    """The plans that fit, with their estimates, the fastest first, and the plans that do not; or the reason why there is none."""
    found = _pair_of(region)
    return found if isinstance(found, str) else _candidates(region, *found, target, sizes)


def tunable_pairs(region: Region, target: Target, sizes: Mapping[str, int]) -> tuple[Fit, ...]:
    """The plans by roles that fit, of every tile of whole instructions, number of slots and order of warpgroups, with their
    estimates, the fastest first; empty if the template does not take the Region."""
    found = _pair_of(region)
    if isinstance(found, str) or target.isa != "sm90" or why_not_tma(region, *found):
        return ()
    view, _ = found
    tiles = tuple((consumers, keys) for consumers in (1, 2, 3) for keys in range(32, 257, 16))
    plans = _role_plans(region, view, target, sizes, tiles)
    fits = [p for p in plans if not [*pair_rules(p, view), *pair_limits(p, view, target)]]
    return _ranked([(p, pair_estimate(region, view, p, target, sizes)) for p in fits], target)


def estimate_of_pair(region: Region, plan: PairPlan, target: Target, sizes: Mapping[str, int]) -> dict[str, float]:
    """Estimate of a plan for a Region that is a pair of products."""
    view = pair_view(region)
    assert not isinstance(view, str), view
    return pair_estimate(region, view, plan, target, sizes)


def _pair_of(region: Region) -> tuple[PairView, tuple[Expr, ...]] | str:
    """The two products that the template takes, and those of their sizes and pitches that may not be multiples of 16 bytes; or
    the reason why there are none."""
    view = pair_view(region)
    if isinstance(view, str):
        return view
    extents = all_axes(region)
    depth, columns = extents[view.depth].as_int(), extents[view.columns].as_int()
    if depth is None or columns is None or not 0 < depth <= WIDEST or not 0 < columns <= WIDEST:
        return f"depth {extents[view.depth]}, {extents[view.columns]} columns: the template keeps 1 to {WIDEST} of each on chip"
    uneven = _uneven(region, view)
    return uneven if isinstance(uneven, str) else (view, uneven)


def _candidates(
    region: Region, view: PairView, uneven: tuple[Expr, ...], target: Target, sizes: Mapping[str, int]
) -> tuple[tuple[Fit, ...], tuple[Rejected, ...]]:
    """The plans that fit, with their estimates, the fastest first; and the plans that do not fit."""
    lengths = {name for a in (view.rows, view.keys) for name in free_vars(all_axes(region)[a])}
    sizes = {**dict.fromkeys(lengths, LENGTH), **sizes}
    plans = _warp_plans(region, view)
    broken: list[Rejected] = []
    if target.isa == "sm90":
        if why_not := why_not_tma(region, view, uneven):
            broken.append(Rejected("sm90_pair", why_not))
        else:
            plans = [*_role_plans(region, view, target, sizes), *plans]
    plans += _in_parts(region, view, plans, target, sizes)
    fits: list[Fit] = []
    for alike in _of_one_tile(plans):
        found = [(p, pair_estimate(region, view, p, target, sizes)) for p in alike]
        whys = [[*pair_rules(p, view), *pair_limits(p, view, target)] for p in alike]
        able = [f for f, why in zip(found, whys, strict=True) if not why]
        if able:
            least = min(e["total"] for _, e in able)
            fits.append(next(f for f in able if f[1]["total"] <= CLOSE * least))
        else:
            (plan, estimate), why = found[0], whys[0]
            broken.append(Rejected(name_pair(plan), why[0], estimate))
    return _ranked(fits, target), tuple(broken)


def _of_one_tile(plans: list[PairPlan]) -> Iterator[list[PairPlan]]:
    """Groups of plans that are one candidate: neighbours by roles that differ only in their slots, of which the one with the
    fewest slots counts that the simulation does not tell from the fastest. Every other plan is a group of its own."""
    for _, alike in groupby(plans, lambda p: msgspec.structs.replace(p, stages=0) if isinstance(p, Sm90Pair) else p):
        yield list(alike)


def _ranked(fits: list[Fit], target: Target) -> tuple[Fit, ...]:
    """The fastest first, except that the first proposed plan leads among those that the simulation does not tell from the
    fastest. Plans by roles precede plans by warps within a small part of a launch, whose time is an assumption."""
    fastest = min((e["total"] for _, e in fits), default=0.0)
    near = fastest + PART_OF_LAUNCH * target.launch_seconds
    taken = [f for f in fits if isinstance(f[0], Sm90Pair) and f[1]["total"] <= near] or fits
    least = min((e["total"] for _, e in taken), default=0.0)
    first = next((f for f in taken if f[1]["total"] <= CLOSE * least), None)
    ranked = sorted(fits, key=lambda f: (f[1]["total"], f[1]["compute"]))
    return tuple(sorted(ranked, key=lambda f: f is not first))


def _warp_plans(region: Region, view: PairView) -> list[PairPlan]:
    extents = all_axes(region)
    depth, columns = (-(-(extents[a].as_int() or 0) // 16) * 16 for a in (view.depth, view.columns))
    shape = sm80_instruction(view.dtype, view.tf32)
    others = tuple(f.acc for f in view.firsts[1:])
    shared = view.shared and shape != "fma"
    plan = Sm80Pair(
        view.first,
        view.second,
        (0, columns, 0),
        depth,
        0,
        0,
        (),
        algo_choice=algorithm_of(view),
        inst_shape=shape,
        others=others,
        shared=shared,
    )
    plans = [
        msgspec.structs.replace(plan, tile=(rows, columns, keys), warp_rows=warp_rows, stages=stages)
        for rows, keys, warp_rows in (TILES if view.dtype.is_narrow_float else WIDE_TILES)
        for stages in STAGES
    ]
    return [msgspec.structs.replace(p, predicate_tail=_tail(view, extents, p)) for p in plans]


def algorithm_of(view: PairView) -> dict[str, str]:
    """The algorithm that a plan names: weights that are pointwise in the scores have one only."""
    return {} if view.direct else {"attention": "one_pass"}


def _role_plans(
    region: Region,
    view: PairView,
    target: Target,
    sizes: Mapping[str, int],
    tiles: tuple[tuple[int, int], ...] = (),
) -> list[Sm90Pair]:
    """Plans by roles. If rows see different keys, tiles of several batches are interleaved: at most as many as have their keys
    and values in L2, and for known sizes as many as balance the SMs."""
    extents = all_axes(region)
    depth, columns = (-(-(extents[a].as_int() or 0) // 16) * 16 for a in (view.depth, view.columns))
    others = tuple(f.acc for f in view.firsts[1:])
    most = 0
    if view.low or view.high:
        streamed = len(view.firsts) * depth + (0 if view.shared else columns)
        bytes_of_batch = 2 * size_at(extents[view.keys], sizes) * streamed
        most = min(MAX_SECTION, max(1, SECTION_BYTES // max(1, bytes_of_batch)))
    known = all(extents[a].as_int() is not None for a in (*view.batch, view.rows, view.keys))
    out: list[Sm90Pair] = []
    for consumers, keys in tiles or (ROLE_TILES_OF_SEVERAL if others else ROLE_TILES):
        tile = (64 * consumers, columns, keys)
        plan = Sm90Pair(
            view.first,
            view.second,
            tile,
            depth,
            consumers,
            2,
            (),
            others=others,
            shared=view.shared,
            algo_choice=algorithm_of(view),
        )
        section = balanced_section(region, view, plan, target, sizes, most) if most and known else most
        tail = _tail(view, extents, plan)
        plan = msgspec.structs.replace(plan, registers=REGISTERS[consumers], section=section, predicate_tail=tail)
        for in_turns in (True, False) if consumers > 1 else (False,):
            for slots in ROLE_STAGES:
                out.append(msgspec.structs.replace(plan, in_turns=in_turns, stages=slots))
    return out


REGISTERS = {1: (56, 224), 2: (24, 240), 3: (32, 160)}
"""setmaxnreg of producer and consumers, by the number of consumers (notes: gpu §4)."""
PARTS_REGISTERS = REGISTERS | {2: (40, 232)}
"""The same if a tile's keys are split: the producer then counts parts too."""


def _in_parts(
    region: Region, view: PairView, plans: list[PairPlan], target: Target, sizes: Mapping[str, int]
) -> list[PairPlan]:
    """Plans with the keys of each tile split, made from those with fewer tiles than SMs: for example one query and long
    keys."""
    if view.nan_weight is not None or not view.divided:
        return []
    extents = all_axes(region)
    batch = size_at(product(extents[a] for a in view.batch), sizes)
    rows, keys = size_at(extents[view.rows], sizes), size_at(extents[view.keys], sizes)
    out: list[PairPlan] = []
    for plan in plans:
        tiles, blocks = batch * -(-rows // plan.tile[0]), -(-keys // plan.tile[2])
        split = min(MAX_SPLIT, target.sms // max(1, tiles), blocks // 2)
        if split > 1 and tiles == batch:
            if isinstance(plan, Sm90Pair):
                plan = msgspec.structs.replace(plan, section=0, registers=PARTS_REGISTERS[plan.consumers])
            out.append(msgspec.structs.replace(plan, split=split))
    return out


def _tail(view: PairView, extents: Mapping[str, Expr], plan: PairPlan) -> tuple[str, ...]:
    """Axes whose size is not known to be a multiple of the tile; one may be both the columns and the depth."""
    bm, bn, bk = plan.tile
    axes = ((view.rows, bm), (view.columns, bn), (view.keys, bk), (view.depth, plan.depth))
    return tuple(dict.fromkeys(a for a, tile in axes if not is_divisible(extents[a], tile)))


def why_not_tma(region: Region, view: PairView, uneven: tuple[Expr, ...]) -> str:
    """The rule of wgmma or of tensor maps that an operand breaks; "" if none. Sizes for which a guard can promise break
    none."""
    if not view.dtype.is_narrow_float:
        return f"wgmma multiplies fp16 and bf16, not {view.dtype}"
    memrefs = {p.name: p.memref for p in region.inputs}
    extents = all_axes(region)
    for e in uneven:
        if e.as_int() is not None:
            return f"TMA needs pitches of whole 16 bytes; one is {e} elements"
    if extents[view.keys].as_int() == 0:
        return "a tensor map has no dimension of size 0; there is no key"
    for read, *axes in _operands(view):
        at = address(memrefs[read.tensor].layout, memrefs[read.tensor].shape, read.map)
        outer = slices(substitute(at, dict.fromkeys(axes, ZERO)), {a: extents[a] for a in view.batch})
        if outer is None or len(outer) > 3:
            return f"{read.tensor} is not a tensor of at most 5 even steps: its batches start at {substitute(at, dict.fromkeys(axes, ZERO))}"
    return ""


def _operands(view: PairView) -> tuple[tuple[Read, str, str], ...]:
    firsts = [((f.left, view.rows, f.depth), (f.right, view.keys, f.depth)) for f in view.firsts]
    return (*(operand for both in firsts for operand in both), (view.values, view.keys, view.columns))


def _uneven(region: Region, view: PairView) -> tuple[Expr, ...] | str:
    """Sizes and pitches that may not be multiples of 16 bytes; or the operand that is not a matrix in memory."""
    memrefs = {p.name: p.memref for p in region.inputs}
    extents = all_axes(region)
    out: dict[Expr, None] = {}
    for read, *axes in _operands(view):
        at = address(memrefs[read.tensor].layout, memrefs[read.tensor].shape, read.map)
        steps = {a: step_of(at, a) for a in axes}
        if None in steps.values() or ONE not in steps.values():
            return f"{read.tensor} is contiguous along neither of {', '.join(axes)}"
        offset = substitute(at, dict.fromkeys(axes, ZERO))
        pitches = [extents[a] if step == ONE else step for a, step in steps.items()]
        pitches += [step_of(offset, a) or offset for a in view.batch if a in free_vars(offset)]
        out |= {e: None for e in pitches if e is not None and not is_divisible(e, 16 // view.dtype.itemsize)}
    return tuple(out)


def name_pair(plan: PairPlan) -> str:
    """One line that identifies a plan."""
    bm, bn, bk = plan.tile
    head = f"{plan.arch}_pair {bm}x{bn}x{bk} depth {plan.depth}"
    parts = f", keys in {plan.split} parts" if plan.split > 1 else ""
    parts += ", two passes" if plan.algo_choice.get("attention") == TWO_PASS else ""
    match plan:
        case Sm80Pair():
            with_ = "" if plan.inst_shape == "m16n8k16" else f" {plan.inst_shape}"
            return f"{head}{with_} warps of {plan.warp_rows} stages {plan.stages}{parts}"
        case Sm90Pair():
            how = f"{', in turns' if plan.in_turns else ''}{f', {plan.section} batches mixed' if plan.section else ''}"
            return f"{head} consumers {plan.consumers} stages {plan.stages}{how}{parts}"
