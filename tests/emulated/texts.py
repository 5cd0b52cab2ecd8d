"""Kernels written by hand, for what the printed ones do not use yet: their arguments, and what they compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.core.tensor import dtype_of
from tatami.cu.ir import Unit
from tatami.cu.print import headers
from tatami.emulated.report import Report
from tatami.runtime.emulated.machine import Argument, EmulatedMachine, Im2col, LaunchShape, MapOver, Pointer, build_machine

FOLDER = Path(__file__).parent / "texts"
Array = np.ndarray


@dataclass(frozen=True)
class Map:
    """A tiled tensor map over a whole array; dims innermost first, in elements."""

    array: str
    dims: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    im2col: Im2col | None = None


@dataclass(frozen=True)
class Case:
    """`parameters` in order: an array's name or a Map. `written`: arrays the kernel writes; those without a value in
    `arrays` have none before. `wanted`: what they hold afterwards."""

    kernel: str
    arrays: dict[str, Array]
    parameters: tuple[str | Map, ...]
    empty: dict[str, tuple[tuple[int, ...], DType]]
    shape: LaunchShape
    wanted: Callable[[dict[str, Array]], dict[str, Array]]
    written: tuple[str, ...] = field(default=())


def eighths(*shape: int, dtype: type = np.float32, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 8).astype(dtype)


F32 = DType.fp32
HALF = np.float16
IMAGE = eighths(1, 5, 5, 4, seed=6)


def _im2col(a: dict[str, Array]) -> dict[str, Array]:
    padded = np.pad(a["image"], ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [padded[0, h : h + 6, w : w + 6].reshape(-1, 4)[:16] for h in (0, 1) for w in (0, 1)]
    return {"out": np.stack(taps).reshape(-1)}


def _flags(a: dict[str, Array]) -> dict[str, Array]:
    total = a["x"].sum(0)
    return {"partial": total, "result": total[:1]}


def _cluster(a: dict[str, Array]) -> dict[str, Array]:
    sums = [a["x"].sum(0) + 3 * rank for rank in (0, 1)]
    return {"out": np.concatenate([sums[0] + 100 * sums[1][0], sums[1] + 100 * sums[0][0]])}


def _exchange(a: dict[str, Array]) -> dict[str, Array]:
    turned = a["x"].reshape(2, 32)[:, ::-1].reshape(64)
    return {"y": np.maximum(turned, 0)[::-1]}


def _small(x: Array) -> Array:
    """The values of fp8 bytes."""
    return x.view(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)


def _products(a: dict[str, Array]) -> dict[str, Array]:
    return {"d": np.concatenate([(a["a32"] @ a["b32"]).reshape(-1), (_small(a["a8"]) @ _small(a["b8"]).T).reshape(-1)])}


def _narrow(a: dict[str, Array]) -> dict[str, Array]:
    return {"d": np.concatenate([(a["a32"] @ a["b32"].T).reshape(-1), (_small(a["a8"]) @ _small(a["b8"]).T).reshape(-1)])}


def _fences(a: dict[str, Array]) -> dict[str, Array]:
    largest = np.uint32(6).view(np.float32)
    return {
        "value": np.array([42, 43], np.float32),
        "taken": np.arange(1, 8, dtype=np.uint32),
        "sums": np.array([7 * 32, largest, 2], np.float32),
    }


CASES = {
    c.kernel: c
    for c in (
        Case(
            "tma_store",
            {"x": eighths(128, 64, dtype=HALF)},
            (Map("x", (64, 128), (64, 64), 128), Map("y", (64, 128), (64, 64), 128), "again"),
            {"y": ((128, 64), DType.fp16), "again": ((1,), DType.u32)},
            LaunchShape((1, 1, 1), 128, shared_bytes=1024 + 16384),
            lambda a: {"y": 2 * a["x"]},
        ),
        Case(
            "tma_add",
            {"sum": np.zeros((8, 64), np.float32), "x": eighths(2, 512)},
            (Map("sum", (64, 8), (64, 8)), "x", "back"),
            {"back": ((2, 512), F32)},
            LaunchShape((2, 1, 1), 32, shared_bytes=1024 + 2048, resident=2),
            lambda a: {"sum": 3 * a["x"].sum(0).reshape(8, 64), "back": 3 * a["x"]},
            ("sum",),
        ),
        Case(
            "cluster",
            {"x": eighths(3, 128)},
            (Map("x", (128, 3), (128, 1)), "out"),
            {"out": ((256,), F32)},
            LaunchShape((2, 1, 1), 128, (2, 1, 1), shared_bytes=1024 + 512),
            _cluster,
        ),
        Case(
            "flags",
            {"x": eighths(5, 64), "flag": np.zeros(1, np.uint32), "count": np.zeros(1, np.uint32)},
            ("x", "partial", "flag", "count", "result"),
            {"partial": ((64,), F32), "result": ((1,), F32)},
            LaunchShape((5, 1, 1), 64, resident=8),
            _flags,
            ("flag", "count"),
        ),
        Case(
            "fences",
            {n: np.zeros(s, d) for n, s, d in (("flag", 1, np.uint32), ("tiles", 1, np.uint32), ("sums", 3, np.float32), ("lock", 1, np.uint32))},
            ("value", "flag", "tiles", "taken", "sums", "lock"),
            {"value": ((2,), F32), "taken": ((7,), DType.u32)},
            LaunchShape((2, 1, 1), 32, resident=2),
            _fences,
            ("flag", "tiles", "sums", "lock"),
        ),
        Case(
            "registers",
            {"a": eighths(64, 64, dtype=HALF), "b": eighths(64, 64, dtype=HALF, seed=1)},
            ("a", "b", "d"),
            {"d": ((64, 64), F32)},
            LaunchShape((1, 1, 1), 256, shared_bytes=1024 + 8192),
            lambda a: {"d": a["a"].astype(np.float32) @ a["b"].astype(np.float32).T},
        ),
        Case(
            "exchange",
            {"x": eighths(64)},
            ("x", "y"),
            {"y": ((64,), F32)},
            LaunchShape((1, 1, 1), 64, shared_bytes=256),
            _exchange,
        ),
        Case(
            "products",
            {
                "a32": eighths(16, 8),
                "b32": eighths(8, 8, seed=1),
                "a8": eighths(16, 32, dtype=ml_dtypes.float8_e4m3fn, seed=2).view(np.uint8),
                "b8": eighths(8, 32, dtype=ml_dtypes.float8_e4m3fn, seed=3).view(np.uint8),
            },
            ("a32", "b32", "a8", "b8", "d"),
            {"d": ((256,), F32)},
            LaunchShape((1, 1, 1), 32),
            _products,
        ),
        Case(
            "narrow",
            {
                "a32": eighths(64, 8),
                "b32": eighths(32, 8, seed=1),
                "a8": eighths(64, 32, dtype=ml_dtypes.float8_e4m3fn, seed=2).view(np.uint8),
                "b8": eighths(16, 32, dtype=ml_dtypes.float8_e4m3fn, seed=3).view(np.uint8),
            },
            ("a32", "b32", "a8", "b8", "d"),
            {"d": ((64 * 48,), F32)},
            LaunchShape((1, 1, 1), 128, shared_bytes=5632),
            _narrow,
        ),
        Case(
            "im2col",
            {"image": IMAGE},
            (Map("image", (4, 5, 5, 1), (4, 1, 1, 1), 0, Im2col((-1, -1), (0, 0), (1, 1), 4, 16)), "out"),
            {"out": ((256,), F32)},
            LaunchShape((1, 1, 1), 32, shared_bytes=1024 + 256),
            _im2col,
        ),
    )
}  # fmt: skip


def text_of(kernel: str) -> str:
    return (FOLDER / f"{kernel}.cu").read_text()


def machine_of(texts: dict[str, str]) -> EmulatedMachine:
    """One machine with many kernels: symbol -> text, in which the kernel has that name."""
    joined = "\n".join(f'#line 1 "{s}.cu"\n{t}\n' + f"TT_ENTRY({s})" for s, t in list(texts.items())[:-1])
    last = list(texts)[-1]
    whole = f'{joined}\n#line 1 "{last}.cu"\n{texts[last]}'
    return build_machine([Unit(last, "sm_90a", VerbatimCode(whole))], headers(()), PRESETS["sm90"])


def known_dtype(a: Array) -> DType:
    dtype = dtype_of(a)
    assert dtype is not None
    return dtype


def run(machine: EmulatedMachine, case: Case, symbol: str, shape: LaunchShape) -> tuple[Report | None, dict[str, Array]]:
    """The machine's report, and the arrays that the kernel writes."""
    buffers = {n: machine.copied(n, a, known_dtype(a)) for n, a in case.arrays.items()}
    buffers |= {n: machine.make(n, int(np.prod(s)), d).reshape(s) for n, (s, d) in case.empty.items()}
    written = {*case.empty, *case.written}
    arguments: list[Argument] = []
    for p in case.parameters:
        a = buffers[p if isinstance(p, str) else p.array]
        if isinstance(p, str):
            arguments.append(Pointer(a, a, p in written))
        else:
            strides = tuple(int(np.prod(p.dims[:i])) * a.dtype.itemsize for i in range(1, len(p.dims)))
            arguments.append(MapOver(a, a, p.array in written, known_dtype(a), p.dims, strides, p.box, p.swizzle, p.im2col))
    try:
        found = machine.run(symbol, arguments, shape)
        return found, {n: buffers[n].copy() for n in written}
    finally:
        for a in buffers.values():
            machine.drop(a)
