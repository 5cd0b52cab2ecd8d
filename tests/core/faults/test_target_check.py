"""Each number and word of a target at the edge of what a machine may have, and beyond."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.faults.target_check import CPU_NUMBERS, GREATEST, check_target
from tatami.core.target import PRESETS, Target

CPU, GPU = PRESETS["cpu:avx2"], PRESETS["sm90"]


def faults(target: Target, **fields: Any) -> list[str]:
    try:
        check_target(msgspec.structs.replace(target, **fields))
    except TatamiError as error:
        return [f"{d.at}: {d.why}" for d in error.diagnostics]
    return []


LIMITS = {
    "vector_bytes": 256, "vector_registers": 256, "cores": 65536, "l1_bytes": 2**30, "l2_bytes": 2**36, "l3_bytes": 2**40,
    "sms": 65536, "clock": 1e12, "l2_bytes_per_clock": 1e9, "smem_per_sm": 2**30, "smem_per_block": 2**30,
    "registers_per_sm": 2**30, "max_threads_per_sm": 65536, "max_blocks_per_sm": 65536, "flops_fp32": 1e18,
    "flops_fp16": 1e18, "flops_tf32": 1e18, "flops_fp8": 1e18, "bandwidth": 1e16, "launch_seconds": 10.0,
}  # fmt: skip
"""The most of each."""


@pytest.mark.parametrize("field", list(LIMITS))
def test_the_most_of_a_number_is_accepted_and_more_is_not(field: str) -> None:
    assert GREATEST[field] == LIMITS[field]
    most = LIMITS[field]
    more: float = most * 2 if isinstance(most, int) else most * 1.001
    for target in (CPU, GPU):
        assert faults(target, **{field: most}) == []
        assert len(faults(target, **{field: more})) == 1 and len(faults(target, **{field: -1})) >= 1
        for odd in (True, "8", float("nan"), float("inf")):
            assert f"target.{field}: {field} is '{odd}'; wanted: a number" in faults(target, **{field: odd})


@pytest.mark.parametrize("field", list(LIMITS))
def test_nothing_of_a_number_is_for_the_other_kind(field: str) -> None:
    """CPU plans divide by some, so these are more than 0."""
    needed = {"vector_bytes", "vector_registers", "cores", "l1_bytes", "l2_bytes", "l3_bytes", "flops_fp32", "bandwidth"}
    assert set(CPU_NUMBERS) == needed
    assert bool(faults(CPU, **{field: 0})) is (field in needed)
    assert faults(GPU, **{field: 0}) == []


def test_vectors_are_a_power_of_two() -> None:
    for size, fits in ((16, True), (1, True), (24, False), (48, False)):
        assert bool(faults(CPU, vector_bytes=size)) is not fits
    assert faults(CPU, vector_bytes=32.0) == ["target.vector_bytes: vector_bytes is '32.0'; wanted: a power of two"]


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("name", ("a", "A.b:c-1_", "a" * 80), ("", "-a", "a b", "a" * 81, "a/b", 3)),
        ("arch", ("", "sm_80", "sm_90a", "sm_100"), ("sm80", "sm_8", "sm_80 -x", "sm_1000", "sm_90ab", 80)),
    ],
)
def test_words_are_words(field: str, good: tuple[str, ...], bad: tuple[Any, ...]) -> None:
    assert [faults(GPU, **{field: w}) for w in good] == [[]] * len(good)
    assert [[f.partition(":")[0] for f in faults(GPU, **{field: w})] for w in bad] == [[f"target.{field}"]] * len(bad)


def test_features_are_few_words() -> None:
    assert faults(CPU, features=("vnni", "a" * 40)) == [] == faults(CPU, features=("x",) * 64)
    assert faults(CPU, features=("x",) * 65) == ["target.features: features is '65 words'; wanted: at most 64"]
    for bad in ("", "VNNI", "a b", "a" * 41, 3):
        assert [f.partition(":")[0] for f in faults(CPU, features=("vnni", bad))] == ["target.features"]
