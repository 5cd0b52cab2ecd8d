"""Two windows in one kernel: tiles that compute their halo again, when that is cheaper than memory."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.api import Compilation, build, prepare
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.region.ir import Region
from tatami.report.explain import explain
from tatami.report.playback import compare_outputs


def two_blurs(width: int, height: int | None = None, lead: tuple[str, ...] = ()) -> Graph:
    """Twice the mean of a window of height x width around each point."""
    g = Graph("two_blurs")
    tall = width if height is None else height
    x = g.input("x", (*lead, "H", "W"), DType.fp32)
    r = len(lead)
    at = [f"i{k}" for k in range(r)] + [f"i{r} + i{r + 2}", f"i{r + 1} + i{r + 3}"]
    for _ in range(2):
        rim = [(0, 0)] * r + [(tall // 2, tall // 2), (width // 2, width // 2)]
        x = x.pad(rim).view((*lead, "H", "W", tall, width), map=tuple(at)).sum((r + 2, r + 3)) * (1 / (tall * width))
    g.output("y", x)
    return g


def regions(compilation: Compilation) -> list[Region]:
    return [r for r in compilation.stages["region"].main.body if isinstance(r, Region)]


def agrees(compilation: Compilation, x: np.ndarray) -> None:
    function = build(compilation, 2)
    sizes = dict(zip(("H", "W")[-x.ndim :] if x.ndim <= 2 else ("N", "C", "H", "W"), x.shape))
    got = function(x=x)
    reference = compilation.reference_run({"x": x}, sizes)
    assert all(a.difference is None for a in compare_outputs(function.signature, got, reference))


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_cheap_windows_are_fused_by_overlapped_tiles() -> None:
    compilation = prepare(two_blurs(3), target="cpu:avx2")
    assert len(regions(compilation)) == 1
    line = next(line for line in explain(compilation).splitlines() if "overlapped_tiles" in line)
    assert line.startswith("  fused") and "halo i0+2 i1+2 = 8*H + 8*W + 16 bytes" in line
    assert "Δtime -" in line and "dflops +" in line and "saved +" in line
    assert "(tile)" in explain_plan(compilation)


def explain_plan(compilation: Compilation) -> str:
    from tatami.stages import show

    return show("plan", compilation.stages["plan"])


def test_costly_windows_are_not() -> None:
    compilation = prepare(two_blurs(21), target="cpu:avx2")
    assert len(regions(compilation)) == 2
    line = next(line for line in explain(compilation).splitlines() if "delta_time" in line)
    assert line.startswith("  separate") and "halo i0+20 i1+20" in line and "Δtime +" in line


def test_a_tile_keeps_its_rows_and_those_of_its_halo() -> None:
    from tatami.stages import show

    loops = show("loop", prepare(two_blurs(3), target="cpu:avx2").stages["loop"])
    assert "buffer fp32[34*s1]" in loops and "buffer fp32[s0*s1]" not in loops


@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (32, 9), (33, 8), (65, 70), (97, 5), (0, 4), (4, 0)])
def test_every_size_agrees(shape: tuple[int, int]) -> None:
    agrees(prepare(two_blurs(3)), random(*shape))


@pytest.mark.parametrize(("width", "height"), [(5, 3), (1, 5), (5, 1), (2, 4)])
def test_windows_of_any_form_agree(width: int, height: int) -> None:
    agrees(prepare(two_blurs(width, height)), random(70, 45))


def test_images_of_a_batch_agree() -> None:
    agrees(prepare(two_blurs(3, lead=("N", "C"))), random(2, 3, 40, 37))
