"""The plan space of the SM90 templates: every field of a plan, by every dtype, order of operands and kind of problem.

A point gives each factor of a template a value. Legality is decided by `plan/verify_plan.py` and the lowering to say, which
ask the same limits as the planner: a point that they refuse is none. A factor that is only a number in a kernel's text
has a few values that stand for all: sides of clusters, parts of k and of keys, setmaxnreg.

Points are drawn in a fixed order that a hash decides, each once: the first so many are an even sample of all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from math import prod
from typing import Any, Literal, TypeAlias

import msgspec

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.kernel import Condition, KernelFace
from tatami.core.target import PRESETS
from tatami.cu.print import headers, print_unit
from tatami.gpu.ir import Kernel
from tatami.gpu.lower import _kernels_of
from tatami.plan.gpu.sm90_shapes import COPYING_REGISTERS, REGISTERS
from tatami.plan.ir import Guarded, RegionPlan, Sm90Mma, Sm90Pair, StreamK
from tatami.plan.pairs.choose import PARTS_REGISTERS
from tatami.plan.pairs.choose import REGISTERS as PAIR_REGISTERS
from tatami.plan.verify_plan import verify_plan
from tatami.plan.views.pair_limits import pair_limits, pair_rules, role_registers_of_pair
from tatami.plan.views.product_limits import hard_limits, role_registers
from tatami.plan.views.product_rules import shape_rules
from tatami.region.ir import Region
from tatami.region.views.pairs.pair import PairView, pair_view
from tests.cu.every_choice.every_plan import Made
from tests.cu.every_choice.legal_problems import CONVOLUTIONS, KNOWN, WEIGHTS, image_region, pair_region, product_region
from tests.gpu.gemm_examples import TAIL, sm90
from tests.gpu.settled import settled

SM90 = PRESETS["sm90"]
Template: TypeAlias = Literal["product", "image", "pair"]
Row = dict[str, Any]
UNITS = 66
"""CTAs, or clusters, of stream-K."""
MATRIX: dict[str, tuple[Any, ...]] = {
    "rows": (64, 128, 192, 256),
    "columns": tuple(range(8, 257, 8)),
    "k_steps": (2, 4),
    "stages": tuple(range(2, 9)),
    "warpgroups": ("1", "2", "3", "2 in turns"),
    "registers": ("usual", "copying", "fewest"),
    "tiles": ("one", "persistent", "overlapped"),
    "cluster": (
        ((1, 1), "none"),
        ((2, 1), "none"),
        ((2, 1), "b"),
        ((1, 2), "none"),
        ((1, 2), "a"),
        ((2, 2), "a"),
        ((2, 2), "both"),
        ((4, 1), "b"),
        ((1, 4), "a"),
        ((2, 4), "both"),
    ),
    "tile_order": ("row", "grouped", "hilbert"),
    "loads": (("tma", "tma"), ("cp_async", "tma"), ("tma", "cp_async"), ("cp_async", "cp_async")),
    "width": (8, 2, 1),
    "results": ("direct", "staged", "fetched"),
    "wait_depth": (0, 1),
    "parts": ("whole", "3", "4", "16", "32", "tail", "all"),
    "swap_ab": (False, True),
    "dependent_launch": (False, True),
}
"""`parts`: of k; `tail` and `all` are stream-K of the last row of tiles, and of all."""
SPACE: dict[Template, dict[str, tuple[Any, ...]]] = {
    "product": {
        "dtype": (DType.fp16, DType.bf16, DType.fp32, DType.f8e4m3fn, DType.f8e5m2),
        "order": ("nn", "nt", "tn", "tt"),
        "epilogue": ("plain", "bias, relu", "bias, residual"),
        "outer": ("none", "batch", "groups of rows"),
        "sizes": ("any", "known"),
        **MATRIX,
    },
    "image": {"convolution": tuple(CONVOLUTIONS), "nchw": (False, True), **MATRIX},
    "pair": {
        "weights": WEIGHTS,
        "dtype": (DType.fp16, DType.bf16),
        "order": tuple(a + b + c for a in "nt" for b in "nt" for c in "nt"),
        "width": ((64, 64), (96, 96), (128, 128), (192, 192), (256, 256), (192, 128), (72, 40)),
        "keys": tuple(range(16, 257, 16)),
        "consumers": (1, 2, 3),
        "stages": (1, 2, 3, 4),
        "registers": ("usual", "fewest"),
        "overlap": (False, True),
        "in_turns": (False, True),
        "section": (0, 3),
        "split": (1, 2, 7, 32),
        "shared": (False, True),
        "dependent_launch": (False, True),
    },
}


# -- the order -------------------------------------------------------------------------------------


def size_of(template: Template) -> int:
    """Points, of which most are refused."""
    return prod(map(len, SPACE[template].values()))


def row_of(template: Template, draw: int) -> Row:
    """The point that is drawn as number `draw`."""
    place = shuffled(draw, size_of(template), template)
    row: Row = {}
    for name, values in SPACE[template].items():
        place, digit = divmod(place, len(values))
        row[name] = values[digit]
    return row


def shuffled(draw: int, count: int, key: str) -> int:
    """A permutation of the first `count` numbers: halves of the bits that a hash mixes in turns, until the number is one of them."""
    half = ((count - 1).bit_length() + 1) // 2
    mask = (1 << half) - 1
    while True:
        left, right = draw >> half, draw & mask
        for turn in range(4):
            mixed = hashlib.blake2b(b"%s %d %d" % (key.encode(), turn, right), digest_size=8).digest()
            left, right = right, left ^ int.from_bytes(mixed, "little") & mask
        draw = left << half | right
        if draw < count:
            return draw


# -- points ----------------------------------------------------------------------------------------


def kernels_of(template: Template, row: Row) -> list[Made]:
    """Kernels of a point. Raises TatamiError if it is not a plan."""
    return made_by(template, row, plan_of(template, row))


def made_by(template: Template, row: Row, plan: Sm90Mma | Sm90Pair) -> list[Made]:
    """The kernels of a plan for a point's problem. Raises TatamiError where it is none."""
    region, conditions = region_of(template, row), conditions_of(template, row)
    if isinstance(plan, Sm90Mma):
        plan = settled(plan, region)
    if faults := verify_plan(plan, region, SM90):
        raise TatamiError(*faults)
    lowered = _kernels_of(region, RegionPlan(region.name, "", (Guarded(conditions, plan),), ()), SM90)
    kernels = tuple(
        msgspec.structs.replace(k, face=KernelFace(f"k{i}", (), len(b.sizes), "")) for i, (_, k, b) in enumerate(lowered)
    )
    included: dict[str, str] = {**headers(kernels)}
    return [
        Made(print_unit(k, SM90), included, plan, k if isinstance(k, Kernel) else None, b.shared_bytes)
        for k, (_, _, b) in zip(kernels, lowered, strict=True)
    ]


def is_refused_alone(template: Template, row: Row) -> bool:
    """True if the plan breaks a rule of its own fields or of the machine: the first rules of `verify_plan`, without the time of the others.
    Products that the compiler keeps apart do not belong to a pair's plan."""
    if template == "pair" and pair_region(*_pair(row)) is None:
        return True
    plan = plan_of(template, row)
    if isinstance(plan, Sm90Pair):
        view = _view(*_pair(row))
        return bool(pair_rules(plan, view) or pair_limits(plan, view, SM90))
    dtype = row["dtype"] if template == "product" else CONVOLUTIONS[row["convolution"]].dtype
    return bool(shape_rules(plan) or hard_limits(plan, dtype, SM90))


def legal_points(template: Template, first: int = 0) -> Iterator[tuple[int, Row, list[Made]]]:
    """(draw, point, kernels) of those that are plans, from a draw on."""
    for draw in range(first, size_of(template)):
        row = row_of(template, draw)
        if is_refused_alone(template, row):
            continue
        try:
            made = kernels_of(template, row)
        except TatamiError:
            continue
        yield draw, row, made


def region_of(template: Template, row: Row) -> Region:
    match template:
        case "product":
            return product_region(*(row[x] for x in ("dtype", "order", "epilogue", "outer", "sizes")))
        case "image":
            return image_region(row["convolution"], row["nchw"])
        case "pair":
            region = pair_region(*_pair(row))
            assert region is not None
            return region


def conditions_of(template: Template, row: Row) -> tuple[Condition, ...]:
    """Conditions on sizes that a call promises: whole 16 bytes for TMA, else whole copies; keys for a pair."""
    if template == "image" or row.get("sizes") == "known":
        return ()
    if template == "pair":
        return tuple(Condition(var(s), 8, low=1) for s in "ST")
    by = 16 // row["dtype"].itemsize if "tma" in row["loads"] else row["width"]
    return tuple(Condition(var(s), by) for s in "MNK") if by > 1 else ()


def plan_of(template: Template, row: Row) -> Sm90Mma | Sm90Pair:
    return _pair_plan(row) if template == "pair" else _matrix_plan(template, row)


def _matrix_plan(template: Template, row: Row) -> Sm90Mma:
    dtype = row["dtype"] if template == "product" else CONVOLUTIONS[row["convolution"]].dtype
    depth = 32 // dtype.itemsize
    tile = (row["rows"], row["columns"], row["k_steps"] * depth)
    consumers = int(row["warpgroups"][0])
    (cm, cn), multicast = row["cluster"]
    streamed = {"tail": 1, "all": -(-KNOWN[0] // (tile[0] * cm))}.get(row["parts"])
    plan = sm90(
        tile,
        row["stages"],
        depth=depth,
        tail=_tail(row, tile),
        consumers=consumers,
        width=row["width"],
        persistent=row["tiles"] != "one",
        overlap=row["tiles"] == "overlapped",
        schedule="pingpong" if row["warpgroups"].endswith("turns") else "cooperative",
        registers=(COPYING_REGISTERS if row["registers"] == "copying" else REGISTERS)[consumers],
        cluster=(cm, cn),
        multicast=multicast,
        tile_order=row["tile_order"],
        loads=row["loads"],
        epilogue_store="direct" if row["results"] == "direct" else "stmatrix_tma",
        epilogue_load="tma" if row["results"] == "fetched" else "direct",
        wait_depth=row["wait_depth"],
        split_k=int(row["parts"]) if row["parts"].isdecimal() else 1,
        stream_k=StreamK(streamed, UNITS) if streamed else None,
        swap_ab=row["swap_ab"],
        dependent_launch=row["dependent_launch"],
    )
    if row["registers"] == "fewest":
        plan = msgspec.structs.replace(plan, registers=tuple(map(_whole, role_registers(plan, SM90))))
    return plan


def _pair_plan(row: Row) -> Sm90Pair:
    view = _view(*_pair(row))
    depth, columns = (-(-x // 16) * 16 for x in row["width"])
    consumers = row["consumers"]
    tail = (view.rows, view.keys, *(a for a, w in ((view.depth, row["width"][0]), (view.columns, row["width"][1])) if w % 16))
    plan = Sm90Pair(
        view.first,
        view.second,
        (64 * consumers, columns, row["keys"]),
        depth,
        consumers,
        row["stages"],
        tail,
        registers=(PAIR_REGISTERS if row["split"] == 1 else PARTS_REGISTERS)[consumers],
        overlap=row["overlap"],
        in_turns=row["in_turns"],
        section=row["section"],
        split=row["split"],
        others=tuple(f.acc for f in view.firsts[1:]),
        shared=row["shared"],
        dependent_launch=row["dependent_launch"],
    )
    if row["registers"] == "fewest":
        plan = msgspec.structs.replace(plan, registers=tuple(map(_whole, role_registers_of_pair(plan, view, SM90))))
    return plan


@cache
def _view(*pair: Any) -> PairView:
    region = pair_region(*pair)
    assert region is not None
    view = pair_view(region)
    assert isinstance(view, PairView), view
    return view


def _pair(row: Row) -> tuple[Any, ...]:
    return row["weights"], row["dtype"], row["order"], row["width"]


def _tail(row: Row, tile: tuple[int, int, int]) -> tuple[str, ...]:
    """Axes of no whole tiles."""
    if row.get("sizes") != "known":
        return TAIL
    cm, cn = row["cluster"][0]
    down, across = (tile[1] * cn, tile[0] * cm) if row["swap_ab"] else (tile[0] * cm, tile[1] * cn)
    return tuple(a for a, size, whole in zip(TAIL, KNOWN, (down, across, tile[2])) if size % whole)


def _whole(registers: int) -> int:
    """The least that setmaxnreg can say of as many."""
    return -(-registers // 8) * 8
