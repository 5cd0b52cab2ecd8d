"""Each rule of the fields of a GPU plan for two products: a plan that breaks it has that fault and no other, and the plan at its
edge has none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tatami.core.dtype import DType
from tatami.plan.ir import Sm80Pair, Sm90Pair
from tatami.plan.views.pair_limits import MAX_SECTION, pair_rules
from tests.gpu.pairs.test_pair import attention, view_of

replace: Any = msgspec.structs.replace
VIEW = view_of(attention())
SHARED = replace(VIEW, shared=True)
MORE = replace(VIEW, firsts=(*VIEW.firsts, replace(VIEW.firsts[0], acc="q"), replace(VIEW.firsts[0], acc="r")))
TF32 = replace(VIEW, dtype=DType.fp32, tf32=True)
PLAIN = replace(VIEW, dtype=DType.fp32)


def sm80(**fields: Any) -> Sm80Pair:
    return replace(Sm80Pair(VIEW.first, VIEW.second, (64, 64, 32), 64, 16, 2, (VIEW.rows, VIEW.keys)), **fields)


def sm90(**fields: Any) -> Sm90Pair:
    return replace(Sm90Pair(VIEW.first, VIEW.second, (128, 64, 32), 64, 2, 2, (VIEW.rows, VIEW.keys)), **fields)


RIGHT: list[tuple[Any, Any]] = [
    (sm80(), VIEW), (sm90(), VIEW), (sm80(others=("q", "r")), MORE), (sm90(others=("q", "r")), MORE),
    (sm80(inst_shape="m16n8k8"), TF32), (sm80(inst_shape="fma"), PLAIN),
    (sm80(shared=True), SHARED), (sm90(shared=True), SHARED), (sm90(shared=True, stages=1, overlap=False), SHARED),
    (sm90(stages=1), VIEW), (sm80(warp_rows=32), VIEW), (sm80(tile=(16, 64, 32)), VIEW), (sm80(tile=(32, 64, 32), warp_rows=32), VIEW),
    *((sm80(width=n), VIEW) for n in (1, 2, 4, 8)),
    (sm90(consumers=1, tile=(64, 64, 32), registers=(56, 224)), VIEW), (sm90(consumers=3, tile=(192, 64, 32), registers=(32, 160)), VIEW),
    (sm90(tile=(128, 256, 32)), VIEW), (sm90(tile=(128, 64, 256)), VIEW), (sm90(depth=256), VIEW), (sm80(depth=272), VIEW),
    (sm90(in_turns=True), VIEW), (sm90(in_turns=True, consumers=3, tile=(192, 64, 32), registers=(32, 160)), VIEW),
    (sm90(section=1), VIEW), (sm90(section=MAX_SECTION), VIEW), (sm90(split=2), VIEW), (sm90(split=32), VIEW), (sm80(split=32), VIEW),
    (sm80(tile=(64, 16, 32)), VIEW), (sm80(tile=(64, 64, 16)), VIEW), (sm80(depth=16), VIEW), (sm80(tile=(64, 80, 48)), VIEW),
    (sm80(stages=1), VIEW), (sm80(stages=4), VIEW), (sm80(algo_choice={"attention": "one_pass"}), VIEW),
]  # fmt: skip
WARPS = "a warp has 16 or 32 rows, a tile whole warps"
WRONG: list[tuple[Any, Any, tuple[str, ...]]] = [
    (sm80(algo_choice={"matmul": "one_pass"}), VIEW, ("algo_choice names 'matmul'; the key for this Region is attention",)),
    (
        sm80(algo_choice={"attention": "two"}),
        VIEW,
        ("algo_choice.attention 'two': one_pass, streaming_softmax_2pass, direct are implemented",),
    ),
    (sm80(inst_shape="m16n8k8"), VIEW, ("inst_shape m16n8k8 does not multiply fp16; m16n8k16 does",)),
    (sm80(), TF32, ("inst_shape m16n8k16 does not multiply fp32 rounded to tf32; m16n8k8 does",)),
    (sm80(), PLAIN, ("inst_shape m16n8k16 does not multiply fp32; fma does",)),
    (sm90(), TF32, ("inst_shape m16n8k16 does not multiply fp32 rounded to tf32",)),
    (sm80(others=("q",)), VIEW, ("others q; the Region has none",)),
    (sm80(), MORE, ("others none; the Region has q, r",)),
    (sm80(shared=True), VIEW, ("shared: the second product's values are not what the first one multiplies by",)),
    (sm80(shared=True, depth=32), SHARED, ("shared: the second product's values are not what the first one multiplies by",)),
    (sm80(warp_rows=8), VIEW, (f"64 rows by warps of 8: {WARPS}",)),
    (sm80(warp_rows=64), VIEW, (f"64 rows by warps of 64: {WARPS}",)),
    (sm80(tile=(0, 64, 32)), VIEW, (f"0 rows by warps of 16: {WARPS}",)),
    (sm80(tile=(-16, 64, 32)), VIEW, (f"-16 rows by warps of 16: {WARPS}",)),
    (sm80(tile=(40, 64, 32)), VIEW, (f"40 rows by warps of 16: {WARPS}",)),
    (sm80(tile=(48, 64, 32), warp_rows=32), VIEW, (f"48 rows by warps of 32: {WARPS}",)),
    (sm80(shared=True, inst_shape="fma"), replace(SHARED, dtype=DType.fp32), ("shared with fma",)),
    (sm80(width=3), VIEW, ("width 3 is none of 1, 2, 4, 8",)),
    (sm90(consumers=4, tile=(256, 64, 32)), VIEW, ("256 rows by 4 consumers: one to three warpgroups have 64 rows each",)),
    (sm90(tile=(64, 64, 32)), VIEW, ("64 rows by 2 consumers: one to three warpgroups have 64 rows each",)),
    (sm90(tile=(128, 272, 32)), VIEW, ("272 columns, 32 keys, depth 64: wgmma and a TMA box have 256 at most",)),
    (sm90(tile=(128, 64, 272)), VIEW, ("64 columns, 272 keys, depth 64",)),
    (sm90(depth=272), VIEW, ("64 columns, 32 keys, depth 272",)),
    (sm90(in_turns=True, consumers=1, tile=(64, 64, 32), registers=(56, 224)), VIEW, ("in_turns: one consumer has nobody",)),
    (sm90(shared=True, stages=1), SHARED, ("shared with overlap, and one stage",)),
    (sm90(section=1, split=2), VIEW, ("section 1 with split 2: parts of the keys are not mixed",)),
    (sm90(section=-1), VIEW, (f"section -1 is outside 0..{MAX_SECTION}",)),
    (sm90(section=MAX_SECTION + 1), VIEW, (f"section {MAX_SECTION + 1} is outside 0..{MAX_SECTION}",)),
    (sm90(registers=(20, 232)), VIEW, ("setmaxnreg 20 is not a multiple of 8",)),
    (sm80(tile=(64, 0, 32)), VIEW, ("0 columns: no multiple of 16",)),
    (sm80(tile=(64, 64, 0)), VIEW, ("0 keys: no multiple of 16",)),
    (sm80(tile=(64, 40, 32)), VIEW, ("40 columns: no multiple of 16",)),
    (sm80(tile=(64, 64, 24)), VIEW, ("24 keys: no multiple of 16",)),
    (sm80(depth=40), VIEW, ("40 depth: no multiple of 16",)),
    (sm80(depth=-16), VIEW, ("-16 depth: no multiple of 16",)),
    (sm80(split=0), VIEW, ("split 0 is outside 1..32",)),
    (sm80(split=33), VIEW, ("split 33 is outside 1..32",)),
    (sm80(stages=0), VIEW, ("stages 0 is outside 1..4",)),
    (sm80(stages=5), VIEW, ("stages 5 is outside 1..4",)),
]


@pytest.mark.parametrize(("plan", "view"), RIGHT, ids=range(len(RIGHT)))
def test_a_plan_at_the_edge_of_its_rules_has_no_faults(plan: Any, view: Any) -> None:
    assert pair_rules(plan, view) == []


@pytest.mark.parametrize(("plan", "view", "wanted"), WRONG, ids=range(len(WRONG)))
def test_a_plan_that_breaks_a_rule_has_that_fault(plan: Any, view: Any, wanted: tuple[str, ...]) -> None:
    found = pair_rules(plan, view)
    assert len(found) == len(wanted) and all(f.startswith(w) for f, w in zip(found, wanted)), found
