"""Operands that the SM90 producer's threads copy by cp.async, where TMA's rules do not hold: numbers over pitches, orders, windows,
trip counts and tails, the proof of the protocol with planted faults, machine code, and what the planner says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.core.target import PRESETS
from tatami.gpu import ir, statement_ir
from tatami.gpu.lower import lower_region
from tatami.gpu.verify import verify_kernel
from tatami.plan.choose_gpu import choose_gpu
from tatami.plan.gpu.estimate import gpu_estimate
from tatami.plan.gpu.sm_load import COPY_ISSUES
from tatami.plan.ir import Guarded, Sm80Mma, Sm90Mma, Vectorize
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import instructions, machine_code
from tests.cu.products.test_im2col import Conv
from tests.cu.test_compile import compiled
from tests.emulated.kernels import NUMPY, Built, changed
from tests.gpu.gemm_examples import gemm, sm90
from tests.gpu.test_verify import Edit, change, drop, edited

ONE: dict[str, Any] = {"consumers": 1, "registers": (128, 232)}
TWO: dict[str, Any] = {"registers": (88, 208)}
TILES: dict[str, Any] = {"persistent": True, "overlap": True}
BOTH: dict[str, Any] = {"loads": ("cp_async", "cp_async")}
A, B = {"loads": ("cp_async", "tma")}, {"loads": ("tma", "cp_async")}
STAGED: dict[str, Any] = {"epilogue_store": "stmatrix_tma"}


class Product(msgspec.Struct, frozen=True):
    m: int
    n: int
    k: int
    order: str = "nn"
    dtype: DType = DType.fp16
    batch: int | None = None

    def region(self) -> Any:
        a_col, b_col = (side == "t" for side in self.order)
        return gemm(self.m, self.n, self.k, dtype=self.dtype, a_col=a_col, b_col=b_col, batch=self.batch)

    def arrays(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(2)
        shapes = {p.name: tuple(e.as_int() or 0 for e in p.memref.shape) for p in self.region().inputs}
        return {n: (rng.integers(-8, 9, s) / 8).astype(NUMPY[self.dtype]) for n, s in shapes.items()}

    def wanted(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        a, b, bias = (arrays[n].astype(np.float64) for n in ("A", "B", "bias"))
        a, b = (x.swapaxes(-1, -2) if side == "t" else x for x, side in zip((a, b), self.order))
        return np.maximum(a @ b + bias, 0)


CASES: dict[str, tuple[Product | Conv, Sm90Mma]] = {
    "4 bytes": (Product(150, 90, 78), sm90((64, 64, 64), 3, width=2, **ONE, **TILES, **BOTH)),
    "2 bytes": (Product(100, 131, 77), sm90((64, 64, 64), 2, **ONE, **BOTH)),
    "8 bytes and a box": (Product(200, 128, 148), sm90((128, 64, 64), 4, width=4, **TWO, **A)),
    "a box and 2 bytes": (Product(130, 1531, 80), sm90((128, 128, 64), 2, **TWO, **TILES, **B)),
    "2 bytes and 4": (Product(70, 66, 129, "tn"), sm90((64, 64, 32), 3, **ONE, **BOTH)),
    "transposed": (Product(132, 68, 70, "tt"), sm90((128, 64, 64), 2, width=4, **TWO, **BOTH)),
    "rows that threads do not divide": (Product(70, 76, 136, "nt"), sm90((64, 40, 64), 3, width=8, **ONE, **TILES, **BOTH)),
    "fewer rows than threads in a column": (Product(200, 24, 80, "nt"), sm90((64, 8, 32), 4, width=8, **ONE, **B)),
    "one block": (Product(64, 66, 14, "nt"), sm90((64, 64, 64), 3, **ONE, **TILES, **BOTH)),
    "turns": (Product(200, 136, 130, "nt"), sm90((64, 64, 64), 3, schedule="pingpong", **TWO, **TILES, **STAGED, **BOTH)),
    "a batch": (Product(70, 72, 60, batch=3), sm90((64, 64, 64), 2, **ONE, **TILES, **BOTH)),
    "a pair shares boxes": (
        Product(200, 136, 132),
        sm90((64, 128, 64), 2, cluster=(2, 1), multicast="b", loads=("cp_async", "tma"), **ONE, **TILES),
    ),
    "exchanged": (Product(40, 200, 90, "nt"), sm90((128, 32, 64), 3, swap_ab=True, **TWO, **TILES, **BOTH)),
    "strict": (Product(150, 90, 78, "nt"), sm90((64, 64, 64), 3, persistent=True, **ONE, **BOTH)),
    "channels": (Conv(channels=48), sm90((64, 40, 64), 3, **ONE, **TILES, **A, tail=("h", "o"))),
    "dilation": (
        Conv(channels=24, dilation=(2, 3), padding=((2, 0), (3, 1)), taps=(3, 2)),
        sm90((128, 64, 64), 2, tail=("h", "o"), **TWO, **A),
    ),
    "three warpgroups": (
        Conv(channels=24, dilation=(2, 3), padding=((2, 0), (3, 1)), taps=(3, 2)),
        sm90((192, 64, 64), 2, consumers=3, registers=(80, 144), tail=("h", "o"), **A),
    ),
    "weights' gradient": (Product(256, 128, 66, "tn"), sm90((256, 64, 64), 2, width=4, **TWO, **BOTH)),
    "a wide step": (Conv(stride=(9, 1), size=(30, 9)), sm90((64, 40, 64), 2, tail=("h", "o"), **ONE, **A)),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_on_the_emulated_gpu(name: str) -> None:
    """Several waves of tiles, a schedule drawn at random, and the proof of the protocol."""
    case, plan = CASES[name]
    built = Built(case.region(), plan, "sm90", sms=2)
    assert verify_kernel(built.kernel) == []
    arrays = case.arrays()
    for schedule in (0, 11):
        y = built.run(arrays, {}, schedule).astype(np.float64)
        np.testing.assert_allclose(y, case.wanted(arrays), rtol=2e-3, atol=2e-3)


def test_places_of_images_whose_number_a_call_brings_have_64_bits() -> None:
    """Few of them are in registers at once; numbers as of a known number, and no spills where they are compiled."""
    known, plan = Conv(images=3, channels=48), CASES["channels"][1]
    case = Conv(images="P", channels=48)  # type: ignore[arg-type]
    built = Built(case.region(), plan, "sm90", sms=2)
    assert verify_kernel(built.kernel) == [] and "const tt_i64 at0" in built.text
    arrays = known.arrays()
    y = built.run(arrays, {"P": 3}, 11).astype(np.float64)
    np.testing.assert_allclose(y, known.wanted(arrays), rtol=2e-3, atol=2e-3)
    if has_nvrtc():
        compiled(case.region(), plan, "sm90", ())


# -- planted faults --------------------------------------------------------------------------------

FIRST = lower_region(Product(150, 90, 78, "nt").region(), Guarded((), CASES["4 bytes"][1]), PRESETS["sm90"])[0]
STORED = lower_region(Product(150, 91, 77).region(), Guarded((), CASES["4 bytes"][1]), PRESETS["sm90"])[0]
FAULTS: list[tuple[str, ir.Kernel, Edit, str]] = [
    (
        "copies by threads: no fence before wgmma",
        FIRST,
        drop(statement_ir.FenceAsync),
        "as ordinary memory, with no FenceAsync between",
    ),
    (
        "stores by threads: no fence before wgmma",
        STORED,
        drop(statement_ir.FenceAsync),
        "as ordinary memory, with no FenceAsync between",
    ),
    (
        "copies by threads: the count of one",
        FIRST,
        change(statement_ir.MBarrierInit, lambda s: s.mbarrier == "full", count=1),
        "the count is 1, 128 arrive in each phase",
    ),
    ("copies by threads that nobody hears of", FIRST, drop(statement_ir.CopiesArrive), "0 arrive in each phase"),
    (
        "copies by threads into a slot in use",
        FIRST,
        drop(statement_ir.Wait, lambda s: s.mbarrier == "empty"),
        "refilled by producer before its TokFree",
    ),
    (
        "copies by threads that arrive for another block",
        FIRST,
        change(statement_ir.CopiesArrive, block=expr("k + 1")),
        "passes before tA[k] has landed",
    ),
]


@pytest.mark.parametrize(("kernel", "edit", "words"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_fault_in_the_ir_is_refused(kernel: ir.Kernel, edit: Edit, words: str) -> None:
    assert verify_kernel(kernel) == []
    found = verify_kernel(edited(kernel, edit))
    assert found and words in found[0].why


BUGS = [
    (
        "cp.async for wgmma is not fenced",
        "4 bytes",
        "tt_fence_proxy_async();",
        "",
        "proxy fence",
        "fence.proxy.async is missing",
    ),
    (
        "stores for wgmma are not fenced",
        "2 bytes",
        "tt_fence_proxy_async();",
        "",
        "proxy fence",
        "fence.proxy.async is missing",
    ),
    ("a barrier counts a copier too few", "4 bytes", "+ 8 * i, 128);", "+ 8 * i, 127);", "in flight", "cp.async"),
    ("a barrier counts a copier too many", "4 bytes", "+ 8 * i, 128);", "+ 8 * i, 129);", "deadlock", "1 of 129 arrivals"),
    (
        "an arrival does not wait for its copies",
        "4 bytes",
        "tt_cp_async_arrive(",
        "tt_mbarrier_arrive(",
        "in flight",
        "cp.async",
    ),
]


@pytest.mark.parametrize(("name", "right", "wrong", "check", "words"), [f[1:] for f in BUGS], ids=[f[0] for f in BUGS])
def test_a_fault_in_the_text_is_reported(name: str, right: str, wrong: str, check: str, words: str) -> None:
    case, plan = CASES[name]
    built = Built(case.region(), plan, "sm90", change=changed(right, wrong), sms=2)
    report, _ = built.report(case.arrays(), {})
    assert report is not None and report.check == check and words in report.text


def test_copies_that_forget_the_swizzle_make_other_numbers() -> None:
    case, plan = CASES["channels"]
    built = Built(case.region(), plan, "sm90", change=changed("<128, 128>(row", "<128, 0>(row"), sms=2)
    arrays = case.arrays()
    assert np.abs(built.run(arrays, {}).astype(np.float64) - case.wanted(arrays)).max() > 0.1


@pytest.mark.parametrize(
    ("case", "plan", "words"),
    [
        (
            Product(64, 64, 64),
            sm90((64, 64, 64), cluster=(1, 2), multicast="a", **ONE, **TILES, **A),
            "reaches its own CTA only",
        ),
        (
            Conv(channels=20, dtype=DType.fp32),
            sm90((64, 40, 32), depth=8, tail=("h", "o"), **ONE, **A),
            "cut off where tf32 rounds",
        ),
    ],
    ids=["multicast", "tf32"],
)
def test_what_cannot_be_is_refused_with_the_reason(case: Any, plan: Sm90Mma, words: str) -> None:
    with pytest.raises(TatamiError, match=words):
        lower_region(case.region(), Guarded((), plan), PRESETS["sm90"])


# -- machine code ----------------------------------------------------------------------------------


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", CASES)
def test_its_machine_code(name: str, tmp_path: Path) -> None:
    """`compiled` refuses spills and warnings; cp.async where there are copies of 4 bytes and more, and one fence a warpgroup."""
    case, plan = CASES[name]
    ops = machine_code(compiled(case.region(), plan, "sm90", ()), tmp_path)
    found = {op.split(".")[0] for op in ops}
    assert not found & {"STL", "LDL", "HMMA"}
    assert ("UTMALDG" in found) == ("tma" in plan.loads)


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", ["4 bytes", "8 bytes and a box", "channels", "dilation"])
def test_a_copy_takes_as_many_instructions_as_the_estimate_says(name: str, tmp_path: Path) -> None:
    """Instructions between the first and the last of consecutive copies are counted."""
    case, plan = CASES[name]
    ops = instructions(compiled(case.region(), plan, "sm90", ()), tmp_path)
    first = ops.index("LDGSTS")
    row = ops[first : ops.index("BRA", first)]
    copies = row.count("LDGSTS")
    assert copies >= 4 and len(row) <= COPY_ISSUES * copies


# -- what the planner says -------------------------------------------------------------------------


def chosen(case: Product | Conv) -> tuple[Any, list[str]]:
    choices, rejected = choose_gpu(case.region(), None, PRESETS["sm90"], {})  # type: ignore[arg-type]
    return choices[-1].plan, [f"{r.plan}: {r.why}" for r in rejected]


@pytest.mark.parametrize(
    ("case", "loads", "why"),
    [
        (Product(4096, 4096, 4098, "nt"), ("cp_async", "cp_async"), "A: TMA needs whole 16 bytes, which 4098 elements are not"),
        (Product(4096, 4090, 4096), ("tma", "cp_async"), "B: TMA needs whole 16 bytes, which 4090 elements are not"),
        (
            Conv(images=64, size=(56, 56), channels=48, out=128),
            ("cp_async", "tma"),
            "48 channels are not whole blocks of 64 bytes",
        ),
        (Conv(images=64, size=(56, 56), stride=(9, 1), out=128), ("cp_async", "tma"), "by more than a tensor map can"),
    ],
    ids=["pitches of A and B", "pitch of B", "channels", "a wide step"],
)
def test_the_planner_copies_what_tma_cannot_bring(case: Product | Conv, loads: tuple[str, str], why: str) -> None:
    plan, rejected = chosen(case)
    assert isinstance(plan, Sm90Mma) and (plan.loads[::-1] if plan.swap_ab else plan.loads) == loads
    assert rejected[0].startswith("operands by TMA: ") and why in rejected[0]
    assert any(line.startswith("sm80_mma") and "slower" in line for line in rejected)


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Product(4096, 4096, 4097, "nt"), "nor can copies be longer than 2 bytes"),
        (Product(512, 1531, 77), "which 77 elements are not"),
    ],
    ids=["odd pitches", "two of them"],
)
def test_copies_of_2_bytes_take_the_other_template(case: Product, why: str) -> None:
    plan, rejected = chosen(case)
    assert isinstance(plan, Sm80Mma) and rejected[0].startswith("sm90_mma: ") and why in rejected[0]


def test_shorter_copies_take_longer() -> None:
    """Instructions of the producer are simulated."""
    dims = (1, 4096, 4096, 4092)
    plan = sm90((128, 256, 64), 4, **TWO, **TILES, **STAGED)
    plans = [msgspec.structs.replace(plan, loads=("cp_async", "cp_async"), vectorize=Vectorize("n.i.i", w)) for w in (4, 2)]
    boxes, longer, shorter = (gpu_estimate(p, DType.fp16, dims, PRESETS["sm90"])["total"] for p in (plan, *plans))
    assert boxes <= longer < shorter


def test_a_model_runs_on_them() -> None:
    """A dilated convolution of 24 channels, and a product of 78."""
    g, rng = tt.Graph("net"), np.random.default_rng(0)

    def weights(*sizes: int) -> Any:
        return g.constant((rng.integers(-8, 9, sizes) / 64).astype(np.float16))

    x = g.input("x", (64, 24, 16, 16), tt.fp16).conv(weights(128, 24, 3, 3), dilation=(2, 1), padding=(2, 1)).relu()
    g.output("y", x)
    g.output("z", g.input("u", (70, 78), tt.fp16) @ weights(78, 130))
    f = tt.compile(g, target="emulated-sm90")
    loads = [p.loads for r in f.stages["plan"].value.main.regions if isinstance(p := r.choices[0].plan, Sm90Mma)]
    assert len(loads) == 2 and all("cp_async" in pair for pair in loads)
    given = {"x": rng.integers(-8, 9, (64, 24, 16, 16)) / 8, "u": rng.integers(-8, 9, (70, 78)) / 8}
    arrays = {n: a.astype(np.float16) for n, a in given.items()}
    want = tt.compile(g, target="reference")(**arrays)
    for name, made in f(**arrays).items():
        np.testing.assert_allclose(made.astype(np.float64), want[name].astype(np.float64), rtol=2e-2, atol=2e-2)
