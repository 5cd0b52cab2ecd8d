"""Every kernel kind with every dtype, operand order, epilogue and tail on the emulated GPUs, against the float64 reference.

    python -m tests.emulated.grid --jobs 2 --record tests/emulated/grid.json

A point of the grid is one program; it runs at sizes of every tail class: nothing, one, a tile less one, a tile, a tile
and one more, primes, and a k that is not a multiple of a tile's. The record has a hash of the kernels of each point that
agreed, without a report of the machine; a later call with the same record runs the points whose kernels changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import tatami as tt
from tatami.api import Compilation, build, prepare
from tatami.core.algebra.visit import evaluate
from tatami.core.dtype import DType
from tatami.core.signature import Signature, symbols
from tatami.core.tensor import numpy_dtype
from tatami.gpu.ir import Kernel
from tatami.report.playback import compare_outputs, least_precise

HALF, FULL, BRAIN, WHOLE = tt.fp16, tt.fp32, tt.bf16, tt.i32
FLOATS = (HALF, BRAIN, FULL)
Make = Callable[[tt.Graph, DType, str], Any]
Sizes = dict[str, int]


@dataclass(frozen=True)
class Point:
    kind: str
    dtype: DType
    order: str
    epilogue: str
    target: str

    @property
    def name(self) -> str:
        return " ".join((self.kind, str(self.dtype), self.order, self.epilogue, self.target))


@dataclass(frozen=True)
class Kind:
    """`make` gives the value before the epilogue. `tails`: the sizes it runs at, given the tile of its first kernel, which
    the plan is chosen for at `usual`, and the order. Kernels without a tile have the same text for every GPU and run on one."""

    make: Make
    dtypes: tuple[DType, ...]
    orders: tuple[str, ...] = ("-",)
    epilogues: tuple[str, ...] = ("none",)
    usual: int = 128
    tails: Callable[[tuple[int, int, int], str], list[Sizes]] = lambda tile, order: list(LINES)
    tiled: bool = False


# -- kinds -----------------------------------------------------------------------------------------


def product(g: tt.Graph, d: DType, order: str, batch: tuple[str, ...] = (), rounds: bool = False) -> Any:
    def operand(name: str, rows: str, columns: str, turned: bool) -> Any:
        x = g.input(name, (*batch, *((columns, rows) if turned else (rows, columns))), d)
        x = x.tf32() if rounds else x
        return x.transpose(-2, -1) if turned else x

    return operand("x", "M", "K", order[0] == "t") @ operand("w", "K", "N", order[1] == "t")


def batched(g: tt.Graph, d: DType, order: str) -> Any:
    return product(g, d, order, ("B",))


def rounded(g: tt.Graph, d: DType, order: str) -> Any:
    return product(g, d, order, rounds=True)


def groups(g: tt.Graph, d: DType, order: str) -> Any:
    x, w = (
        g.input("x", ("K", "M") if order[0] == "t" else ("M", "K"), d),
        g.input("w", (5, *("NK" if order[1] == "t" else "KN")), d),
    )
    x, w = x.transpose(0, 1) if order[0] == "t" else x, w.transpose(1, 2) if order[1] == "t" else w
    return x.grouped_matmul(w, g.input("ends", (5,), tt.i64))


def conv(g: tt.Graph, d: DType, order: str) -> Any:
    x, w = g.input("x", ("B", 3, "M", "N"), d), g.input("w", (5, 3, 3, 3), d)
    stride, padding, dilation = {"same": (1, 1, 1), "stride": (2, 1, 1), "dilation": (1, 2, 2)}[order]
    return x.conv(w, stride=stride, padding=padding, dilation=dilation)


def attention(g: tt.Graph, d: DType, order: str) -> Any:
    q = g.input("q", (1, 2, "M", 16), d)
    k, v = (g.input(n, (1, 2, "K", 16), d) for n in "kv")
    return q.attention(k, v, causal=order == "causal")


def rows(name: str) -> Make:
    """A method along an axis of [M, K]."""

    def make(g: tt.Graph, d: DType, order: str) -> Any:
        return getattr(g.input("x", ("M", "K"), d), name)({"last": 1, "first": 0}[order])

    return make


def whole(g: tt.Graph, d: DType, order: str) -> Any:
    return getattr(g.input("x", ("M", "K"), d), order)((0, 1))


def norm(g: tt.Graph, d: DType, order: str) -> Any:
    return g.input("x", ("M", "K"), d).layer_norm(g.input("scale", ("K",), d))


def chain(g: tt.Graph, d: DType, order: str) -> Any:
    x, y = g.input("x", ("M", "K"), d), g.input("y", ("K",) if order == "row" else ("M", "K"), d)
    return x * x + (y.expand(("M", "K")) if order == "row" else y)


def turned(g: tt.Graph, d: DType, order: str) -> Any:
    if order == "matrix":
        return g.input("x", ("M", "K"), d).transpose(0, 1)
    return g.input("x", ("M", 3, "K"), d).permute((2, 1, 0) if order == "all" else (1, 0, 2))


def gather(g: tt.Graph, d: DType, order: str) -> Any:
    x, index = g.input("x", (7, "K") if order == "rows" else ("K", 7), d), g.input("index", ("M",), tt.i64)
    return x.take(index, 0 if order == "rows" else 1)


def scatter(g: tt.Graph, d: DType, order: str) -> Any:
    x, index = g.input("x", (7, "K"), d), g.input("index", ("M", "K"), tt.i64)
    return x.scatter(0, index, g.input("u", ("M", "K"), d), order)


def sort(g: tt.Graph, d: DType, order: str) -> Any:
    return g.input("x", ("M", "K"), d).sort({"last": 1, "first": 0}[order])[1]


def topk(g: tt.Graph, d: DType, order: str) -> Any:
    return g.input("x", ("M", "K"), d).topk(3, {"last": 1, "first": 0}[order])[0]


def noise(g: tt.Graph, d: DType, order: str) -> Any:
    return g.uniform(("M", "K"), g.input("key", (), tt.u64), dtype=d) * g.input("x", ("M", "K"), d)


# -- tails -----------------------------------------------------------------------------------------

LINES: list[Sizes] = [
    {"M": m, "K": k}
    for m, k in ((1, 1), (3, 31), (4, 32), (5, 33), (2, 127), (3, 128), (1, 129), (257, 3), (2, 1031), (0, 5), (5, 0), (0, 0))
]


def of_some(least: int) -> Callable[[tuple[int, int, int], str], list[Sizes]]:
    """Lines of that many elements at least; there may be none of them."""
    return lambda tile, order: [s for s in LINES if s["M" if order == "first" else "K"] >= least]


def of_tiles(tile: tuple[int, int, int], order: str) -> list[Sizes]:
    m, n, k = tile
    every = (
        (m, n, k), (m + 1, n - 1, k + 1), (m - 1, n + 1, 2 * k - 1), (m + 8, n - 8, k + 8), (1, n, 2 * k), (m, 1, 3),
        (1, 1, 1), (67, 61, 37), (0, n, k), (m, 0, k), (m, n, 0),
    )  # fmt: skip
    return [{"M": a, "N": b, "K": c, "B": 2} for a, b, c in every]


def of_planes(tile: tuple[int, int, int], order: str) -> list[Sizes]:
    every = ((2, 5, 5), (2, 6, 7), (2, 8, 16), (1, 13, 11), (2, 17, 9), (0, 5, 5), (2, 1, 5))
    return [{"B": b, "M": m, "N": n} for b, m, n in every]


def of_keys(tile: tuple[int, int, int], order: str) -> list[Sizes]:
    every = ((1, 1), (2, 2), (31, 31), (64, 64), (65, 65), (67, 131), (130, 33), (0, 5), (5, 0), (0, 0))
    return [{"M": m, "K": k} for m, k in every]


# -- the grid --------------------------------------------------------------------------------------

AXES = ("last", "first")
EVERY = (*FLOATS, WHOLE)
ORDERS = ("nn", "nt", "tn", "tt")
AFTER = ("none", "bias", "relu", "residual", "cast")
KINDS = {
    "product": Kind(product, FLOATS, ORDERS, AFTER, 48, of_tiles, True),
    "batched": Kind(batched, FLOATS, ORDERS, ("none", "residual"), 48, of_tiles, True),
    "tf32": Kind(rounded, (FULL,), ORDERS, AFTER, 48, of_tiles, True),
    "large": Kind(product, FLOATS, ("nn", "tt"), ("none", "residual"), 2048, of_tiles, True),
    "integers": Kind(product, (WHOLE,), ORDERS, ("none", "relu"), 48, of_tiles, True),
    "groups": Kind(groups, FLOATS, ORDERS, ("none",), 48, of_tiles, True),
    "conv": Kind(conv, FLOATS, ("same", "stride", "dilation"), ("none", "relu"), 12, of_planes, True),
    "attention": Kind(attention, FLOATS, ("plain", "causal"), ("none",), 48, of_keys, True),
    "chain": Kind(chain, EVERY, ("point", "row"), ("none", "relu", "cast")),
    "softmax": Kind(rows("softmax"), FLOATS, AXES, ("none", "cast")),
    "norm": Kind(norm, FLOATS, tails=of_some(1)),
    "sum": Kind(rows("sum"), EVERY, AXES, ("none", "relu")),
    "max": Kind(rows("max"), EVERY, AXES, tails=of_some(1)),
    "argmax": Kind(rows("argmax"), EVERY, AXES, tails=of_some(1)),
    "whole": Kind(whole, EVERY, ("sum", "prod")),
    "running": Kind(rows("cumsum"), EVERY, AXES),
    "turned": Kind(turned, EVERY, ("matrix", "all", "outer"), ("none", "relu")),
    "gather": Kind(gather, EVERY, ("rows", "columns")),
    "scatter": Kind(scatter, EVERY, ("set", "add", "max")),
    "sort": Kind(sort, EVERY, AXES),
    "topk": Kind(topk, EVERY, AXES, tails=of_some(3)),
    "noise": Kind(noise, (FULL, HALF)),
}


def finished(g: tt.Graph, y: Any, epilogue: str, d: DType) -> Any:
    match epilogue:
        case "bias":
            return y + g.input("bias", y.shape[-1:], d).expand(y.shape)
        case "relu":
            return y.relu() if d.is_float else y * y
        case "residual":
            return y.gelu() + g.input("r", y.shape, d)
        case "cast":
            return y.cast(HALF if d == FULL else FULL)
        case _:
            return y


def points() -> Iterator[Point]:
    for kind, k in KINDS.items():
        for target in ("emulated-sm80", "emulated-sm90") if k.tiled else ("emulated-sm80",):
            yield from (Point(kind, d, o, e, target) for d in k.dtypes for o in k.orders for e in k.epilogues)


# -- one point -------------------------------------------------------------------------------------


def prepared(p: Point) -> Compilation:
    k = KINDS[p.kind]
    g = tt.Graph("point")
    g.output("out", finished(g, k.make(g, p.dtype, p.order), p.epilogue, p.dtype))
    module = g.module()
    usual = {n: (0, 2 if n == "B" else k.usual, 1 << 20) for n in symbols(module.main.signature)}
    return prepare(module, target=p.target, sizes=usual)


def tile_of(compilation: Compilation) -> tuple[int, int, int]:
    found = [k.tile for k in compilation.stages["gpu"].main.kernels if isinstance(k, Kernel)]
    return found[0] if found else (1, 1, 1)


def drawn(signature: Signature, sizes: Sizes) -> dict[str, np.ndarray]:
    """Eighths, and indices that are there."""
    rng = np.random.default_rng(0)
    out = {}
    for port in signature.inputs:
        shape = tuple(int(evaluate(s, sizes)) for s in port.shape)
        low, high = (0, 7 if sizes.get("K", 7) else 1) if port.dtype in (DType.i64, DType.u64) else (-8, 9)
        if port.tensor == "ends":
            low, high = -2, sizes["M"] + 9
        values = rng.integers(low, high, shape)
        out[port.tensor] = np.asarray(values if port.dtype.is_int else values / 8).astype(numpy_dtype(port.dtype))
    return out


def difference(compilation: Compilation, tails: list[Sizes]) -> str:
    """The difference from the reference at the first tail that has one; "" if none has."""
    module = compilation.stages["frontend"]
    signature: Signature = module.main.signature
    through = least_precise(module)
    sizes: Sizes = {}
    try:
        function = build(compilation, 1)
        for sizes in tails:
            inputs = drawn(signature, sizes)
            with np.errstate(all="ignore"):
                want = compilation.reference_run(inputs, sizes)
            found = compare_outputs(signature, function({n: a.copy() for n, a in inputs.items()}), want, through)
            if wrong := [str(a.difference) for a in found if a.difference is not None]:
                return f"{sizes}: {'; '.join(wrong)}"
    except Exception as error:  # a report of the machine is one
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{sizes}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})"
    return ""


def texts_hash(compilation: Compilation) -> str:
    units = compilation.stages["cu"].main.units
    return hashlib.sha256("".join(u.text for u in units).encode()).hexdigest()[:16]


def examined(work: tuple[Point, str]) -> tuple[str, str, str]:
    """Name, hash and fault of a point; not run where it has the hash it had."""
    p, before = work
    compilation = prepared(p)
    now = texts_hash(compilation)
    if now == before:
        return p.name, now, ""
    return p.name, now, difference(compilation, KINDS[p.kind].tails(tile_of(compilation), p.order))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--kind", choices=KINDS, action="append")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    record: dict[str, str] = {}
    if options.record is not None and options.record.exists():
        record = json.loads(options.record.read_text())
    every = {p.name: p for p in points()}
    record = {n: h for n, h in record.items() if n in every}
    work = [(p, record.get(n, "")) for n, p in every.items() if not options.kind or p.kind in options.kind]
    failures = 0
    with get_context("spawn").Pool(options.jobs, maxtasksperchild=20) as pool:
        for name, now, fault in pool.imap_unordered(examined, work):
            if fault:
                failures += 1
                record.pop(name, None)
                print(f"{name} at {fault}", flush=True)
                continue
            record[name] = now
            if options.record is not None:
                options.record.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    print(f"{len(work)} points, {failures} differ; {time.monotonic() - begin:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
