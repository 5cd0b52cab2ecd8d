"""Bank conflicts counted: every address that every lane of a product's kernel reads from its rings, for each storage order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tatami.core.dtype import DType
from tatami.emulated.tallies import Tally, summed
from tatami.gpu.pairs.lower import lower_pair
from tatami.poly_core.analyse import conflict_ways
from tatami.runtime.emulated.machine import EmulatedMachine
from tests.cu.test_compile import BY8
from tests.emulated.kernels import NUMPY, Built, changed
from tests.emulated.texts import eighths, machine_of
from tests.gpu.gemm_examples import HINTS, gemm, sm80
from tests.gpu.pairs.test_pair import PRECISION, plan_for, region_for

SIZES = {"M": 64, "N": 64, "K": 64}
PLANS: dict[str, tuple[DType, Any]] = {
    "rows of 32 B": (DType.fp16, sm80((64, 64, 16), 2, warp="32x32")),
    "rows of 64 B": (DType.bf16, sm80((64, 64, 32), 2, warp="64x32")),
    "rows of 128 B": (DType.fp16, sm80((64, 64, 64), 2, warp="32x64")),
    "rows of 256 B": (DType.fp16, sm80((64, 128, 128), 2, warp="32x32")),
    "multiply-adds": (DType.fp32, sm80((64, 64, 16), 2, warp="32x32", width=4, inst_shape="fma")),
    "multiply-adds, rows of 128 B": (DType.fp32, sm80((64, 64, 32), 2, warp="64x32", width=4, inst_shape="fma")),
    "tf32": (DType.fp32, sm80((64, 64, 32), 2, warp="32x32", width=4, inst_shape="m16n8k8")),
    "A without swizzle": (DType.fp16, sm80((64, 64, 64), 2, warp="32x32", hints={**HINTS, "A_swizzle": False})),
    "no swizzle": (DType.fp16, sm80((64, 64, 64), 2, warp="32x32", hints={**HINTS, "A_swizzle": False, "B_swizzle": False})),
}
ORDERS = ("nn", "nt", "tn", "tt")
BUILT = {
    (name, order): Built(
        gemm(dtype=d, out=d, a_col=order[0] == "t", b_col=order[1] == "t", tf32=name == "tf32"), plan, "sm80", BY8, load=False
    )
    for name, (d, plan) in PLANS.items()
    for order in ORDERS
}


def pair(shape: str, turned: bool, width: int) -> Built:
    region = region_for(shape, width, turned=turned)
    plan = plan_for(region, tile=(32, -(-width // 16) * 16, 32), depth=width, inst_shape=shape)
    return Built(region, plan, "sm80", load=False, lower=lambda *given: lower_pair(*given)[-1])


PAIRS = {(s, turned, width): pair(s, turned, width) for s in PRECISION for turned, width in ((False, 64), (True, 48))}


@pytest.fixture(scope="module")
def machine() -> EmulatedMachine:
    built = (*BUILT.values(), *PAIRS.values())
    return machine_of({f"k{i}_": changed("\nk0(", f"\nk{i}_(")(b.text) for i, b in enumerate(built)})


def turns(machine: EmulatedMachine, name: str, order: str) -> tuple[int, int]:
    arrays = {n: eighths(64, *s, dtype=NUMPY[PLANS[name][0]]) for n, s in (("A", (64,)), ("B", (64,)), ("bias", ()))}
    return counted(machine, BUILT[name, order], list(BUILT).index((name, order)), arrays, SIZES)


def counted(
    machine: EmulatedMachine, built: Built, number: int, arrays: dict[str, np.ndarray], sizes: dict[str, int]
) -> tuple[int, int]:
    report, _ = built.report(arrays, sizes, machine=machine, symbol=f"k{number}_", counts=True)
    assert report is None, report
    tallies = summed(machine.tallies().values())
    reads = tallies.get("ldmatrix", Tally()) + tallies.get("ld.shared", Tally())
    return reads.turns, reads.conflicts


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", [n for n in PLANS if "swizzle" not in n])
def test_no_two_words_of_a_read_share_a_bank(name: str, order: str, machine: EmulatedMachine) -> None:
    best, conflicts = turns(machine, name, order)
    assert best >= 128 and conflicts == 0


@pytest.mark.parametrize(("shape", "turned", "width"), PAIRS, ids=str)
def test_no_two_words_of_a_read_of_two_products_share_a_bank(
    shape: str, turned: bool, width: int, machine: EmulatedMachine
) -> None:
    built = PAIRS[shape, turned, width]
    dtype = np.float16 if shape == "m16n8k16" else np.float32
    sides = (1, 2, width, 64) if turned else (1, 2, 64, width)
    arrays = {p.name: np.ones(sides, dtype) for p in built.region.inputs}
    number = len(BUILT) + list(PAIRS).index((shape, turned, width))
    best, conflicts = counted(machine, built, number, arrays, {"B": 1, "S": 64, "T": 64})
    assert best > 0 and conflicts == 0


@pytest.mark.parametrize("order", ORDERS)
def test_without_a_swizzle_eight_rows_meet_in_four_banks(order: str, machine: EmulatedMachine) -> None:
    """Conflicts of rows of 128 bytes are those of poly_core: eight ways, at least seven more turns for each access."""
    best, conflicts = turns(machine, "no swizzle", order)
    assert conflicts == best * (conflict_ways(128) - 1) == 7 * best
    _, of_a = turns(machine, "A without swizzle", order)
    assert 0 < of_a < conflicts
