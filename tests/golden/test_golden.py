"""Each stage of a few programs, as the text a person reads. Reviewed like code; `make update-golden` writes them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tatami.api import Compilation, prepare
from tatami.c.products.microkernel import routine_unit
from tatami.core.target import PRESETS
from tatami.stages import STAGES
from tests.golden.programs import GPU_PROGRAMS, PROGRAMS
from tests.golden.shown import highest, parted, shown

HERE = Path(__file__).parent


def numbered(text: str) -> str:
    """Content hashes in the names of kernels become counters, so that a golden changes only where its text does."""
    names: dict[str, str] = {}
    return re.sub(r"tatami_[0-9a-f]{20}", lambda m: names.setdefault(m[0], f"tatami_kernel{len(names)}"), text)


AVX2 = msgspec.structs.replace(PRESETS["cpu:avx2"], l2_bytes=1 << 20)
"""A fixed machine, not this one: tiles follow the caches."""
PLAN = [s.name for s in STAGES].index("plan")
"""Number of the stage plan: earlier stages do not depend on the kind of GPU."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_stage_reads_as_kept(name: str, update_golden: bool) -> None:
    compare(name, texts(prepare(PROGRAMS[name](), target=AVX2)), update_golden)


@pytest.mark.parametrize("target", ("sm80", "sm90"))
@pytest.mark.parametrize("name", GPU_PROGRAMS)
def test_every_stage_for_a_gpu_reads_as_kept(name: str, target: str, update_golden: bool) -> None:
    """Stages that the two kinds of GPU share stand in the program's own folder, next to the CPU's if these are kept too."""
    found = texts(prepare(GPU_PROGRAMS[name](), target=target))
    compare(name, {(p, part): t for (p, part), t in found.items() if p < PLAN}, update_golden)
    compare(f"{name}_{target}", {(p, part): t for (p, part), t in found.items() if p >= PLAN}, update_golden)


def texts(compilation: Compilation) -> dict[tuple[int, str], str]:
    """The texts of each stage that there is, by its place in the table of stages and the part of it (`shown`)."""
    return {
        (place, part): numbered(text)
        for place, stage in enumerate(STAGES)
        if stage.name in compilation.stages
        for part, text in shown(stage.name, compilation.stages[stage.name]).items()
    }


def compare(name: str, found: dict[tuple[int, str], str], update_golden: bool) -> None:
    folder = HERE / name
    paths = {key: folder / f"{key[0]}_{STAGES[key[0]].file_stem}{f'-{key[1]}' if key[1] else ''}.txt" for key in found}
    for key, path in paths.items():
        if update_golden:
            folder.mkdir(exist_ok=True)
            path.write_text(found[key])
        assert path.exists(), f"{path} is missing: run make update-golden and read what it writes"
        assert found[key] == path.read_text(), f"{path.name} changed"
    places = [place for place, _ in found]
    kept = {p for p in folder.glob("*.txt") if min(places) <= int(p.name.partition("_")[0]) <= max(places)}
    if update_golden:
        for path in kept - set(paths.values()):
            path.unlink()
        kept &= set(paths.values())
    assert kept == set(paths.values())


def test_what_stands_before_a_kernel_has_a_file_of_its_own() -> None:
    head, helpers = "#include <a>\nint f(int);\n", "typedef int a;\nstatic inline a g(void) { return 1; }\n"
    kernel = "struct chunk0_frame { int x; };\nstatic int chunk0(void) {\n}\n"
    text, before = parted(f"{head}\n{helpers}{kernel}")
    assert text == f"{head}\n/* 2 lines of types and functions: 12_c-helpers.txt */\n\n{kernel}" and before == helpers
    assert parted(f"{head}\n{kernel}") == (f"{head}\n{kernel}", "")


def test_one_height_of_a_micro_kernel_is_shown() -> None:
    unit = routine_unit("tatami_gemm_f32_6x16_8")
    assert unit is not None
    text = highest(unit.text)
    assert "5 lower panels, " in text and "tile_1, tile_2, tile_3, tile_4, tile_5 */" in text
    assert re.findall(r"void (tile_\d)", text) == ["tile_6"]
    left_out = int(text.partition("5 lower panels, ")[2].partition(" ")[0])
    assert unit.text.count("\n") == text.count("\n") + left_out - 1
