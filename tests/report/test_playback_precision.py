"""How close an output has to be follows from the least precise dtype on its way, not from its own alone."""

from __future__ import annotations

import numpy as np

import tatami as tt
from tatami.core.dtype import DType
from tatami.report.playback import compare, least_precise


def through_fp16() -> tt.Graph:
    g = tt.Graph("g")
    x, h = g.input("x", ("N",), tt.fp32), g.input("h", ("N",), tt.fp16)
    body = g.subgraph("half")
    body.output("r", body.input("a", ("M",), tt.fp16).exp())
    narrow = (x * 2.0).cast(tt.fp16)
    g.output("narrow", narrow.cast(tt.fp32) + 1.0)
    g.output("plain", x * 2.0)
    g.output("from_input", h.cast(tt.fp32) * 2.0)
    g.output("called", g.call(body, narrow).cast(tt.fp32))
    g.output("brain", (x + 1.0).cast(tt.bf16).cast(tt.fp16))
    return g


def test_the_least_precise_dtype_on_the_way_of_an_output() -> None:
    f = tt.compile(through_fp16())
    wanted = {"narrow": DType.fp16, "called": DType.fp16, "brain": DType.bf16}
    assert least_precise(f.compilation.stages["frontend"]) == wanted
    assert least_precise(f.compilation.stages["tiny"]) == wanted


def test_the_tolerance_follows() -> None:
    expected = np.linspace(1, 2, 64)
    got = expected.astype(np.float16).astype(np.float32)
    assert compare("y", got, expected, DType.fp32).difference is not None
    assert compare("y", got, expected, DType.fp32, DType.fp16).difference is None
    assert compare("y", got * np.float32(1.01), expected, DType.fp32, DType.fp16).difference is not None
    assert compare("y", got, expected, DType.bf16, DType.fp16).difference is None
