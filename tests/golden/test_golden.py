"""Each stage of a few programs, as the text a person reads. Reviewed like code; `make update-golden` writes them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tatami.api import Compilation, prepare
from tatami.core.target import PRESETS
from tatami.stages import STAGES, show
from tests.golden.programs import PROGRAMS

HERE = Path(__file__).parent


def numbered(text: str) -> str:
    """Content hashes in the names of kernels become counters, so that a golden changes only where its text does."""
    names: dict[str, str] = {}
    return re.sub(r"tatami_[0-9a-f]{20}", lambda m: names.setdefault(m[0], f"tatami_kernel{len(names)}"), text)


AVX2 = msgspec.structs.replace(PRESETS["cpu:avx2"], l2_bytes=1 << 20)
"""A fixed machine, not this one: tiles follow the caches."""
GPU = {"gemm_bias_relu_sm80": ("gemm_bias_relu", "sm80"), "gemm_bias_relu_sm90": ("gemm_bias_relu", "sm90")}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_stage_reads_as_kept(name: str, update_golden: bool) -> None:
    compare(name, prepare(PROGRAMS[name](), target=AVX2), "frontend", update_golden)


@pytest.mark.parametrize("name", GPU)
def test_gpu_stages_read_as_kept(name: str, update_golden: bool) -> None:
    program, target = GPU[name]
    compare(name, prepare(PROGRAMS[program](), target=target), "plan", update_golden)


def compare(name: str, compilation: Compilation, first: str, update_golden: bool) -> None:
    folder = HERE / name
    seen = set()
    stages = [s.name for s in STAGES]
    for position, stage in enumerate(STAGES):
        if stage.name not in compilation.stages or position < stages.index(first):
            continue
        text = numbered(show(stage.name, compilation.stages[stage.name]))
        path = folder / f"{position}_{stage.file_stem}.txt"
        seen.add(path.name)
        if update_golden:
            folder.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing: run make update-golden and read what it writes"
        assert text == path.read_text(), f"{path.name} changed"
    assert {p.name for p in folder.iterdir()} == seen
