"""Residual streams, their gates, and rotary embedding by three positions, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx.microsoft.against_onnxruntime import agree, node

RNG = np.random.default_rng(18)


def x(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    ("flat", "gates"), [(0, (2, 5, 3)), (0, (2, 5, 3, 1)), (0, (2, 5, 3, 4)), (1, (2, 5, 12)), (1, (2, 5, 3))]
)
def test_streams_become_one(gates: tuple[int, ...], flat: int) -> None:
    feed = {"x": x(*((2, 5, 12) if flat else (2, 5, 3, 4))), "g": x(*gates)}
    given: dict[str, Any] = {"num_branches": 3} if flat else {}
    agree(node("HyperConnectionPreMix", [*feed], reduction_scale=0.5, **given), feed)


@pytest.mark.parametrize("mix", [True, False])
@pytest.mark.parametrize("gates", [(2, 5, 3), (2, 5, 3, 1), (2, 5, 3, 4)])
def test_a_result_goes_into_the_streams(gates: tuple[int, ...], mix: bool) -> None:
    feed = {"x": x(2, 5, 3, 4), "b": x(2, 5, 4), "g": x(*gates)} | ({"m": x(2, 5, 3, 3)} if mix else {})
    agree(node("HyperConnectionPostMix", [*feed]), feed)


@pytest.mark.parametrize("normal", [True, False])
def test_engram_gate(normal: bool) -> None:
    feed = {"k": x(2, 5, 3, 8), "q": x(2, 5, 3, 8), "v": x(2, 5, 8), "ks": x(3, 8), "qs": x(3, 8)}
    feed |= {"cs": x(3, 8)} if normal else {}
    agree(node("EngramGate", [*feed], ["y", "z"] if normal else ["y"]), feed)


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize(("layout", "sections"), [(0, [4, 8, 4]), (1, [6, 5, 5]), (0, [16, 0, 0])])
def test_rotation_by_three_positions(layout: int, sections: list[int], rank: int, dtype: str) -> None:
    angle = np.arange(20)[:, None] / 100.0 ** (np.arange(16) / 16)
    tables = {"cos": np.cos(angle).astype(dtype), "sin": np.sin(angle).astype(dtype)}
    feeds = []
    for b, t in ((2, 5), (1, 3)):
        shape = (b, t, 96) if rank == 3 else (b, 3, t, 32)
        feeds.append({"x": x(*shape, dtype=dtype), "ids": RNG.integers(0, 20, (3, b, t))})
    given: dict[str, Any] = {"num_heads": 3} if rank == 3 else {}
    made = node("MRotaryEmbedding", ["x", "ids", "cos", "sin"], mrope_section=sections, mrope_layout=layout, **given)
    shapes = {"x": ("B", "T", 96) if rank == 3 else ("B", 3, "T", 32), "ids": (3, "B", "T")}
    agree(made, *feeds, weights=tables, open=shapes)
