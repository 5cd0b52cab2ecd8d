"""Channels last: which values, what is turned and where, and what is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.api import Compilation, prepare
from tatami.gpu.ir import Kernel
from tatami.gpu.statement_ir import CpAsync, StGlobalVec
from tatami.region.ir import Region


def conv(g: tt.Graph, x: Any, to: int, size: int = 3, **attrs: Any) -> Any:
    shape = (to, x.shape[1].as_int() // attrs.get("groups", 1), size, size)
    return x.conv(g.constant(np.ones(shape, np.float16 if x.dtype == tt.fp16 else np.float32)), **attrs)


def chain(d: Any = tt.fp16, channels: int = 16) -> tt.Graph:
    g = tt.Graph("chain")
    h = conv(g, g.input("x", ("N", 3, 8, 8), d), channels, padding=1).silu()
    h = conv(g, h, channels, padding=1) + h
    g.output("y", conv(g, h.relu().max_pool(2), channels, padding=1))
    return g


def orders(c: Compilation) -> set[tuple[int, ...]]:
    return {layout.order for layout in c.stages["plan"].main.layouts.values()}


def widths(c: Compilation) -> list[list[int]]:
    """Elements of a copy of the image and of the weights, per kernel."""
    kernels = [k for k in c.stages["gpu"].main.kernels if isinstance(k, Kernel)]
    return [[next(s.width for s in k.body if isinstance(s, CpAsync) and s.dst_smem == r.name) for r in k.smem] for k in kernels]


@pytest.mark.parametrize(("d", "width"), [(tt.fp16, 8), (tt.fp32, 4)])
def test_images_and_weights_are_copied_16_bytes_at_a_time(d: Any, width: int) -> None:
    c = prepare(chain(d), target="sm80")
    assert orders(c) == {(0, 2, 3, 1)}
    assert widths(c) == [[1, 1], [width, width], [width, width]], "three channels have no 16 bytes"
    stores = [
        s.width for k in c.stages["gpu"].main.kernels if isinstance(k, Kernel) for s in k.body if isinstance(s, StGlobalVec)
    ]
    assert stores[1] == width


def test_nothing_is_turned_between_convolutions_and_weights_once() -> None:
    c = prepare(chain(), target="sm80")
    made = c.stages["realised"]
    assert [r.name for r in made.main.body if isinstance(r, Region) and r.name.startswith("convert_")] == []
    assert len([r for r in made.programs["setup"].body if r.name.startswith("convert_")]) == 2


def test_an_input_is_turned_once_for_all_that_read_it() -> None:
    g = tt.Graph("two")
    x = g.input("x", ("N", 16, 8, 8), tt.fp16)
    g.output("y", conv(g, x, 8, padding=1))
    g.output("z", conv(g, x, 8, padding=2, dilation=2))
    made = prepare(g, target="sm80").stages["realised"].main.body
    (first,) = [r for r in made if isinstance(r, Region) and r.name.startswith("convert_")]
    assert [i.name for i in first.iters] == ["i0", "i2", "i3", "i1"], "in the order of what it writes"


@pytest.mark.parametrize(("channels", "target"), [(12, "sm80"), (16, "cpu")])
def test_what_gains_nothing_keeps_its_layout(channels: int, target: str) -> None:
    assert orders(prepare(chain(channels=channels), target=target)) == set()


def test_values_of_attention_are_no_images() -> None:
    g = tt.Graph("mix")
    p, v = g.input("p", (2, 4, "S", 16), tt.fp16), g.input("v", (2, 4, 16, 16), tt.fp16)
    g.output("y", p @ v)
    assert orders(prepare(g, target="sm80")) == set()


def test_weights_that_come_with_the_call_are_turned_in_it() -> None:
    g = tt.Graph("open")
    g.output("y", g.input("x", ("N", 16, 8, 8), tt.fp16).conv(g.input("w", (8, 16, 3, 3), tt.fp16), padding=1).relu())
    c = prepare(g, target="sm80")
    assert [r.name for r in c.stages["realised"].main.body] == ["convert_n0", "convert_n1", "r0"]
    assert widths(c) == [[8, 8]]


def test_an_image_that_is_enlarged_on_the_way_is_copied_by_channels() -> None:
    g = tt.Graph("up")
    h = conv(g, g.input("x", ("N", 3, 8, 8), tt.fp16), 16, padding=1).silu()
    up = h.reshape(("N", 16, 8, 1, 8, 1)).expand(("N", 16, 8, 2, 8, 2)).reshape(("N", 16, 16, 16))
    g.output("y", conv(g, up, 16, padding=1))
    assert widths(prepare(g, target="sm80")) == [[1, 1], [8, 8]]


def test_joined_and_depthwise_images_lie_alike() -> None:
    g = tt.Graph("joined")
    h = conv(g, g.input("x", ("N", 3, 8, 8), tt.fp16), 16, padding=1).silu()
    deep = conv(g, conv(g, h, 16, 1).relu(), 16, padding=1, groups=16).relu()
    g.output("y", conv(g, g.concat((h, deep), 1), 16, 1))
    c = prepare(g, target="sm80")
    assert not any(r.name.startswith("convert_") for r in c.stages["realised"].main.body)
    assert widths(c)[1:] == [[8, 8], [8, 8]]


@pytest.mark.parametrize("is_read_by_a_convolution", [True, False])
def test_the_gradient_of_weights_has_the_batch_last_where_no_convolution_says_otherwise(is_read_by_a_convolution: bool) -> None:
    g = tt.Graph("step")
    h = g.input("x", (8, 16, 12, 12), tt.fp16).silu()
    error = g.input("error", (8, 16, 12, 12), tt.fp16)
    g.output("dw", h.permute(1, 0, 2, 3).conv(error.permute(1, 0, 2, 3), padding=1))
    if is_read_by_a_convolution:
        g.output("y", conv(g, h, 16, padding=1))
    c = prepare(g, target="sm90")
    (silu,) = (t.name for r in c.stages["region"].main.body for t in r.outputs if not r.reduce_axes)
    order = (0, 2, 3, 1) if is_read_by_a_convolution else (1, 2, 3, 0)
    assert c.stages["plan"].main.layouts[silu].order == order


@pytest.mark.parametrize("stride", [1, 2])
def test_a_filter_that_is_read_backwards_is_one_tensor_for_all_phases(stride: int) -> None:
    g = tt.Graph("gradient")
    w = g.constant(np.ones((16, 24, 3, 3), np.float16))
    g.output("dx", g.input("dy", (2, 16, 8, 8), tt.fp16).conv_transpose(w, stride=stride, padding=1))
    c = prepare(g, target="sm90")
    turned = [r for r in c.stages["realised"].programs["setup"].body if r.name.startswith("convert_")]
    assert [t.memref.layout.order for r in turned for t in r.outputs] == [(1, 2, 3, 0)]
