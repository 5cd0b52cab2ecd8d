"""Plans behind guards: other plans of a Region for sizes at which its own is far from the best.

    plan when B <= 4               blocks of 28x112       for few images, threads divide the rows of one
    plan when 448 <= T             tile 12x32, swap       chosen for T = 500
    plan                           blocks of 56x112       for all other sizes: chosen for the hints

Estimates are compared at a few points: one, few and many elements of an open axis; with several open axes, mostly one image,
text or sound of small, usual and large sizes, as in most calls. If the plan for the hints takes at least GAIN times as long as
the best plan at a point, the best one is kept behind a box of sizes around the point in which it stays ahead. A plan of another
kind has to be further ahead, since estimates of different kinds deviate more from each other. Only kernels with a considerable
share of the program's estimate are examined, and few plans are kept, since each is compiled (decision 0048).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import var
from tatami.core.kernel import Condition
from tatami.core.target import Target
from tatami.plan.choose_cpu import asked, cpu_candidates, guarded, plan_estimate
from tatami.plan.ir import Candidate, CpuContraction, CpuPlaces, CpuPlanes, CpuRows, CpuStreaming, Guarded, SchedulePlan
from tatami.plan.loops.estimate import rank
from tatami.plan.memory.packed_operands import packed_operands
from tatami.plan.usual_sizes import LEAST
from tatami.poly_core.ir import RegionFacts
from tatami.region.ir import Region
from tatami.region.walk import all_axes

Sizes: TypeAlias = Mapping[str, int]
SMALL, LARGE = 14, 500
"""Sizes that stand for few and for many elements of an axis, in addition to 1 and the hint. They are not multiples of vector
lengths, since few sizes are, so that tails count."""
NEAR = 4.0
"""Ratio of the bandwidth of a cache to that of memory."""
FAR_RATIO = 3
"""Minimum ratio between a size and its hint for other plans to be examined."""
SHARE = 0.03
"""Minimum share of the program's estimate at a point for a kernel to be examined there."""
GAIN, AHEAD = 1.3, 1.05
"""Minimum ratio of the own plan's time to the other's: at the point, and everywhere behind the guard. Estimates err by as
much."""
GAIN_OF_KINDS, AHEAD_OF_KINDS = 2.0, 1.5
"""The same ratios for a plan of another kind."""
PRODUCTS: frozenset[type] = frozenset([CpuContraction, CpuPlanes, CpuPlaces])
"""Kinds of plans whose estimates count the same products: of whole tiles of the register micro-kernel."""
ATTENTION: frozenset[type] = frozenset([CpuStreaming, CpuRows])
"""Kinds of plans of attention: slivers of rows for many rows, loops over the keys of one row for a few (decode)."""
MOST_PLANS, MOST_GUARDED = 2, 6
"""Maximum number of guarded plans per Region, and of their kernels per program, since each is compiled."""
MOST_PACKED = 1 << 20
"""Maximum bytes of weights that `setup` packs in one more form for a guarded plan."""
FEW_ROWS = (4, 14)
"""Rows of attention, texts or images up to which guards of their own are looked for, with as many keys or places as each of them may
have."""
GRID = (1, 2, 4, *(7 << n for n in range(14)))
"""Sizes at which the range of a guard may end."""


@dataclass(frozen=True)
class Planned:
    """A Region in canonical names, with its own plan. `symbols`: the Region's names of the program's symbols."""

    region: Region
    facts: RegionFacts
    own: Guarded
    constants: frozenset[str]
    symbols: Mapping[str, str]

    def at(self, sizes: Sizes) -> dict[str, int]:
        """The sizes by the Region's names."""
        return {own: sizes[name] for name, own in self.symbols.items() if name in sizes}


@dataclass(frozen=True)
class _Growth:
    """How a box of sizes grows from a point. Symbols of a group grow and shrink together, so that a box of images is as high as it
    is wide; `ahead`: the least ratio of times inside; `most`: sizes beyond which symbols do not grow."""

    groups: Sequence[Collection[str]]
    ahead: float
    most: Sizes


@dataclass(frozen=True)
class _Found:
    """A plan that is better at a point, the `number` of its Region, and the share of the program's time that it saves."""

    number: int
    guarded: Guarded
    saved: float


def behind_guards(
    planned: Sequence[Planned], symbols: Sequence[str], target: Target, sizes: Sizes, least: Sizes
) -> list[tuple[Guarded, ...]]:
    """For each of `planned`, the guarded plans that precede its own. `symbols`: the program's open sizes, the first of them
    whose hint is not 1 the number of images, texts, sounds or rows; `sizes`: the hints; `least`: sizes below which no call is expected."""
    symbols = sorted(symbols, key=lambda s: sizes.get(s) == 1)
    first = [next(i for i, q in enumerate(planned) if _are_alike(p, q)) for p in planned]
    found: list[_Found] = []
    for point in points(symbols, sizes, least):
        time_of = {i: _seconds(planned[i], planned[i].own.plan, target, planned[i].at(point)) for i in sorted(set(first))}
        times = [time_of[i] for i in first]
        for i in time_of:
            share = sum(t for k, t in zip(first, times) if k == i) / max(sum(times), 1e-12)
            better = _better(planned[i], symbols, target, planned[i].at(point), time_of[i]) if share >= SHARE else None
            if better is not None:
                choices, gain = better
                found += [_Found(i, guarded, share * (1 - 1 / gain)) for guarded in choices]
    kept: list[_Found] = []
    for f in sorted(found, key=lambda f: -f.saved):
        if _is_new(f, kept):
            kept.append(f)
    return [tuple(f.guarded for f in kept if f.number == i) for i in first]


def _are_alike(p: Planned, q: Planned) -> bool:
    return p.region == q.region and p.own.plan == q.own.plan and p.constants == q.constants and p.symbols == q.symbols


def points(symbols: Sequence[str], sizes: Sizes, least: Sizes) -> Iterator[dict[str, int]]:
    """Sizes at which other plans are examined: one, few and many for one symbol; mostly one image, text or sound for several. A
    sound is cut into frames, so that few of its samples are one frame.

    >>> [tuple(p.values()) for p in points(("T",), {}, {})]
    [(1,), (14,), (500,)]
    >>> [tuple(p.values()) for p in points(("B", "H", "W"), {}, {"W": 4})]
    [(1, 14, 14), (1, 128, 128), (1, 500, 500), (14, 128, 128)]
    >>> [(p["B"], p["N"]) for p in points(("B", "N"), {"N": 2048}, {"N": 2048})]
    [(1, 512), (1, 2048), (14, 2048)]
    """
    hints = {s: sizes.get(s, 128) for s in symbols}
    first, *others = hints
    few = dict.fromkeys(symbols, SMALL)
    if len(frames := {s: n // LEAST for s, n in least.items() if n // LEAST > SMALL}) == 1:
        few, least = {**few, **frames}, {**least, **frames}
    one, large = dict.fromkeys(symbols, 1), dict.fromkeys(symbols, LARGE)
    found = [{**size, first: 1} for size in (one, few, hints, large)] if others else []
    found += [{**hints, first: SMALL}] if others else [{first: v} for v in (1, few[first], LARGE)]
    for point in found:
        is_far = any(max(n, hints[s]) >= FAR_RATIO * min(n, hints[s]) for s, n in point.items())
        if is_far and all(n >= least.get(s, 1) for s, n in point.items()):
            yield {**sizes, **point}


def _seconds(p: Planned, plan: SchedulePlan, target: Target, sizes: Sizes) -> float:
    return seconds_near(plan_estimate(p.region, p.facts, plan, target, sizes), target)


def seconds_near(estimate: Mapping[str, float], target: Target) -> float:
    """Time of a plan whose operands are in cache, as they are between the kernels of a program: memory is NEAR times as fast
    then, so that computation counts."""
    memory = estimate.get("memory", 0.0)
    if not estimate or memory * target.bandwidth > target.l3_bytes / 2:
        return estimate.get("total", 0.0)
    return max(rank(estimate)[1], memory / NEAR) + estimate.get("launch", 0.0)


def _better(
    p: Planned, symbols: Sequence[str], target: Target, sizes: Sizes, seconds: float
) -> tuple[list[Guarded], float] | None:
    """The best plan at a point, behind its guard, if the Region's own takes at least GAIN times as long; and that gain. Else
    None. Attention and plans of another kind have further guards: a few more rows or texts, if what each of them reads or holds
    stays near; the plan is the same, so that nothing more is compiled."""
    if not p.symbols:
        return None
    question = asked(p.region, p.facts, target, sizes, p.constants)
    kinds = _comparable(type(p.own.plan))
    comparable, _ = cpu_candidates(question, kinds)
    ahead_here = [c for c in comparable if c.plan != p.own.plan and _gain(c, seconds, target) >= _gains(c.plan, p.own.plan)[0]]
    if not ahead_here:
        return None
    every, _ = cpu_candidates(question)
    taken = every[0]
    if type(taken.plan) not in kinds:
        taken = min(comparable, key=lambda c: seconds_near(c.estimate, target))
    if taken not in ahead_here or _packs_much(p, taken.plan):
        return None
    best, gain, ahead = guarded(p.region, taken, sizes), _gain(taken, seconds, target), _gains(taken.plan, p.own.plan)[1]
    names = {n for size in all_axes(p.region).values() for n in free_vars(size)}
    number = {p.symbols.get(symbols[0], "")} & names
    groups, point = (names - number, number), {n: sizes.get(n, 128) for n in sorted(names)}
    made: list[Guarded] = []
    ways = [(groups, GRID[-1]), *((groups[::-1], most) for most in FEW_ROWS)]
    is_wide = type(p.own.plan) is CpuStreaming or type(best.plan) is not type(p.own.plan)
    for order, most in ways if is_wide and all(groups) else ways[:1]:
        box = _box(p, best.plan, target, point, _Growth(order, ahead, dict.fromkeys(number, most)))
        limits = {n: (0 if low == GRID[0] else low, 0 if high == GRID[-1] else high) for n, (low, high) in box.items()}
        conditions = tuple(Condition(var(n), 1, *limits[n]) for n in sorted(names) if any(limits[n]))
        if conditions and all(g.conditions != conditions for g in made):
            made.append(Guarded(conditions, best.plan, best.estimate))
    return (made, gain) if made else None


def _gain(c: Candidate, seconds: float, target: Target) -> float:
    """The ratio of the own plan's time to that of a candidate."""
    return seconds / max(seconds_near(c.estimate, target), 1e-12)


def _comparable(own: type) -> frozenset[type]:
    """The kinds of plans whose estimates can be compared with those of the own plan's kind."""
    return PRODUCTS if own in PRODUCTS else ATTENTION if own is CpuStreaming else frozenset([own])


def _gains(plan: SchedulePlan, own: SchedulePlan) -> tuple[float, float]:
    """Minimum ratio of the own plan's time to that of a comparable one for it to be kept: at the point, and everywhere behind
    the guard."""
    return (GAIN, AHEAD) if type(plan) is type(own) else (GAIN_OF_KINDS, AHEAD_OF_KINDS)


def _box(p: Planned, plan: SchedulePlan, target: Target, point: Sizes, growth: _Growth) -> dict[str, tuple[int, int]]:
    """Smallest and largest size of each symbol for which the plan stays ahead, checked at the corners."""

    def is_ahead(corner: Sizes) -> bool:
        return _seconds(p, p.own.plan, target, corner) >= growth.ahead * _seconds(p, plan, target, corner)

    box = {n: (size, size) for n, size in point.items()}
    for group in growth.groups:
        for end, step in ((0, -1), (1, 1)):
            while group:
                moved = {n: _next(box[n][end], step) for n in group}
                wider = {**box, **{n: (size, box[n][1]) if end == 0 else (box[n][0], size) for n, size in moved.items()}}
                corners = [{n: wider[n][side] for n in point} for side in (0, 1)]
                corners += [{**c, **{n: point[n] for n in group}} for c in corners]
                if (
                    wider == box
                    or any(moved[n] > growth.most.get(n, GRID[-1]) for n in group)
                    or not all(map(is_ahead, corners))
                ):
                    break
                box = wider
    return box


def _next(size: int, step: int) -> int:
    """The next size of GRID below or above; the size itself at the end."""
    others = [g for g in GRID if (g - size) * step > 0]
    return size if not others else others[0] if step > 0 else others[-1]


def _packs_much(p: Planned, plan: SchedulePlan) -> bool:
    """True if `setup` would pack many weights in one more form for this plan."""
    known = [(o.tensor, o.lets, o.block, o.shape) for o in packed_operands(p.region, p.own.plan)]
    more = [o for o in packed_operands(p.region, plan) if (o.tensor, o.lets, o.block, o.shape) not in known]
    return sum(prod(n.as_int() or 0 for n in o.shape) * o.lets[-1].dtype.itemsize for o in more) > MOST_PACKED


def _is_new(f: _Found, kept: Sequence[_Found]) -> bool:
    """True if there is room for one more plan and no other guard covers this one."""
    same = [k for k in kept if k.number == f.number]
    if any(_covers(k.guarded, f.guarded) for k in same):
        return False
    plans = [k.guarded.plan for k in same]
    if f.guarded.plan in plans:
        return True  # the same kernel
    others = sum(all(k.number != o.number or k.guarded.plan != o.guarded.plan for o in kept[:i]) for i, k in enumerate(kept))
    distinct = sum(plan not in plans[:i] for i, plan in enumerate(plans))
    return distinct < MOST_PLANS and others < MOST_GUARDED


def _covers(one: Guarded, other: Guarded) -> bool:
    """True if the conditions of `one` hold wherever those of `other` do."""
    inner = {c.size: c for c in other.conditions}
    return all(
        c.size in inner and c.low <= inner[c.size].low and (not c.high or 0 < inner[c.size].high <= c.high)
        for c in one.conditions
    )
