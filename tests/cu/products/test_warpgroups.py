"""The roles of the SM90 template beyond one tile per CTA: clusters, turns, staged stores, exchanged operands.

On the emulated GPU they compute the right numbers without a report, with several tiles per CTA, odd tile counts and trip
counts from 0 on; the verifier proves them; ptxas takes them without spills and warnings.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.layout import MemRef
from tatami.core.target import PRESETS
from tatami.gpu import ir, statement_ir
from tatami.gpu.lower import lower_region
from tatami.gpu.verify import verify_kernel
from tatami.plan.choose_gpu import measurable
from tatami.plan.ir import Guarded, Sm90Mma
from tatami.region.ir import Read, Region
from tatami.region.walk import rewrite
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import machine_code
from tests.cu.test_compile import BY8, compiled
from tests.cu.test_numbers import compare
from tests.emulated.kernels import Built
from tests.gpu.gemm_examples import gemm, sm90

ONE: dict[str, Any] = {"consumers": 1, "registers": (56, 224)}
TILES: dict[str, Any] = {"persistent": True, "overlap": True}
STAGED: dict[str, Any] = {"epilogue_store": "stmatrix_tma"}
FETCHED = STAGED | {"epilogue_load": "tma"}
TURNS = TILES | {"schedule": "pingpong"}
B = DType.bf16


def shared_residual(region: Region) -> Region:
    """The Region with one residual R [m, n] for all batches."""
    inputs = tuple(
        msgspec.structs.replace(p, memref=MemRef(p.memref.dtype, p.memref.shape[1:])) if p.name == "R" else p
        for p in region.inputs
    )
    lets = tuple(
        msgspec.structs.replace(
            x, expr=rewrite(x.expr, lambda e: Read("R", e.map[1:]) if isinstance(e, Read) and e.tensor == "R" else e)
        )
        for x in region.lets
    )
    return msgspec.structs.replace(region, inputs=inputs, lets=lets)


CASES: dict[str, tuple[Region, Any, dict[str, int]]] = {
    "staged": (gemm(b_col=True), sm90((128, 96, 64), 3, **STAGED), {"M": 100, "N": 88, "K": 72}),
    "staged tiles": (
        gemm(residual=True),
        sm90((64, 64, 64), 2, **STAGED, **TILES, **ONE),
        {"M": 300, "N": 88, "K": 136},
    ),
    "staged strict": (
        gemm(dtype=B, out=B),
        sm90((128, 64, 64), 2, **STAGED, persistent=True),
        {"M": 300, "N": 136, "K": 64},
    ),
    "column pair": (
        gemm(),
        sm90((64, 128, 64), 3, cluster=(2, 1), multicast="b", **TILES, **ONE),
        {"M": 300, "N": 136, "K": 136},
    ),
    "row pair": (
        gemm(a_col=True, b_col=True),
        sm90((128, 64, 64), 3, cluster=(1, 2), multicast="a", **TILES),
        {"M": 304, "N": 152, "K": 136},
    ),
    "square": (
        gemm(b_col=True, batch="B"),
        sm90((128, 64, 64), 2, cluster=(2, 2), multicast="both", **STAGED, **TILES),
        {"M": 300, "N": 152, "K": 72, "B": 2},
    ),
    "square of columns": (
        gemm(b_col=True),
        sm90((64, 64, 64), 2, cluster=(2, 2), multicast="b", **TILES, **ONE),
        {"M": 200, "N": 152, "K": 200},
    ),
    "cluster without multicast": (
        gemm(b_col=True),
        sm90((64, 64, 64), 2, cluster=(2, 1), **TILES, **ONE),
        {"M": 200, "N": 72, "K": 72},
    ),
    "turns": (gemm(b_col=True), sm90((64, 64, 64), 3, **STAGED, **TURNS), {"M": 300, "N": 152, "K": 200}),
    "turns direct": (gemm(out=DType.fp32, residual=True), sm90((128, 64, 64), 2, **TURNS), {"M": 300, "N": 72, "K": 64}),
    "turns of a pair": (
        gemm(b_col=True, batch="B"),
        sm90((64, 64, 64), 3, cluster=(2, 1), multicast="b", tile_order="hilbert", **STAGED, **TURNS),
        {"M": 200, "N": 152, "K": 72, "B": 3},
    ),
    "fetched": (
        gemm(residual=True, b_col=True),
        sm90((128, 96, 64), 2, **FETCHED),
        {"M": 100, "N": 88, "K": 72},
    ),
    "fetched tiles": (
        gemm(residual=True, b_col=True, dtype=B, out=B, batch="B"),
        sm90((128, 64, 64), 2, **FETCHED, **TILES, **ONE),
        {"M": 300, "N": 88, "K": 136, "B": 2},
    ),
    "fetched in turns": (
        gemm(residual=True),
        sm90((64, 128, 64), 2, cluster=(2, 1), multicast="b", **FETCHED, **TURNS),
        {"M": 300, "N": 136, "K": 72},
    ),
    "fetched for all batches": (
        shared_residual(gemm(residual=True, batch="B")),
        sm90((64, 64, 64), 2, **FETCHED, **TILES, **ONE),
        {"M": 72, "N": 88, "K": 72, "B": 3},
    ),
    "fetched exchanged": (
        gemm(residual=True),
        sm90((128, 32, 64), 3, swap_ab=True, **FETCHED, **TILES),
        {"M": 24, "N": 272, "K": 136},
    ),
    "exchanged": (gemm(), sm90((64, 16, 64), 3, swap_ab=True, **STAGED, **ONE), {"M": 24, "N": 152, "K": 200}),
    "exchanged direct": (
        gemm(b_col=True, residual=True),
        sm90((128, 32, 64), 3, swap_ab=True, **TILES),
        {"M": 19, "N": 272, "K": 136},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_on_the_emulated_gpu(name: str) -> None:
    region, plan, env = CASES[name]
    compare(region, plan, "sm90", env, sms=5)
    compare(region, plan, "sm90", env, sms=4, schedule=11)


@pytest.mark.parametrize("k", [0, 8, 64, 72])
@pytest.mark.parametrize("name", ["square", "turns", "staged tiles", "fetched tiles"])
def test_short_products(name: str, k: int) -> None:
    """Trip counts 0, 1 and 2, whole and not."""
    region, plan, env = CASES[name]
    compare(region, plan, "sm90", env | {"K": k}, sms=4)


@pytest.mark.parametrize("name", CASES)
def test_the_protocol_is_proved(name: str) -> None:
    assert verify_kernel(kernel(name)) == []


def kernel(name: str) -> ir.Kernel:
    region, plan, _ = CASES[name]
    return lower_region(region, Guarded(BY8, plan), PRESETS["sm90"])[0]


def test_every_tile_is_computed_once_in_every_order() -> None:
    """The order changes who computes a tile, not which: 11 x 10 tiles, more than a group and not a multiple of one."""
    region = gemm(b_col=True, bias=False, relu=False)
    env = {"M": 11 * 64 - 8, "N": 10 * 64, "K": 8}
    rng = np.random.default_rng(0)
    arrays = {n: (rng.integers(-8, 9, (env[d], 8)) / 8).astype(np.float16) for n, d in (("A", "M"), ("B", "N"))}
    made = [
        Built(region, sm90((64, 64, 64), 2, tile_order=order, **TILES, **ONE), "sm90", BY8, sms=7).run(arrays, env)
        for order in ("row", "grouped", "hilbert")
    ]
    assert np.array_equal(made[0], made[1]) and np.array_equal(made[0], made[2])


# -- what the verifier refuses ---------------------------------------------------------------------


def edited(
    body: tuple[statement_ir.Stmt, ...], change: Callable[[statement_ir.Stmt], statement_ir.Stmt | None]
) -> tuple[statement_ir.Stmt, ...]:
    out = []
    for s in body:
        new = (
            msgspec.structs.replace(s, body=edited(s.body, change))
            if isinstance(s, statement_ir.Loop | statement_ir.Role)
            else change(s)
        )
        if new is not None:
            out.append(new)
    return tuple(out)


def assert_named(k: ir.Kernel, where: Callable[[Any], bool], change: Callable[[Any], Any], words: str) -> None:
    """The kernel with its statements changed there is refused in these words."""
    broken = msgspec.structs.replace(k, body=edited(k.body, lambda s: change(s) if where(s) else s))
    assert broken != k
    found = verify_kernel(broken)
    assert found and any(words in d.why for d in found), [d.why for d in found]


def first(kind: type, **fields: Any) -> Callable[[Any], bool]:
    """True at the first statement of the kind with these fields."""
    seen: list[Any] = []

    def test(s: Any) -> bool:
        if seen or not isinstance(s, kind) or any(getattr(s, f) != v for f, v in fields.items()):
            return False
        seen.append(s)
        return True

    return test


FAULTS: list[tuple[str, str, Callable[[Any], bool], Callable[[Any], Any], str]] = [
    (
        "staged tiles",
        "no wait before a chunk",
        first(statement_ir.Wait, model="bulk_group", pending=1),
        lambda s: None,
        "may still read it",
    ),
    (
        "staged tiles",
        "one store too many under way",
        first(statement_ir.Wait, model="bulk_group", pending=1),
        lambda s: msgspec.structs.replace(s, pending=2),
        "may still read it",
    ),
    (
        "staged tiles",
        "the others do not know of the wait",
        first(statement_ir.SyncWarpgroup),
        lambda s: None,
        "may still read it",
    ),
    ("staged tiles", "no fence", first(statement_ir.FenceAsync), lambda s: None, "without a FenceAsync"),
    (
        "staged tiles",
        "a fence before the writes",
        first(statement_ir.StMatrix),
        lambda s: statement_ir.FenceAsync(),
        "was not written",
    ),
    (
        "staged tiles",
        "the last store is not awaited",
        first(statement_ir.Wait, model="bulk_group", pending=0),
        lambda s: None,
        "no Wait by bulk_group after it",
    ),
    (
        "fetched tiles",
        "a slot is filled while it is stored",
        first(statement_ir.Wait, model="bulk_group"),
        lambda s: None,
        "is filled while its last TMA store may still read it",
    ),
    (
        "fetched tiles",
        "nobody waits for what is fetched",
        first(statement_ir.Wait, model="fetch"),
        lambda s: None,
        "is overwritten before what is fetched there has landed",
    ),
    (
        "fetched tiles",
        "results overwrite what was fetched",
        first(statement_ir.StMatrix),
        lambda s: msgspec.structs.replace(s, fetched=""),
        "is overwritten before what was fetched is read",
    ),
    (
        "fetched tiles",
        "nothing is fetched",
        first(statement_ir.TmaFetch),
        lambda s: None,
        "token tFetch is never given",
    ),
    (
        "fetched tiles",
        "some chunks are not fetched",
        first(statement_ir.TmaFetch),
        lambda s: msgspec.structs.replace(s, chunks=1, bytes=8192),
        "1 chunks are fetched to 2 slots",
    ),
    (
        "fetched tiles",
        "fewer bytes are expected than land",
        first(statement_ir.TmaFetch),
        lambda s: msgspec.structs.replace(s, bytes=8192),
        "8192 bytes are expected of 2 slots of 8192",
    ),
    (
        "square",
        "slots are freed for the own CTA only",
        first(statement_ir.MBarrierArrive, share="mn"),
        lambda s: msgspec.structs.replace(s, share=""),
        "arrive in each phase",
    ),
    (
        "square",
        "an operand is loaded for the own CTA only",
        first(statement_ir.TmaLoad, share="m"),
        lambda s: msgspec.structs.replace(s, share=""),
        "empty",
    ),
    ("square", "no sync of the cluster at the end", first(statement_ir.SyncThreads), lambda s: None, "between MBarrierInit"),
    (
        "turns",
        "nobody waits for his turn",
        first(statement_ir.Wait, mbarrier="turn"),
        lambda s: None,
        "parities could not tell them apart",
    ),
    (
        "turns",
        "the turn is given on before the products",
        first(statement_ir.Wait, mbarrier="turn"),
        lambda s: msgspec.structs.replace(s, phase=0),
        "deadlock",
    ),
]


@pytest.mark.parametrize(("name", "fault", "where", "change", "words"), FAULTS, ids=[f[1] for f in FAULTS])
def test_a_planted_fault_is_named(
    name: str, fault: str, where: Callable[[Any], bool], change: Callable[[Any], Any], words: str
) -> None:
    assert_named(kernel(name), where, change, words)


def test_the_cluster_ends_together() -> None:
    k = kernel("column pair")
    broken = msgspec.structs.replace(k, body=k.body[:-1])
    assert "may be gone" in verify_kernel(broken)[0].why


REFUSED: list[tuple[Any, str]] = [
    (sm90(cluster=(2, 1)), "needs persistent"),
    (sm90(cluster=(4, 4), **TILES), "outside 1..8"),
    (sm90(cluster=(1, 2), multicast="b", **TILES), "where the cluster 1x2 has one CTA"),
    (sm90((64, 64, 64), cluster=(2, 1), multicast="b", **TILES, **ONE), "use a multiple of 128"),
    (sm90((128, 128, 64), schedule="pingpong"), "take persistent tiles in turns"),
    (sm90(epilogue_load="tma"), "epilogue_store direct has none"),
    (sm90((128, 256, 64), 4, **FETCHED), "B per CTA"),
    (sm90(**FETCHED), "its epilogue reads nothing of 16 bits that lies along n as results do"),
    (sm90((64, 24, 64), **STAGED, **ONE), "BN = 24 is not a multiple of 16"),
    (sm90((128, 256, 64), 5, **STAGED), "B per CTA"),
    (sm90((128, 256, 64), 3, **TURNS, **STAGED), "296 registers"),
    (sm90(registers=(48, 232)), "65536 registers > 64512"),
    (sm90(registers=(32, 232)), "40 registers per producer thread > setmaxnreg 32"),
    (sm90(registers=(40, 120)), "152 registers per consumer thread > setmaxnreg 120"),
    (sm90(registers=(200, 144)), "setmaxnreg 200 of the producer > 144"),
    (sm90(loads=("cp_async", "tma")), "80 registers per producer thread > setmaxnreg 40"),
    (sm90((192, 208, 64), 2, consumers=3, registers=(32, 160), **STAGED), "wgmma of 208 columns takes 130 registers > 128"),
    (sm90((128, 208, 64), cluster=(2, 2), **TILES), "104 accumulators .* > 96 .* both sides of the cluster 2x2"),
    (sm90((128, 32, 64), swap_ab=True, cluster=(2, 1), **TILES), "swap_ab in a cluster of 2x1"),
    (sm90((256, 192, 64), 2, **TILES), "192 accumulators .* > 128 that it has registers for"),
]


@pytest.mark.parametrize(("plan", "words"), REFUSED, ids=[w for _, w in REFUSED])
def test_a_plan_that_cannot_be_is_refused_with_numbers(plan: Any, words: str) -> None:
    with pytest.raises(TatamiError, match=words):
        lower_region(gemm(), Guarded(BY8, plan), PRESETS["sm90"])


@pytest.mark.parametrize(
    ("out", "words"), [(DType.fp32, "stmatrix stores elements of 16 bits"), (DType.fp16, "multiple of 16")], ids=str
)
def test_an_output_that_tma_cannot_store_is_refused(out: DType, words: str) -> None:
    conditions = BY8[:1] + BY8[2:] if out == DType.fp16 else BY8
    with pytest.raises(TatamiError, match=words):
        lower_region(gemm(b_col=True, out=out), Guarded(conditions, sm90(**STAGED)), PRESETS["sm90"])


# -- machine code ----------------------------------------------------------------------------------


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
def test_the_full_size_kernel_in_machine_code(tmp_path: Path) -> None:
    """128x256 by two warpgroups in a pair: per block of k four products, one wait; a copy and a multicast; stores by TMA."""
    plan = sm90((128, 256, 64), 3, cluster=(2, 1), multicast="b", tile_order="hilbert", **STAGED, **TILES)
    cubin = compiled(gemm(b_col=True, residual=True), plan, "sm90")
    ops = machine_code(cubin, tmp_path)

    def count(*words: str) -> int:
        return sum(n for op, n in ops.items() if all(w in op for w in words))

    assert count("HGMMA") == 4 and count("WARPGROUP.DEPBAR") == 2, "one wait in the loop, one behind it"
    assert count("UTMALDG") == 2 and count("UTMALDG", "MULTICAST") == 1
    assert count("UTMASTG") == 256 // 64 and count("STSM") == 256 // 16
    assert count("MEMBAR", "GPU") == count("UCGABAR_ARV") == 2, "a fence of the GPU at the ends, none in the loop"
    assert count("USETMAXREG") == 2 and count("UTMACCTL") == 3, "registers move once; each tensor map is fetched ahead"
    assert not {op.split(".")[0] for op in ops} & {"STL", "LDL", "HMMA", "LDGSTS", "STG"}


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
def test_a_fetched_residual_in_machine_code(tmp_path: Path) -> None:
    """One more copy for each chunk of a warpgroup's part, read by ldmatrix: no load of global memory but the bias."""
    plan = sm90((128, 256, 64), 3, cluster=(2, 1), multicast="b", **FETCHED, **TILES)
    ops = machine_code(compiled(gemm(b_col=True, bias=False, residual=True), plan, "sm90"), tmp_path)
    by_name = {name: sum(n for op, n in ops.items() if op.split(".")[0] == name) for name in {op.split(".")[0] for op in ops}}
    assert by_name["UTMALDG"] == 2 + 256 // 64 and by_name["UTMASTG"] == 256 // 64
    assert by_name["LDSM"] == by_name["STSM"] == 256 // 16
    assert not set(by_name) & {"LDG", "STL", "LDL", "STG"}


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize(
    "plan",
    [
        sm90((128, 128, 64), 4, **STAGED, **TURNS),
        sm90((64, 256, 64), 4, cluster=(2, 1), multicast="b", **STAGED, **TURNS),
        sm90((128, 192, 64), 4, cluster=(1, 2), multicast="a", **STAGED, **TILES),
        sm90((128, 16, 64), 8, swap_ab=True, **STAGED, **TILES),
        sm90((64, 256, 64), 3, cluster=(2, 1), multicast="b", **FETCHED, **TURNS),
        sm90((128, 16, 64), 6, swap_ab=True, **FETCHED, **TILES),
    ],
    ids=["turns", "turns wide", "row pair", "exchanged", "fetched in turns", "fetched exchanged"],
)
def test_ptxas_takes_it_without_spills(plan: Any) -> None:
    compiled(gemm(b_col=True, dtype=B, out=B, residual=plan.epilogue_load == "tma"), plan, "sm90")


def test_the_tail_of_exchanged_operands_is_that_of_the_products_axes() -> None:
    """m runs along the tile's second side: 40 rows are whole tiles of 8, 120 columns are not whole tiles of 64."""
    plan = sm90((64, 8, 64), 2, swap_ab=True, tail=("n.i.i", "k.i.i"), **ONE)
    region = gemm(40, 120, 72)
    k, _ = lower_region(region, Guarded((), plan), PRESETS["sm90"])
    assert k.tail == ("m", "k")
    compare(region, plan, "sm90", {}, ())
    with pytest.raises(TatamiError, match="axis m of size 120"):
        lower_region(region, Guarded((), msgspec.structs.replace(plan, predicate_tail=("m.i.i", "k.i.i"))), PRESETS["sm90"])


@pytest.mark.parametrize(("shape", "kinds"), [((16, 512, 200), 1), ((3, 40, 264, 72), 1), ((64, 128, 4096), 2)], ids=str)
def test_what_the_planner_chooses_runs(shape: tuple[int, ...], kinds: int) -> None:
    """Few rows, a batch, a long sum (whose parts are a second kernel's): from the graph to the numbers."""
    *rows, n, k = shape
    rng = np.random.default_rng(2)
    x, w = ((rng.integers(-8, 9, s) / 8).astype(np.float16) for s in ((*rows, k), (k, n)))
    g = tt.Graph("product")
    g.output("y", (g.input("x", x.shape, tt.fp16) @ g.input("w", w.shape, tt.fp16)).relu())
    f = tt.compile(g, target="emulated-sm90")
    kernels = f.stages["gpu"].value.main.kernels
    assert len(kernels) == kinds and isinstance(kernels[0], ir.Kernel) and kernels[0].maps
    want = np.maximum(x.astype(np.float64) @ w.astype(np.float64), 0)
    np.testing.assert_allclose(f(x=x, w=w)["y"].astype(np.float64), want, rtol=2e-3, atol=2e-3)


def residual(r: tt.DType = tt.fp16, outputs: int = 1) -> tt.Graph:
    g = tt.Graph("residual")
    x, w = g.input("x", (4096, 4096), tt.fp16), g.input("w", (4096, 4096), tt.fp16)
    y = (x @ w).cast(r) + g.input("r", (4096, 4096), r)
    for i in range(outputs):
        g.output(f"y{i}", (y.relu() if i else y).cast(tt.fp16))
    return g


def test_a_residual_is_fetched_where_that_is_quicker() -> None:
    region = prepare(residual(), target="h100").stages["plan"].main.regions[0]
    best = region.choices[0].plan
    assert isinstance(best, Sm90Mma) and best.epilogue_load == "tma" and best.stages == 3
    others = [r for r in region.rejected if "residual by TMA" not in r.plan and "128x256x64" in r.plan]
    assert others and all("slower" in r.why for r in others)


@pytest.mark.parametrize(
    ("g", "why"),
    [(residual(tt.fp32), "(fp32) has no boxes of 16-bit elements"), (residual(outputs=2), "2 outputs share")],
    ids=["fp32", "outputs"],
)
def test_why_a_residual_is_not_fetched(g: tt.Graph, why: str) -> None:
    region = prepare(g, target="h100").stages["plan"].main.regions[0]
    assert any(r.plan == "residual by TMA" and why in r.why for r in region.rejected), [r.why for r in region.rejected]


@pytest.mark.parametrize("batch", [1, 8])
def test_what_the_planner_offers_to_fetch_can_be_fetched(batch: int) -> None:
    """A residual of the results' shape, or one for all batches: it has a tensor map of its own."""
    g = tt.Graph("residual")
    x, w = g.input("x", (batch, 2048, 2048), tt.fp16), g.input("w", (batch, 2048, 2048), tt.fp16)
    g.output("y", x @ w + g.input("r", (2048, 2048), tt.fp16).expand((batch, 2048, 2048)))
    compilation = prepare(g, target="h100")
    (region,) = (r for r in compilation.stages["realised"].main.body if isinstance(r, Region))
    plans = [o.plan for o in measurable(region, compilation.target, {})]
    offered = [p for p in plans if isinstance(p, Sm90Mma) and p.epilogue_load == "tma"]
    assert len(offered) >= 2
    for plan in offered:
        made, binding = lower_region(region, Guarded((), plan), compilation.target)
        assert "R_desc" in made.maps and len(binding.tensor_maps) == 4
