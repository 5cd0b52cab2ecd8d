"""Each stage of a few programs, as the text a person reads. Reviewed like code; `make update-golden` writes them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tatami.api import Compilation, prepare
from tatami.core.target import PRESETS
from tatami.stages import STAGES, show
from tests.golden.programs import GPU_PROGRAMS, PROGRAMS

HERE = Path(__file__).parent


def numbered(text: str) -> str:
    """Content hashes in the names of kernels become counters, so that a golden changes only where its text does."""
    names: dict[str, str] = {}
    return re.sub(r"tatami_[0-9a-f]{20}", lambda m: names.setdefault(m[0], f"tatami_kernel{len(names)}"), text)


AVX2 = msgspec.structs.replace(PRESETS["cpu:avx2"], l2_bytes=1 << 20)
"""A fixed machine, not this one: tiles follow the caches."""
PLAN = [s.name for s in STAGES].index("plan")
"""Above it nothing depends on the kind of GPU."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_stage_reads_as_kept(name: str, update_golden: bool) -> None:
    compare(name, texts(prepare(PROGRAMS[name](), target=AVX2)), update_golden)


@pytest.mark.parametrize("target", ("sm80", "sm90"))
@pytest.mark.parametrize("name", GPU_PROGRAMS)
def test_every_stage_for_a_gpu_reads_as_kept(name: str, target: str, update_golden: bool) -> None:
    """What the two kinds of GPU share stands in the program's own folder, beside the CPU's where that is kept too."""
    found = texts(prepare(GPU_PROGRAMS[name](), target=target))
    compare(name, {p: t for p, t in found.items() if p < PLAN}, update_golden)
    compare(f"{name}_{target}", {p: t for p, t in found.items() if p >= PLAN}, update_golden)


def texts(compilation: Compilation) -> dict[int, str]:
    """The text of each stage that there is, by its place in the table of stages."""
    return {
        place: numbered(show(stage.name, compilation.stages[stage.name]))
        for place, stage in enumerate(STAGES)
        if stage.name in compilation.stages
    }


def compare(name: str, found: dict[int, str], update_golden: bool) -> None:
    folder = HERE / name
    paths = {place: folder / f"{place}_{STAGES[place].file_stem}.txt" for place in found}
    for place, path in paths.items():
        if update_golden:
            folder.mkdir(exist_ok=True)
            path.write_text(found[place])
        assert path.exists(), f"{path} is missing: run make update-golden and read what it writes"
        assert found[place] == path.read_text(), f"{path.name} changed"
    kept = {p for p in folder.iterdir() if min(found) <= int(p.name.partition("_")[0]) <= max(found)}
    assert kept == set(paths.values())
