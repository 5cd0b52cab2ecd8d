"""Other plans of packed panels and a micro-kernel for the same contraction: the values of each field that a search tries."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tatami.core.target import lanes_of
from tatami.plan.cpu.contraction_rules import as_obeyed
from tatami.plan.cpu.tile_rules import register_tiles
from tatami.plan.cpu_kind import Asked, told_apart
from tatami.plan.ir import DOT_COUNT, DOT_FEATURE, CpuContraction
from tatami.plan.loops.estimate import trips
from tatami.plan.views.dots import dot_dtypes
from tatami.region.views.dequantised import stored_operand
from tatami.region.views.kinds import ContractionShape, contractions
from tatami.region.views.matrix import by_images
from tatami.region.walk import lets_by_name

LEAST_DEPTH = 32
"""Minimum kc that is tried: below it, loads and stores of the sums take as long as the products."""


def contraction_alternatives(asked: Asked, own: CpuContraction) -> Iterator[tuple[CpuContraction, str]]:
    """Plans with one other choice than `own`: tile, blocks, the side that threads divide, operands in place or packed, sides
    exchanged, images one at a time, multiply-adds of narrow integers."""
    shape = next(c for c in contractions(asked.region) if c.acc == own.acc)
    plans = (*_tiles(asked, shape, own), *_blocks(asked, shape, own), *_splits(asked, own), *_operands(asked, shape, own))
    return told_apart(own, (as_obeyed(asked.region, shape, p) for p in plans))


def _sides(asked: Asked, shape: ContractionShape, plan: CpuContraction) -> tuple[int, int, int]:
    """(narrow, wide, k) under the plan."""
    one = by_images(shape, plan.images)
    m, n, k = (trips(asked.region, group, asked.sizes) for group in (one.m, one.n, one.k))
    return (n, m, k) if plan.swap else (m, n, k)


def _tiles(asked: Asked, shape: ContractionShape, own: CpuContraction) -> Iterator[CpuContraction]:
    """The largest tiles with other numbers of vectors per row, and the one whose panels divide the rows evenly."""
    if own.by_tiles:
        return
    narrow = _sides(asked, shape, own)[0]
    lanes = lanes_of(own.width, lets_by_name(asked.region)[own.acc].dtype.itemsize)
    for most, nr in register_tiles(asked.target, lanes):
        panels = -(-narrow // most)
        for mr in dict.fromkeys((min(most, narrow), -(-narrow // panels))):
            yield _retiled(own, mr, nr)


def _retiled(own: CpuContraction, mr: int, nr: int) -> CpuContraction:
    """The plan with another tile, in blocks of about the same size."""
    mc, nc = (max(1, size // side) * side for size, side in ((own.mc, mr), (own.nc, nr)))
    return msgspec.structs.replace(own, mr=mr, nr=nr, mc=mc, nc=nc)


def _blocks(asked: Asked, shape: ContractionShape, own: CpuContraction) -> Iterator[CpuContraction]:
    """Half and twice the blocks of k, rows and columns; and blocks of k that divide it evenly."""
    change, k = msgspec.structs.replace, -(-_sides(asked, shape, own)[2] // DOT_COUNT[own.dot])
    even = -(-k // -(-k // own.kc))
    for kc in dict.fromkeys((own.kc // 2, own.kc * 2, even, k)):
        if LEAST_DEPTH <= kc <= 4 * own.kc and min(kc, k) != min(own.kc, k):
            yield change(own, kc=kc)
    yield from (change(own, mc=n * own.mr) for n in (own.mc // own.mr // 2, own.mc // own.mr * 2) if n)
    yield from (change(own, nc=n * own.nr) for n in (own.nc // own.nr // 2, own.nc // own.nr * 2) if n)


def _splits(asked: Asked, own: CpuContraction) -> Iterator[CpuContraction]:
    """Another side for threads to divide, and other parts of k."""
    change, cores = msgspec.structs.replace, max(2, asked.target.cores)
    if own.split != "batch":
        yield from (change(own, split=side, parts=1) for side in ("m", "n") if side != own.split)
    else:
        yield change(own, split="n")
    if not (own.packed or own.dot or own.images):
        yield from (change(own, split="k", parts=parts) for parts in (cores, 2 * cores, 4 * cores) if parts != own.parts)


def _operands(asked: Asked, shape: ContractionShape, own: CpuContraction) -> Iterator[CpuContraction]:
    """Other operands in place and packed by `setup`, sides exchanged, images, other multiply-adds."""
    change = msgspec.structs.replace
    sides: tuple[tuple[str, ...], ...] = ((), ("m",), ("n",), ("m", "n"))
    yield from (change(own, in_place=s) for s in sides if s != own.in_place)
    left, right = (stored_operand(asked.region, x) for x in ((shape.rhs, shape.lhs) if own.swap else (shape.lhs, shape.rhs)))
    for packed in ((), (left,), (right,)):
        if set(packed) <= asked.constants and packed != own.packed:
            yield change(own, packed=packed, in_place=())
    yield change(own, swap=not own.swap, packed=tuple(t for t in (left,) if t in asked.constants), in_place=(), mc=4 * own.mr)
    if own.images:
        yield change(own, images=(), in_place=())
    yield from _dots(asked, shape, own)


def _dots(asked: Asked, shape: ContractionShape, own: CpuContraction) -> Iterator[CpuContraction]:
    """Other multiply-adds of narrow integers in vectors."""
    if not own.dot or own.by_tiles:
        return
    for dot in DOT_COUNT:
        fits = not dot or dot_dtypes(asked.region, shape, dot) is not None
        feature = DOT_FEATURE.get(dot)
        if fits and dot not in (own.dot, "quads_amx") and (feature is None or feature in asked.target.features):
            yield msgspec.structs.replace(own, dot=dot)
