"""Few kernels that hold every pair of choices: a pairwise covering set of each matrix template's plans.

A row gives each factor a value. Rows are drawn (always the same ones) until every two values that any legal plan has
together stand in one of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import combinations
from typing import Any

import msgspec

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.kernel import Condition, KernelFace
from tatami.core.target import PRESETS
from tatami.cu.ir import Source
from tatami.cu.print import headers, print_unit
from tatami.gpu.ir import AnyKernel
from tatami.gpu.lower import lower_region, lower_split
from tatami.plan.gpu.sm90_shapes import COPYING_REGISTERS
from tatami.plan.ir import Guarded, LocalEdge, Sm80Mma, Sm90Mma
from tatami.region.ir import Region
from tests import pairwise
from tests.gpu.gemm_examples import gemm, sm80, sm90
from tests.pairwise import Pair

Row = dict[str, Any]
COMMON: dict[str, tuple[Any, ...]] = {
    "order": ("nn", "nt", "tn", "tt"),
    "epilogue": ("plain", "bias, relu", "bias, residual"),
    "batch": (None, "B"),
}
FAMILIES: dict[str, dict[str, tuple[Any, ...]]] = {
    "sm80": {
        "tile": ("64x64x32 32x32", "64x64x64 32x32", "128x64x64 64x32", "128x128x32 64x64", "256x128x32 64x64"),
        "how": ("plain", "overlap", "split", "synchronous", "unswizzled", "exchanged"),
        "stages": (2, 3, 4),
        "dtype": (DType.fp16, DType.bf16),
        "width": (8, 2),
        **COMMON,
    },
    "fma": {
        "tile": ("128x128x16 64x32", "128x64x16 64x32", "64x64x16 32x32", "64x32x32 32x16", "32x64x16 32x16"),
        "how": ("plain", "overlap", "split"),
        "stages": (2, 3, 4),
        "width": (4, 2),
        **COMMON,
    },
    "tf32": {
        "tile": ("64x64x16 32x32", "128x64x16 64x32", "128x128x32 64x64"),
        "how": ("plain", "overlap", "split", "exchanged"),
        "stages": (2, 3),
        "width": (4, 1),
        **COMMON,
    },
    "sm90": {
        "tile": ("128x256x64 2", "256x128x64 2", "64x256x64 2", "128x64x64 2", "64x64x64 1", "192x64x32 3"),
        "how": ("plain", "persistent", "overlap", "pingpong", "cluster 2x1", "cluster 1x2", "split", "exchanged"),
        "stages": (2, 4),
        "dtype": (DType.fp16, DType.bf16, DType.fp32, DType.f8e4m3fn),
        "staged": (False, True),
        "wait_depth": (0, 1),
        "tile_order": ("row", "grouped", "hilbert"),
        **COMMON,
    },
    "copied": {
        "tile": ("128x256x64 2",),
        "loads": (("cp_async", "tma"), ("cp_async", "cp_async")),
        "dtype": (DType.fp16,),
        "order": ("nn",),
        "epilogue": ("bias, relu",),
        "batch": ("B",),
    },
}
"""`copied`: of the SM90 template, operands that threads copy."""
TARGET = {"sm80": "sm80", "fma": "sm80", "tf32": "sm80", "sm90": "sm90", "copied": "sm90"}
INSTRUCTION = {"sm80": "m16n8k16", "fma": "fma", "tf32": "m16n8k8"}
REGISTERS = {1: (56, 224), 2: (40, 232), 3: (32, 160)}
HOW90: dict[str, Row] = {
    "plain": {},
    "persistent": {"persistent": True},
    "overlap": {"persistent": True, "overlap": True},
    "pingpong": {"persistent": True, "overlap": True, "schedule": "pingpong"},
    "cluster 2x1": {"persistent": True, "overlap": True, "cluster": (2, 1), "multicast": "b"},
    "cluster 1x2": {"persistent": True, "overlap": True, "cluster": (1, 2), "multicast": "a"},
    "split": {"split_k": 3},
    "exchanged": {"swap_ab": True},
}


def plan_of(family: str, row: Row) -> Sm80Mma | Sm90Mma:
    shape, _, last = row["tile"].partition(" ")
    tile = tuple(map(int, shape.split("x")))
    overlapped: Row
    if family == "copied":
        overlapped = HOW90["overlap"] | {"epilogue_store": "stmatrix_tma", "registers": COPYING_REGISTERS[int(last)]}
        return sm90(tile, 4, consumers=int(last), width=2, loads=row["loads"], **overlapped)
    if family == "sm90":
        store = "stmatrix_tma" if row["staged"] else "direct"
        other: Row = {"wait_depth": row["wait_depth"], "tile_order": row["tile_order"], "epilogue_store": store}
        consumers, wide = int(last), row["dtype"].itemsize
        tile = (*tile[:2], tile[2] * 2 // wide)
        other |= {"depth": 32 // wide, "registers": REGISTERS[consumers]}
        return sm90(tile, row["stages"], consumers=consumers, **other, **HOW90[row["how"]])
    ways: dict[str, Row] = {
        "plain": {},
        "overlap": {"overlap": True},
        "split": {"split_k": 4},
        "synchronous": {"enable": False},
        "exchanged": {"edges": (LocalEdge("acc", "relu", "smem_ring", 2),)},
        "unswizzled": {"hints": {"A_swizzle": False, "B_swizzle": False, "C_stride": "row"}},
    }
    return sm80(tile, row["stages"], warp=last, width=row["width"], inst_shape=INSTRUCTION[family], **ways[row["how"]])


def region_of(family: str, row: Row) -> Region:
    dtype = row.get("dtype", DType.fp32)
    out = DType.fp16 if dtype.is_fp8 else dtype
    rounded = family == "tf32" or (family == "sm90" and dtype.itemsize != 2)
    a_col, b_col = (side == "t" for side in row["order"])
    of = {"bias": "bias" in row["epilogue"], "relu": "relu" in row["epilogue"], "residual": "residual" in row["epilogue"]}
    return gemm(dtype=dtype, out=out, a_col=a_col, b_col=b_col, batch=row["batch"], tf32=rounded, **of)


def kernels_of(family: str, row: Row) -> tuple[AnyKernel, ...]:
    """The kernels of a row. Raises TatamiError for a plan that is none."""
    target = PRESETS[TARGET[family]]
    region, plan = region_of(family, row), plan_of(family, row)
    last = region.lets[-1].name
    plan = msgspec.structs.replace(plan, local_edges=tuple(msgspec.structs.replace(e, target=last) for e in plan.local_edges))
    size = region.inputs[0].memref.dtype.itemsize
    by = row.get("width", 16 // size)
    wide = by * size == 16
    choice = Guarded(tuple(Condition(var(s), by) for s in "MNK") if wide else (), plan)
    made = lower_split(region, choice, target) if plan.split_k > 1 else [lower_region(region, choice, target)]
    return tuple(msgspec.structs.replace(k, face=KernelFace(f"k{i}", (), len(b.sizes), "")) for i, (k, b) in enumerate(made))


def source_of(family: str, kernels: tuple[AnyKernel, ...]) -> Source:
    return Source(tuple(print_unit(k, PRESETS[TARGET[family]]) for k in kernels), headers(kernels))


@cache
def _refusal(family: str, values: tuple[Any, ...]) -> str:
    try:
        source_of(family, kernels_of(family, dict(zip(FAMILIES[family], values))))
    except TatamiError as error:
        return str(error)
    return ""


def is_legal(family: str, row: Row) -> bool:
    return not _refusal(family, tuple(row.values()))


@cache
def covering(family: str, tries: int = 100) -> tuple[tuple[Row, ...], frozenset[Pair]]:
    """Rows, and the pairs that no legal row was found for."""
    factors = FAMILIES[family]
    rng = random.Random(family)
    pairs = [p for a, b in combinations(factors, 2) for p in map(frozenset, _product(a, factors[a], b, factors[b]))]

    def drawn(pair: Pair, open_: Collection[Pair]) -> list[Row]:
        return [_draw(factors, pair, open_, rng.choice, greedy=k % 3 < 2) for k in range(tries)]

    rows, impossible = pairwise.covering(pairs, drawn, dict, lambda row: is_legal(family, row))
    return tuple(rows), frozenset(impossible)


def _product(
    a: str, left: tuple[Any, ...], b: str, right: tuple[Any, ...]
) -> Iterator[tuple[tuple[str, Any], tuple[str, Any]]]:
    return (((a, x), (b, y)) for x in left for y in right)


def _draw(
    factors: dict[str, tuple[Any, ...]], pair: Pair, open_: Collection[Pair], choice: Callable[[Any], Any], greedy: bool
) -> Row:
    """A row with this pair; each further value by chance, or the one that meets most open pairs."""
    row = dict(pair)
    names = [n for n in factors if n not in row]
    while names:
        name = names.pop(names.index(choice(names)))

        def met(value: Any, name: str = name) -> int:
            return sum(frozenset(((name, value), other)) in open_ for other in row.items())

        values = factors[name]
        best = max(map(met, values)) if greedy else -1
        row[name] = choice([v for v in values if met(v) == best] if greedy else values)
    return {name: row[name] for name in factors}
