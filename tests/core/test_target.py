"""Descriptions of GPUs: every number has a source, and the numbers of a chip agree with one another."""

from __future__ import annotations

import msgspec
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.target import CHIPS, PRESETS, Chip, Target, chip_named
from tatami.targets import GPU_NUMBERS, resolve_target

FP16_PER_CLOCK = {"sm_80": 2048, "sm_86": 512, "sm_89": 512, "sm_90a": 4096}
"""Operations of an SM's tensor cores: 4 tensor cores x 256, 64, 64, 512 multiply-adds."""


@pytest.mark.parametrize("chip", CHIPS.values(), ids=list(CHIPS))
def test_every_number_of_a_chip_has_one_source(chip: Chip) -> None:
    named = [f for s in chip.sources for f in s.fields]
    given = [f.name for f in msgspec.structs.fields(Target) if getattr(chip.target, f.name) not in (f.default, "", 0)]
    assert sorted(named) == sorted({*given, "max_blocks_per_sm"} - {"name", "kind", "isa"})
    assert all(s.source for s in chip.sources) and chip.devices


@pytest.mark.parametrize("chip", CHIPS.values(), ids=list(CHIPS))
def test_the_numbers_of_a_chip_agree(chip: Chip) -> None:
    t = chip.target
    assert t.flops_fp16 == pytest.approx(t.sms * t.clock * FP16_PER_CLOCK[t.arch], rel=0.01)
    assert t.flops_tf32 == pytest.approx(t.flops_fp16 / 2, rel=0.01)
    assert t.flops_fp8 in (0, pytest.approx(t.flops_fp16 * 2, rel=0.01))
    assert t.smem_per_block == t.smem_per_sm - 1024, "each block keeps 1 KB for itself"
    assert t.isa == ("sm90" if t.arch == "sm_90a" else "sm80")
    assert all(getattr(t, f) for f in GPU_NUMBERS)


def test_a_chip_is_a_target_by_name_emulated_too() -> None:
    assert resolve_target("h100") is PRESETS["h100"]
    emulated = resolve_target("emulated-rtx3090")
    assert emulated.emulated and emulated.smem_per_block == 99 << 10
    assert chip_named("NVIDIA H200") == PRESETS["h200"] and chip_named("a toaster") is None


def test_a_document_with_an_unknown_field_is_no_chip() -> None:
    with pytest.raises(msgspec.ValidationError, match="speed"):
        msgspec.json.decode(b'{"devices": [], "target": {"name": "x", "kind": "cuda"}, "sources": [], "speed": 1}', type=Chip)


def test_a_target_of_ones_own_needs_the_numbers_of_plans() -> None:
    mine = msgspec.structs.replace(PRESETS["h200"], name="mine", clock=0.0, sms=0)
    with pytest.raises(TatamiError, match="target mine: sms, clock is not given"):
        resolve_target(mine)
    assert resolve_target(PRESETS["h200"]) is PRESETS["h200"]
