"""Each rule of the verifier of streaming and sort kernels: a kernel that breaks it has that one fault, and others have none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import expr, shape, var
from tatami.core.kernel import KernelFace, KernelParam
from tatami.gpu.proof.verify_stream import verify_sort, verify_stream
from tatami.gpu.stream_ir import (
    Fold,
    Param,
    Part,
    Position,
    Running,
    Share,
    SortKernel,
    StreamKernel,
    StreamStore,
    Tile,
    Write,
)
from tatami.region.ir import Cast, Const, Let, Read, Reduce, Ref, Scan
from tests.region.examples import iters

replace = msgspec.structs.replace
F32, I64 = DType.fp32, DType.i64


def at(*index: str, of: str = "p0") -> Read:
    return Read(of, shape(*index))


x = at("i*s1 + j")
STORE = StreamStore("p1", expr("i*s1 + j"))
total = Fold("f0", ("j",), Reduce("sum", ("j",), 0.0, F32, x), F32, (StreamStore("p1", var("i")),))
write = Write(("j",), F32, x, (STORE,))
scan = Running(("j",), Scan("sum", "j", F32, x), (STORE,))
PARAMS = (Param("p0", F32), Param("p1", F32, True), Param("p2", I64))
there = Position("q", Cast(at("i", of="p2"), I64), var("s0"), "wrap")
line = Let("l", (), F32, x)


def kernel(*phases: Any, **fields: Any) -> StreamKernel:
    face = KernelFace("k", tuple(KernelParam(p.dtype, p.written) for p in PARAMS), 2, "0")
    base = StreamKernel(face, PARAMS, iters(i="s0"), iters(j="s1"), (), (), phases or (write,), 64)
    return replace(base, **fields)


def faults(k: StreamKernel) -> list[str]:
    return [d.why for d in verify_stream(k)]


def wide(k: Any, **fields: Any) -> Any:
    return replace(k, lane="j", **fields)


tile = Tile("i", 64, 4, (at("h*s0 + i"),))


def tiled(**fields: Any) -> StreamKernel:
    """Points i and h, turned around: lanes along h, reads along i."""
    turned = Write((), F32, at("h*s0 + i"), (StreamStore("p1", expr("i*s1 + h"), wide=True),), lane="h")
    given = {"points": iters(i="s0", h="s1"), "axes": (), "width": 4, "shared_bytes": 64 * 64 * 4, "tile": tile} | fields
    return kernel(turned, **given)


share = Share(var("q"), var("i"), 4)
shared = replace(write, share=share, stores=(StreamStore("p1", var("q")),))
part = Part(64, Const(0, I64))
kept = kernel(wide(write, wide=(x,)), group=32, kept=(x,), turns=1, width=4)
ACCEPTED: dict[str, StreamKernel] = {
    "a map": kernel(),
    "the most threads": kernel(threads=1024),
    **{f"groups of {n}": kernel(group=n) for n in (2, 4, 8, 16, 32)},
    "a block for a point": kernel(group=64, shared_bytes=32),
    "a block of 31 warps for a point": kernel(group=992, threads=992, shared_bytes=16 * 31),
    "threads across": kernel(group=2, across=True, shared_bytes=16 * 64),
    "a third of a block across": kernel(threads=96, group=3, across=True, shared_bytes=16 * 96),
    **{f"{n} lanes": kernel(wide(write), width=n) for n in (2, 4, 8, 16)},
    "a fold before its use": kernel(total, replace(write, value=Ref("f0"))),
    "a let of a later fold": kernel(total, replace(write, value=Ref("l")), lets=(Let("l", (), F32, Ref("f0")),)),
    "a let of a let": kernel(replace(write, value=Ref("l")), lets=(line, Let("m", (), F32, Ref("l")))),
    "a scan": kernel(scan),
    "a scan of a group": kernel(scan, group=2, shared_bytes=8 * 64),
    "a part of a scan": kernel(replace(scan, part=part, start=Const(0, F32)), group=2, shared_bytes=8 * 64),
    "a part of a fold": kernel(replace(total, part=replace(part, number=at("i", of="p2"))), group=2),
    "a position": kernel(replace(write, stores=(StreamStore("p1", var("q")),)), positions=(there,)),
    "a sum at a position": kernel(replace(write, stores=(StreamStore("p1", var("q"), "add"),)), positions=(there,)),
    "a position in lanes": kernel(
        wide(write, stores=(StreamStore("p1", expr("q + j"), wide=True),)), positions=(there,), width=4
    ),
    "shares": kernel(shared, positions=(there,)),
    "a tile": tiled(),
    "a tile in chunks of one": tiled(tile=replace(tile, chunk=1)),
    "lanes of one phase of two": kernel(total, wide(write), width=4, group=2),
    "a row that one phase of two keeps": kernel(total, wide(write, wide=(x,)), group=32, kept=(x,), turns=1, width=4),
    "lanes without points": kernel(
        wide(replace(write, value=Const(1.0, F32), stores=(StreamStore("p1", var("j")),))), points=(), width=4
    ),
    "lanes along the last axis": kernel(
        replace(write, axes=("j", "h"), lane="h"), axes=iters(j="s1", h="s1"), group=2, width=4
    ),
    "a part of one": kernel(replace(total, part=replace(part, size=1)), group=2),
    "a share of a half": kernel(replace(shared, share=replace(share, count=2)), positions=(there,)),
    "a scan and a map": kernel(scan, write, group=2, shared_bytes=512),
    "a row that is kept": kept,
    "even sizes": kernel(even=(var("s1"),)),
    "a wide store": kernel(wide(write, stores=(replace(STORE, wide=True),)), width=4),
    "a phase over no axes": kernel(replace(write, axes=(), value=at("i"), stores=(StreamStore("p1", var("i")),))),
    "lanes along the points": kernel(
        replace(write, axes=(), value=at("i"), stores=(StreamStore("p1", var("i")),), lane="i"), width=4
    ),
}


@pytest.mark.parametrize("what", list(ACCEPTED))
def test_what_breaks_no_rule_is_accepted(what: str) -> None:
    k = ACCEPTED[what]
    if what.endswith(" lanes") or what in ("a position in lanes", "a wide store", "a row that is kept"):
        k = k if k.group > 1 else replace(k, points=iters(i="s0"), axes=iters(j="s1"), group=2)
    found = faults(k)
    assert found == ([] if what != "a position in lanes" else ["threads of a group may meet at one element of p1"])


WRONG: dict[str, tuple[StreamKernel, str]] = {
    "an axis named as a point": (kernel(axes=iters(j="s1", i="s1")), "i names two things"),
    "a let named as a parameter": (kernel(lets=(replace(line, name="p0"),)), "p0 names two things"),
    "a position named as a parameter": (kernel(positions=(replace(there, name="p0"),)), "p0 names two things"),
    "a fold named as a parameter": (kernel(replace(total, name="p0")), "p0 names two things"),
    "a let named as a size": (kernel(lets=(replace(line, name="s1"),)), "s1 names two things"),
    "no threads": (kernel(threads=0), "0 threads are not 1 to 32 whole warps"),
    "threads of half a warp": (kernel(threads=48), "48 threads are not 1 to 32 whole warps"),
    "more threads than there are": (kernel(threads=1056), "1056 threads are not 1 to 32 whole warps"),
    "a group of 3": (kernel(group=3), "groups of 3 threads cannot meet"),
    "a group of 128 of 64": (kernel(group=128, shared_bytes=99), "groups of 128 threads cannot meet"),
    "a group of 1 across": (kernel(across=True, shared_bytes=1024), "groups of 1 threads cannot meet"),
    "a group of 3 of 64 across": (kernel(group=3, across=True, shared_bytes=1024), "groups of 3 threads cannot meet"),
    "3 lanes": (kernel(wide(write), width=3, group=2), "3 lanes"),
    "no lanes": (kernel(width=0), "0 lanes"),
    "lanes along nothing": (kernel(width=4), "4 lanes"),
    "a byte too few for a block": (kernel(group=64, shared_bytes=31), "31 bytes of shared memory; the phases use 32"),
    "a byte too few across": (kernel(group=2, across=True, shared_bytes=1023), "1023 bytes of shared memory; the phases use 1024"),
    "a byte too few for a scan": (kernel(scan, group=2, shared_bytes=511), "511 bytes of shared memory; the phases use 512"),
    "a byte too few for a tile": (tiled(shared_bytes=64 * 64 * 4 - 1), "16383 bytes of shared memory; the phases use 16384"),
    "a point of nothing known": (kernel(points=iters(i="N")), "extents counts with N"),
    "an axis of nothing known": (kernel(axes=iters(j="N")), "extents counts with N"),
    "an even size of nothing known": (kernel(even=(var("N"),)), "extents counts with N"),
    "a position of nothing known": (kernel(positions=(replace(there, size=var("N")),)), "extents counts with N"),
    "a size argument too many": (kernel(even=(var("s2"),)), "extents counts with s2"),
    "a let that reads nothing known": (kernel(lets=(replace(line, expr=at("0", of="p9")),)), "l reads p9, which is not a parameter"),
    "a let at nothing known": (kernel(lets=(replace(line, expr=at("N")),)), "l counts with N"),
    "a let of nothing known": (kernel(lets=(replace(line, expr=Ref("q")),)), "l uses q before it is there"),
    "a position at nothing known": (kernel(positions=(replace(there, value=at("N", of="p2")),)), "q counts with N"),
    "a read of two addresses": (kernel(replace(write, value=at("i", "j"))), "a phase reads p0, which is not a parameter with one address"),
    "a read of nothing known": (kernel(replace(write, value=at("i", of="p9"))), "a phase reads p9"),
    "a fold after its use": (kernel(replace(write, value=Ref("f0")), total), "a phase uses f0 before it is there"),
    "an axis that is not there": (kernel(replace(write, axes=("h",))), "a phase runs over h, which is not an axis"),
    "a lane that is not there": (kernel(replace(write, lane="h")), "a phase runs over h, which is not an axis"),
    "lanes along the points of a group": (kernel(replace(write, lane="i"), group=2), "lanes along i; neighbouring elements are along j"),
    "lanes along the axes across": (kernel(wide(write)), "lanes along j; neighbouring elements are along i"),
    "lanes along nothing there is": (
        kernel(replace(write, axes=(), value=at("i"), stores=(StreamStore("p1", var("i")),), lane="i"), group=2),
        "lanes along i; neighbouring elements are along nothing"),
    "a body over another axis": (kernel(replace(write, axes=(), stores=(StreamStore("p1", var("i")),))), "a phase counts with j"),
    "a wide read over another axis": (kernel(replace(write, wide=(at("h"),))), "a phase counts with h"),
    "a number of a part over its axis": (
        kernel(replace(total, part=replace(part, number=at("j", of="p2"))), group=2), "the part of a phase counts with j"),
    "a start over its axis": (
        kernel(replace(scan, part=part, start=x), group=2, shared_bytes=512), "the part of a phase counts with j"),
    "a part of nothing": (kernel(replace(total, part=replace(part, size=0)), group=2), "a part of 0 elements for a group of 2"),
    "a part of a vector and a half": (
        kernel(wide(total, part=replace(part, size=6)), group=2, width=4), "a part of 6 elements for a group of 2, 4 lanes each"),
    "a part of one thread": (kernel(replace(total, part=part)), "a part of 64 elements for a group of 1"),
    "a start of a whole line": (kernel(replace(scan, start=Const(0, F32))), "a scan of whole lines starts with something"),
    "a share of all": (kernel(replace(shared, share=replace(share, count=1)), positions=(there,)), "a share of 1 with 1 threads"),
    "a share of no axes": (
        kernel(replace(shared, axes=(), value=at("i")), positions=(there,)), "a share of 4 with 1 threads"),
    "a share by no point": (kernel(replace(shared, share=replace(share, number=var("j"))), positions=(there,)), "a share of 4"),
    "a share by a sum": (kernel(replace(shared, share=replace(share, number=expr("i + 1"))), positions=(there,)), "a share of 4"),
    "a share of no position": (
        kernel(replace(shared, share=replace(share, place=var("j"))), positions=(there,)), "a share counts with j"),
    "a store to nothing": (kernel(replace(write, stores=(replace(STORE, param="p9"),))), "p9 is stored to and is not an output"),
    "a store to an input": (kernel(replace(write, stores=(replace(STORE, param="p0"),))), "p0 is stored to and is not an output"),
    "a store of a fold along its axis": (kernel(replace(total, stores=(STORE,))), "the address in p1 counts with j"),
    "a store at nothing known": (kernel(replace(write, stores=(replace(STORE, index=var("N")),))), "the address in p1 counts with N"),
    "a sum of a group": (kernel(replace(write, stores=(replace(STORE, combine="add"),)), group=2), "threads of a group may meet"),
    "a position of a group": (
        kernel(replace(write, stores=(StreamStore("p1", var("q")),)), positions=(there,), group=2), "threads of a group may meet"),
    "a wide sum": (
        kernel(replace(write, axes=(), value=at("i"), stores=(StreamStore("p1", var("i"), "add", True),), lane="i")),
        "p1 is stored in vectors without lanes"),
    "a wide store without lanes": (kernel(replace(write, stores=(replace(STORE, wide=True),))), "p1 is stored in vectors without lanes"),
    "a tile of a group across": (tiled(group=2, across=True), "no tile of 64 along i"),
    "two lanes along nothing": (kernel(width=2), "2 lanes"),
    "a read of no address": (kernel(replace(write, value=at())), "a phase reads p0, which is not a parameter with one address"),
    "a byte too few for a scan and a map": (kernel(scan, write, group=2, shared_bytes=511), "511 bytes of shared memory"),
    "a share in lanes": (kernel(replace(shared, lane="i"), positions=(there,), width=2), "a share of 4 with 1 threads a point, 2 lanes"),
    "a share of a group": (kernel(replace(shared, stores=(STORE,)), positions=(there,), group=2), "a share of 4 with 2 threads a point"),
    "a tile of two phases": (
        tiled(phases=(*tiled().phases, *tiled().phases)), "no tile of 64 along i"),
    "a tile along no point": (tiled(tile=replace(tile, axis="j")), "no tile of 64 along j"),
    "a tile along the lanes": (tiled(tile=replace(tile, axis="h")), "no tile of 64 along h"),
    "a tile in chunks of nothing": (tiled(tile=replace(tile, chunk=0)), "no tile of 64 along i"),
    "a tile in chunks of 5": (tiled(tile=replace(tile, chunk=5)), "no tile of 64 along i"),
    "a tile of a vector and a half": (tiled(tile=replace(tile, size=6, chunk=2)), "no tile of 6 along i"),
    "a tile that reads elsewhere": (tiled(tile=replace(tile, reads=(at("N"),))), "a tile counts with N"),
    "a tile that reads nothing known": (
        tiled(tile=replace(tile, reads=(at("i", of="p9"),))), "a tile reads p9, which is not a parameter"),
    "a kept row in no turns": (replace(kept, turns=0), "a row that is kept is read by no phase of a group"),
    "a kept row of one thread": (kernel(replace(write, wide=(x,)), kept=(x,), turns=1), "a row that is kept is read by no phase"),
    "a kept row across": (
        kernel(replace(write, wide=(x,)), group=2, across=True, shared_bytes=1024, kept=(x,), turns=1), "a row that is kept"),
    "a kept row that nobody reads": (replace(kept, kept=(at("i"),)), "a row that is kept is read by no phase of a group"),
    "a second kept row that nobody reads": (replace(kept, kept=(x, at("i"))), "a row that is kept is read by no phase of a group"),
}  # fmt: skip


@pytest.mark.parametrize("what", list(WRONG))
def test_a_broken_rule_is_the_one_fault(what: str) -> None:
    k, why = WRONG[what]
    found = faults(k)
    assert len(found) == 1 and why in found[0], found


def sort(step: str = "tile", params: int = 2, **fields: Any) -> list[str]:
    face = KernelFace("k", (), 2, "0")
    own = tuple(Param(f"p{i}", F32) for i in range(params))
    base = SortKernel(face, own, var("s0"), var("s1"), expr(1), expr(1), False, 64, 64, 2048, step)  # type: ignore[arg-type]
    return [d.why for d in verify_sort(replace(base, **fields))]


@pytest.mark.parametrize(("step", "params", "needed"), [("line", 5, 2048), ("tile", 2, 2048), ("merge", 2, 0), ("take", 5, 0)])
def test_sorts_have_their_parameters_and_their_memory(step: str, params: int, needed: int) -> None:
    assert sort(step, params, shared_bytes=needed) == []
    for count in (params - 1, params + 1):
        assert sort(step, count) == [f"a sort has the parameters p0 … p{params - 1}"]
    if needed:
        assert sort(step, params, shared_bytes=needed - 1) == ["64 threads, a tile of 64 in 2047 bytes"]


def test_sorts_have_whole_warps_and_known_sizes() -> None:
    for threads in (0, 48, 1056, -32):
        assert sort(threads=threads) == [f"{threads} threads, a tile of 64 in 2048 bytes"]
    assert sort(threads=1024) == [] == sort(threads=32) == sort(tile=1)
    assert sort(tile=0) == ["64 threads, a tile of 0 in 2048 bytes"]
    for field in ("outer", "length", "inner", "keep"):
        changed: dict[str, Any] = {field: var("N")}
        assert sort(**changed) == ["N is not a size argument"]
    assert sort(length=var("s2")) == ["s2 is not a size argument"]
    assert sort(params=2, outer=var("A"), inner=var("B")) == ["A is not a size argument"]
