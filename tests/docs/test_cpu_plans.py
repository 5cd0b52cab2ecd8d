"""The page on CPU plans has every field of every kind, quotes a golden plan, and its decision is obeyed."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest

from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.plan.ir import Blocks, CpuPlan, LoopPass, LoopPhase
from tatami.stages import show
from tests.docs.pages import DOCS, ROOT
from tests.golden.programs import PROGRAMS
from tests.golden.test_golden import AVX2

PAGE = (DOCS / "cpu-plans.md").read_text(encoding="utf-8")
OTHERS = (LoopPhase, LoopPass, Blocks)
"""Parts of plans of loops."""


def decision() -> dict[str, Any]:
    """The document of the section "Another plan"."""
    found: dict[str, Any] = json.loads(PAGE[PAGE.index('{"plans"') :].partition("\n\n")[0])
    return found


def unnamed(page: str) -> list[str]:
    """Kinds, and fields of a kind, that the page does not name."""
    section = {"cpu_contraction": "`cpu_contraction`", "scalar": "`scalar` and", "cpu_rows": "`scalar` and"}
    out = []
    for kind in get_args(CpuPlan):
        tag = str(kind.__struct_config__.tag)
        text = page.partition(f"### {section.get(tag, 'Other kinds')}")[2].partition("\n#")[0]
        if tag not in section:
            text = next((line for line in text.splitlines() if line.startswith(f"| `{tag}` |")), "")
        out += [f"{tag}.{f}" for f in kind.__struct_fields__ if f"`{f}`" not in text]
    loops = page.partition("### `scalar` and")[2].partition("\n#")[0]
    return out + [f"{c.__name__}.{f}" for c in OTHERS for f in c.__struct_fields__ if f"`{f}`" not in loops]


def test_the_page_has_every_field() -> None:
    assert unnamed(PAGE) == []
    assert unnamed(PAGE.replace("`split`", "")) == ["cpu_contraction.split", "cpu_winograd.split"]


def test_the_annotated_plan_is_the_golden_one() -> None:
    golden = (ROOT / "tests" / "golden" / "mlp" / "8_plan.txt").read_text(encoding="utf-8").splitlines()
    block = re.search(r"^    region r0 .*\n(?:    .*\n)+", PAGE, re.MULTILINE)
    assert block is not None
    lines = [line[2:] for line in block[0].splitlines()]
    assert lines and [line for line in lines if line not in golden] == []


def test_the_decision_of_the_page_is_obeyed() -> None:
    made = prepare(PROGRAMS["mlp"](), target=AVX2, decisions=decision())
    text = show("plan", made.stages["plan"])
    assert "tile 4x16, kc 384, mc 16, nc 16, width 8" in text and "a decision fixes another plan" in text
    assert "tatami_lies_f32_4x16_8" in show("loop", made.stages["loop"])


def test_the_refusal_of_the_page_is_the_compilers() -> None:
    plans = decision()["plans"]
    edited: dict[str, object] = {"plans": {key: {**plan, "mr": 12, "mc": 12} for key, plan in plans.items()}}
    with pytest.raises(TatamiError) as refused:
        _ = prepare(PROGRAMS["mlp"](), target=AVX2, decisions=edited).stages["plan"]
    assert all(line.strip() in PAGE for line in str(refused.value).splitlines())
