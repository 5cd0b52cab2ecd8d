"""Checks of the yields of a Region: outputs are covered, maps stay inside, scatters are well formed."""

from __future__ import annotations

from collections.abc import Iterator

from tatami.core.algebra.bounds import bounds
from tatami.core.algebra.order import is_positive
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import ZERO, Expr, product, shape_text
from tatami.region.checks.guards import is_proved_inside
from tatami.region.ir import Region, Target, Yield
from tatami.region.walk import all_axes, let_shape, lets_by_name


def check_yields(region: Region) -> list[Diagnostic]:
    """All faults of a Region's yields; coverage is checked if each yield alone is right."""
    out: list[Diagnostic] = []
    for y in region.yields:
        out += _yield(region, y)
    if not out:
        for t in region.outputs:
            out += _coverage(region, t)
    return out


def _yield(region: Region, y: Yield) -> Iterator[Diagnostic]:
    at = f"{region.name}: yield {y.source} to {y.to}"
    lets = lets_by_name(region)
    target = next((t for t in region.outputs if t.name == y.to), None)
    if y.source not in lets:
        yield diagnostic("UnknownValue", at, f"there is no let {y.source}", "yield a let of the Region")
        return
    if target is None:
        yield diagnostic("UnknownValue", at, f"{y.to} is not an output of the Region", "declare it in outputs")
        return
    let = lets[y.source]
    dtype = target.memref.dtype
    if (y.cast or let.dtype) != dtype:
        yield diagnostic(
            "DTypeMismatch", at, f"{y.cast or let.dtype} is written to {dtype}", f"set the yield's cast to {dtype}"
        )
    shape = target.memref.shape
    if y.map is None:
        if let_shape(region, let) != shape or y.indices:
            yield diagnostic(
                "BroadcastMismatch",
                at,
                f"the let has {shape_text(let_shape(region, let))}, the output {shape_text(shape)}",
                "give the yield a map, or the let the output's axes",
            )
        return
    if len(y.map) != len(shape):
        yield diagnostic(
            "InvalidRegion", at, f"a map of {len(y.map)} entries writes rank {len(shape)}", "give one entry per output axis"
        )
        return
    if sum(m is None for m in y.map) != len(y.indices):
        yield diagnostic(
            "InvalidRegion", at, f"{len(y.indices)} indices for the open entries of the map", "give one let per None"
        )
    for name in y.indices:
        if name not in lets:
            yield diagnostic("UnknownValue", at, f"there is no let {name}", "an index of a scatter is a let")
        elif not lets[name].dtype.is_int or set(lets[name].axes) != set(let.axes):
            yield diagnostic(
                "InvalidRegion", at, f"index {name} is not an integer over the axes of {let.name}", "cast it; use the same axes"
            )
    extents = {a: all_axes(region)[a] for a in let.axes}
    for entry, size in zip(y.map, shape):
        if entry is not None and not is_proved_inside(entry, size, extents, ()):
            yield diagnostic(
                "UnguardedAccess",
                at,
                f"{y.to} is written at {entry}, not proved inside 0 … {size} - 1",
                "write inside the output",
            )


def _coverage(region: Region, target: Target) -> Iterator[Diagnostic]:
    """Faults of an output of which some element is not written (unless it updates an input). Elements are counted: each map
    must be injective by its strides, and two yields are disjoint by their offsets."""
    mine = [y for y in region.yields if y.to == target.name]
    at = f"{region.name}: {target.name}"
    if not mine:
        yield diagnostic("InvalidRegion", at, "the output is never written", "yield a let to it")
        return
    scatters = [bool(y.indices) or y.combine != "set" for y in mine]
    if scatters != sorted(scatters):
        how = "list what writes all elements first"
        yield diagnostic("InvalidRegion", at, "a scatter stands before the write of what it changes", how)
        return
    if target.updates:
        return
    plain = mine[: scatters.count(False)]
    if not plain:
        yield diagnostic(
            "InvalidRegion", at, "a scatter leaves elements of the output unwritten", "let the output update an input"
        )
        return
    lets = lets_by_name(region)
    total = product(target.memref.shape)
    written = ZERO
    for y in plain:
        written = written + product(let_shape(region, lets[y.source]))
    along = [(_ends(region, plain, axis), size) for axis, size in enumerate(target.memref.shape)]
    if (
        is_positive(total - written)
        or any(_misses(ends, size) for ends, size in along)
        or (written != total and not all(_spans(ends, size) for ends, size in along))
    ):
        yield diagnostic(
            "InvalidRegion",
            at,
            f"the yields write {written} of {total} elements, or some twice",
            "write every element once, or update an input",
        )


def _ends(region: Region, plain: list[Yield], axis: int) -> list[tuple[Expr, Expr]]:
    """First and last index of each yield along an axis of the output; empty if a yield has the output's shape, or an end is
    unknown."""
    extents, lets = all_axes(region), lets_by_name(region)
    out: list[tuple[Expr, Expr]] = []
    for y in plain:
        entry = y.map[axis] if y.map else None
        r = None if entry is None else bounds(entry, {a: extents[a] for a in lets[y.source].axes})
        if r is None:
            return []
        out.append(r)
    return out


def _misses(ends: list[tuple[Expr, Expr]], size: Expr) -> bool:
    """True if all yields certainly stay away from one end: two writes of the same half have as many elements as the output."""
    return bool(ends) and (all(is_positive(low) for low, _ in ends) or all(is_positive(size - 1 - high) for _, high in ends))


def _spans(ends: list[tuple[Expr, Expr]], size: Expr) -> bool:
    """True if the yields may reach both ends, for sizes that cannot be compared as polynomials."""
    return not ends or (any(low == ZERO for low, _ in ends) and any(high == size - 1 for _, high in ends))
