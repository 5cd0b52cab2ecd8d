"""Blocks that bound nothing, the group that threads divide, and the order of names, of products of every form."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tatami.api import prepare
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.target import PRESETS
from tatami.frontend.graph import Graph
from tatami.plan.cpu.contraction_rules import as_obeyed, blocks_of_one_tile, contraction_rules, divided_by_threads
from tatami.plan.ir import CpuContraction
from tatami.region.ir import Cast, Index, Region, Yield
from tatami.region.views.kinds import contractions
from tests.loop.products.test_narrow_weights import VNNI, Weights
from tests.region.examples import iters, let, mul, param, read, target, total

replace = msgspec.structs.replace
PLAN = CpuContraction("acc", 12, 32, 384, 12, 32, 16, False, "m", (), ())
MC, NC = {"mc": 12}, {"nc": 32}
BOTH = MC | NC


def product(m: Any = 64, n: Any = 96, k: Any = 128, *, batch: int = 0, to: tuple[Any, ...] = ("m", "n"), sizes: tuple[Any, ...] = (), narrow: bool = False) -> Region:  # fmt: skip
    """C[to] = A[m, k] B[k, n], for each b if there is a batch; `sizes`: of C, if they are not the loops'."""
    dtype, acc = (DType.i8, DType.i32) if narrow else (DType.fp32, DType.fp32)
    b, own = (("b",), (batch,)) if batch else ((), ())
    lhs, rhs = read("A", *b, "m", "k"), read("B", *b, "k", "n")
    body = mul(Cast(lhs, acc), Cast(rhs, acc)) if narrow else mul(lhs, rhs)
    loops = {**dict(zip(b, own)), "m": m, "n": n}
    axes = " ".join(loops)
    written = Yield("acc", "C", map=shape(*b, *to))
    inputs = (param("A", *own, m, k, dtype=dtype), param("B", *own, k, n, dtype=dtype))
    made = let("acc", axes, total("k", body, dtype=acc), acc)
    return Region(
        "r", iters(**loops), iters(k=k), inputs, (target("C", *own, *(sizes or (m, n)), dtype=acc),), (made,), (written,)
    )


def images() -> Region:
    """C[m, i, n] = A[m, k] B[i, k, n]: the columns are those of four images."""
    made = let("acc", "m i n", total("k", mul(read("A", "m", "k"), read("B", "i", "k", "n"))))
    inputs = (param("A", 64, 128), param("B", 4, 128, 96))
    return Region("r", iters(m=64, i=4, n=96), iters(k=128), inputs, (target("C", 64, 4, 96),), (made,), (Yield("acc", "C"),))


def zipped(by: str = "m") -> Region:
    """Results of two neighbours along `by` alternate in memory."""
    size, across, other = (64, 96, "n") if by == "m" else (96, 64, "m")
    return product(64, 96, to=(f"{by}//2", other, f"{by} - 2*({by}//2)"), sizes=(size // 2, across, 2))


def scattered() -> Region:
    """The zipped product, and a yield to rows that data name before it."""
    plain = zipped()
    at = let("at", "m n", Index(expr("m"), DType.i64), DType.i64)
    to = Yield("acc", "D", map=(None, expr("n")), indices=("at",))
    outputs = (target("D", 64, 96), *plain.outputs)
    return replace(plain, lets=(*plain.lets, at), outputs=outputs, yields=(to, *plain.yields))


def images_zipped() -> Region:
    """The product of images whose rows alternate in memory."""
    to = Yield("acc", "C", map=shape("i", "m//2", "n", "m - 2*(m//2)"))
    return replace(images(), outputs=(target("C", 4, 32, 96, 2),), yields=(to,))


BLOCKS: dict[str, tuple[Region, dict[str, Any], dict[str, int]]] = {
    "rows": (product(), {}, NC),
    "columns": (product(), {"split": "n"}, MC),
    "columns in place": (product(), {"split": "n", "in_place": ("n",)}, BOTH),
    "rows in place": (product(), {"split": "n", "in_place": ("m",)}, MC),
    "packed columns": (product(), {"split": "n", "packed": ("B",)}, BOTH),
    "packed rows": (product(), {"split": "n", "packed": ("A",)}, MC),
    "packed columns, exchanged": (product(), {"split": "n", "packed": ("A",), "swap": True}, BOTH),
    "packed rows, exchanged": (product(), {"split": "n", "packed": ("B",), "swap": True}, MC),
    "one panel": (product(12), {"split": "n"}, BOTH),
    "a row more than a panel": (product(13), {"split": "n"}, MC),
    "one panel of columns, exchanged": (product(64, 12), {"split": "n", "swap": True}, BOTH),
    "one panel of rows, exchanged": (product(12), {"split": "n", "swap": True}, MC),
    "one panel of columns": (product(64, 12), {"split": "n"}, MC),
    "rows of open number": (product("M"), {"split": "n"}, MC),
    "long rows in one panel": (product(12, 256), {"in_place": ("n",)}, {}),
    "long rows in one panel that are copied": (product(12, 256), {}, NC),
    "long rows in one panel, all in place": (product(12, 256), {"in_place": ("m", "n")}, NC),
    "long rows in two panels": (product(13, 256), {"in_place": ("n",)}, NC),
    "short rows in one panel": (product(12, 248), {"in_place": ("n",)}, NC),
    "tiles": (product(), {"dot": "quads_amx"}, {}),
    "tiles of columns": (product(), {"dot": "quads_amx", "split": "n"}, MC),
    "packed columns of integers": (product(narrow=True), {"dot": "quads", "split": "n", "packed": ("B",)}, BOTH),
    "packed rows of integers": (product(narrow=True), {"dot": "quads", "split": "n", "packed": ("A",)}, MC),
    "results that alternate": (zipped(), {"split": "n"}, BOTH),
    "results that alternate, exchanged": (zipped("n"), {"split": "n", "swap": True}, BOTH),
    "results that alternate along the other side": (zipped(), {"split": "n", "swap": True}, MC),
    "results that alternate, of part of a vector": (zipped(), {"split": "n", "nr": 24}, MC),
    "results that alternate, of images": (images_zipped(), {"split": "n", "images": ("i",)}, MC),
    "results that alternate, some of them scattered": (scattered(), {"split": "n"}, MC),
    **{
        f"two results that go down, of {lanes} lanes": (product(2, to=("n", "m"), sizes=(96, 2)), {"split": "n", "mr": 1, "width": lanes}, {"mc": 1} if lanes > 2 else {"mc": 1, "nc": 32})
        for lanes in (2, 4, 8, 16)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_that_bound_nothing_are_one_tile(name: str) -> None:
    region, fields, wanted = BLOCKS[name]
    (c,) = contractions(region)
    assert blocks_of_one_tile(region, c, replace(PLAN, **fields)) == {
        field: fields.get("nr", n) if field == "nc" else n for field, n in wanted.items()
    }


DIVIDED: dict[str, tuple[Region, dict[str, Any], str]] = {
    "rows": (product(), {}, "m"),
    "columns": (product(), {"split": "n"}, "n"),
    "parts of k": (product(), {"split": "k", "parts": 2}, "k"),
    "batches": (product(batch=3), {}, "batch"),
    "columns of batches": (product(batch=3), {"split": "n"}, "batch"),
    "columns of images": (images(), {"split": "n", "images": ("i",)}, "n"),
    "rows of images": (images(), {"split": "m", "images": ("i",)}, "batch"),
    "tiles of images": (images(), {"split": "n", "images": ("i",), "dot": "quads_amx"}, "batch"),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_threads_divide_batches_where_there_are_some(name: str) -> None:
    region, fields, wanted = DIVIDED[name]
    (c,) = contractions(region)
    plan = replace(PLAN, **fields)
    assert divided_by_threads(c, plan) == wanted
    obeyed = as_obeyed(region, c, replace(plan, mc=96, nc=96))
    assert obeyed.split == wanted and as_obeyed(region, c, obeyed) == obeyed


FAULTS: dict[str, tuple[Region, dict[str, Any], tuple[str, ...]]] = {
    "nothing": (product(), {}, ()),
    "sides in another order": (product(), {"in_place": ("n", "m")}, ("n, m: not in their order",)),
    "operands in another order": (product(), {"packed": ("B", "A")}, ("B, A: not in their order",)),
    "a split of batches": (product(batch=3), {"nc": 64}, ("split m, but threads divide the batches",)),
    "one part of k": (product(), {"split": "k", "nc": 64}, ("split k, parts 1",)),
    "two parts of k": (product(), {"split": "k", "parts": 2, "nc": 64}, ("nc 64 bounds nothing where columns are neither copied nor read together",)),
    "rows of a block that are no panels": (product(), {"mc": 13, "nc": 64}, ("mc 13, nc 64 for a tile of 12x32",)),
    "columns of a block that are no slivers": (product(), {"split": "n", "mc": 24, "nc": 33}, ("mc 24, nc 33 for a tile of 12x32",)),
    "rows of one element": (product(), {"mr": 1, "mc": 1, "nc": 64}, ("nc 64 bounds nothing where columns are neither copied nor read together",)),
    "blocks of columns": (product(), {"split": "n", "mc": 24}, ("mc 24 bounds nothing where threads divide columns",)),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_rule_is_the_one_fault(name: str) -> None:
    region, fields, wanted = FAULTS[name]
    assert tuple(d.why for d in contraction_rules(replace(PLAN, **fields), region, PRESETS["cpu:avx512"])) == wanted


def by_blocks() -> tuple[Region, CpuContraction]:
    """The product of quantised rows with codes that have a scale for 32 steps of k, and the plan that multiplies it by blocks."""
    g = Graph("g")
    x = g.input("x", ("B", 96), DType.fp32)
    g.output("y", x @ Weights("i8", 96, 40, 32, False).put(g))
    stages = prepare(g, target=VNNI, precision="int8").stages
    (found,) = [
        (r.region, c.plan) for r in stages["plan"].main.regions for c in r.choices if isinstance(c.plan, CpuContraction)
    ]
    return next(r for r in stages["region"].main.body if isinstance(r, Region) and r.name == found[0]), found[1]


def test_blocks_are_multiplied_where_they_are_packed() -> None:
    region, plan = by_blocks()

    def faults(plan: CpuContraction, of: Region = region) -> list[str]:
        return [d.why.split(";")[0] for d in contraction_rules(plan, of, VNNI)]

    assert plan.dot == "blocks_vnni" and faults(plan) == []
    assert faults(replace(plan, packed=())) == ["blocks_vnni of k"]
    assert faults(replace(plan, dot="quads_vnni")) == ["quads_vnni of k"]
    assert faults(replace(plan, acc="acc"), product()) == ["n1 is not an operand of the contraction", "blocks_vnni of k"]
    assert faults(replace(plan, split="k", parts=3)) == ["split k by blocks_vnni, which multiplies all of k"]
    assert faults(replace(plan, split="k", parts=3, dot="")) == []
