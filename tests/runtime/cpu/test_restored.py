"""Weights given in memory lie there once: the packed form stands for them, bit by bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.layout import Layout, packed_layout
from tatami.core.tensor import Tensor
from tatami.runtime.cpu import restored
from tatami.runtime.layouts import lay_out, packed_size, read_back


def weights(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Numbers of every kind, each sign of zero and several nan among them."""
    rng = np.random.default_rng(sum(shape))
    made = rng.standard_normal(shape).astype(dtype)
    bits = made.reshape(-1).view(f"u{made.itemsize}")
    bits[7::1009] = np.array([np.nan], dtype).view(bits.dtype)[0] + 1
    made.reshape(-1)[11::1013] = -0.0
    return made


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def is_released(tensor: Tensor) -> bool:
    return not tensor.__dict__.keys() & {"array", "data"}


def program(kind: str, dtype: Any = np.float32) -> tuple[tt.Graph, list[np.ndarray]]:
    g = tt.Graph("g")
    made: list[np.ndarray] = []

    def constant(*shape: int) -> Any:
        made.append(weights(*shape, dtype=dtype))
        return g.constant(made[-1])

    t = tt.fp32 if dtype == np.float32 else tt.fp16
    x = g.input("x", ("B", 700), t)
    if kind == "as it is":
        g.output("y", x + constant(1, 700 * 700).reshape((700, 700))[:1].expand(("B", 700)))
    elif kind == "turned":
        g.output("y", x @ constant(777, 700).transpose())
    elif kind == "square":
        g.output("y", (x @ constant(700, 700)) @ constant(700, 700).transpose())
    else:
        g.output("y", (x @ constant(700, 801)).relu() @ constant(801, 650))
    return g, made


def constants_of(f: tt.CompiledFunction) -> dict[str, Tensor]:
    return {n: t for n, t in f.compilation.stages.given["frontend"].constants.items() if t.nbytes >= restored.SMALLEST}


@pytest.mark.parametrize(
    "kind, dtype",
    [("plain", np.float32), ("turned", np.float32), ("square", np.float32), ("as it is", np.float32)],
)
def test_what_was_packed_gives_every_bit_back(kind: str, dtype: Any, tmp_path: Path) -> None:
    g, made = program(kind, dtype)
    f = tt.compile(g, threads=1)
    kept = constants_of(f)
    assert len(kept) == len(made) and all(map(is_released, kept.values()))
    x = np.ones((3, 700), dtype)
    y = f(x=x)["y"]
    assert all(map(is_released, kept.values())), "a call does not need them"
    loaded = tt.load(f.save(tmp_path / "m.tatami"))
    for tensor, array in zip(kept.values(), made):
        assert bits(tensor.array) == bits(array) and not tensor.array.flags.writeable
        tensor.release()
        assert is_released(tensor) and tensor == Tensor(array)
    again = tt.compile(g, threads=1)
    for other in (loaded, again):
        np.testing.assert_array_equal(other(x=x)["y"], y)
    del f, loaded, again
    assert all(bits(t.array) == bits(a) for t, a in zip(kept.values(), made)), "also when the program is gone"


def test_what_was_changed_on_the_way_stays() -> None:
    """The packed form of weights that are widened is not a copy."""
    g, made = program("plain", np.float16)
    f = tt.compile(g, threads=1)
    for tensor, array in zip(constants_of(f).values(), made):
        assert bits(tensor.array) == bits(array)


@pytest.mark.parametrize("filters", [(600, 512, 1, 1), (136, 96, 5, 5), (256, 128, 3, 3)])
def test_filters_are_rows_of_a_matrix(filters: tuple[int, ...]) -> None:
    """Filters are read back as rows of a matrix, or kept in another form (Winograd's has other numbers)."""
    g = tt.Graph("g")
    x = g.input("x", (1, filters[1], 14, 14), tt.fp32)
    array = weights(*filters)
    g.output("y", x.conv(g.constant(array), padding=filters[2] // 2))
    f = tt.compile(g, threads=1)
    (tensor,) = constants_of(f).values()
    assert is_released(tensor) or filters[2] > 1
    assert bits(tensor.array) == bits(array)


LAYOUTS = [
    None,
    Layout(),
    packed_layout(2, 8),
    packed_layout(2, 5),
    Layout("blocked", blocks=((0, 4),)),
    Layout("blocked", order=(1, 0), blocks=((1, 4), (0, 2))),
    Layout("blocked", blocks=((1, 2), (1, 3))),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (7, 13), (16, 3), (33, 40)])
def test_a_layout_is_read_back(shape: tuple[int, int], layout: Layout | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout is read back, and each bit that differs, in any piece, is seen."""
    array = weights(*shape)
    memory = lay_out(array, layout).reshape(-1)
    assert memory.size == packed_size(shape, layout) and bits(read_back(memory, shape, layout)) == bits(array)
    for piece in (1, 100, 1 << 18):
        monkeypatch.setattr(restored, "PIECE", piece)
        assert restored._is_packed(array, memory, layout)
        for at in {0, array.size // 2, array.size - 1}:
            other = array.copy()
            other.reshape(-1).view(np.uint32)[at] ^= 1
            assert not restored._is_packed(other, memory, layout)
        assert not restored._is_packed(array, memory[:-1], layout)


@pytest.mark.parametrize(
    "layout", [Layout("col_major"), Layout("blocked", blocks=((1, 4),), padding=((1, 1), (0, 2)))], ids=["columns", "border"]
)
def test_other_layouts_are_read_back_too(layout: Layout) -> None:
    array = weights(6, 10)
    assert bits(read_back(lay_out(array, layout), (6, 10), layout)) == bits(array)


MEMORY = """
import re, numpy as np, tatami as tt
def resident():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
def made(n):
    g = tt.Graph("g"); x = g.input("x", ("B", n), tt.fp32); rng = np.random.default_rng(0)
    for _ in range(2): x = (x @ g.constant(rng.standard_normal((n, n), dtype=np.float32))).relu()
    g.output("y", x)
    return tt.compile(g, threads=1)
X = np.ones((4, 4096), np.float32)
made(64)(x=X[:, :64])
before = resident()
f = made(4096); f(x=X)
print((resident() - before) / (2 * 4096 * 4096 * 4))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of memory")
def test_a_process_has_its_weights_once() -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", MEMORY], env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert 0.9 < float(done.stdout) < 1.3
