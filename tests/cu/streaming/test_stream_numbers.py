"""Programs without an MMA, from the graph to CUDA text, run on the emulated machine and compared with the Regions' meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.core.tensor import numpy_dtype
from tatami.decisions import Decisions
from tatami.frontend.graph import Graph
from tatami.gpu.verify import verify
from tatami.pipeline import compile_stages
from tatami.region.ir import Region
from tatami.region.run import run as run_regions
from tatami.runtime.building.nvrtc import compile_cubin, has_nvrtc
from tatami.runtime.emulated.machine import Argument, LaunchShape, Pointer, build_machine


def softmax(g: Graph) -> None:
    x = g.input("x", ("M", "K"), DType.fp32)
    g.output("y", x.softmax(-1))


def softmax_fp16(g: Graph) -> None:
    x = g.input("x", ("M", "K"), DType.fp16)
    g.output("y", x.softmax(-1))


def middle_axis(g: Graph) -> None:
    x = g.input("x", ("M", "K", 5), DType.fp32)
    g.output("y", x.softmax(1))


def gelu(g: Graph) -> None:
    x = g.input("x", ("M", "K"), DType.fp32)
    g.output("y", x.gelu())


def positions(g: Graph) -> None:
    x = g.input("x", ("M", "K"), DType.fp32)
    g.output("y", x.argmax(-1))


def running(g: Graph) -> None:
    x = g.input("x", ("M", "K"), DType.fp32)
    g.output("y", x.cumsum(-1))
    h = g.input("h", ("M", 520), DType.fp16)
    g.output("below", h.cumsum(-1, exclusive=True).relu())
    g.output("after", h.cumsum(-1, reverse=True))
    g.output("total", h.cummax(-1) + h.sum(-1).unsqueeze(-1).expand(("M", 520)))


def convolution(g: Graph) -> None:
    x = g.input("x", (2, 3, 9, 8), DType.fp32)
    w = g.input("w", (4, 3, 3, 3), DType.fp32)
    g.output("y", x.conv(w, stride=2, padding=1).relu())


def pooling(g: Graph) -> None:
    x = g.input("x", (2, 3, 9, 8), DType.fp32)
    g.output("y", x.max_pool(3, 2, 1))


def two_layers(g: Graph) -> None:
    x = g.input("x", ("M", 24), DType.fp16)
    w = g.input("w", (24, 40), DType.fp16)
    v = g.input("v", (40, 16), DType.fp16)
    g.output("y", ((x @ w).relu() @ v).softmax(-1))


def normalised(g: Graph) -> None:
    x = g.input("x", ("M", "K"), DType.fp32)
    scale = g.input("scale", ("K",), DType.fp32)
    g.output("y", x.layer_norm(scale))


def averages(g: Graph) -> None:
    x = g.input("x", (2, 3, 9, 8), DType.fp32)
    g.output("y", x.avg_pool(3, 2, 1))


def attention(g: Graph) -> None:
    q, k, v = (g.input(n, (1, 2, "M", 16), DType.fp32) for n in "qkv")
    g.output("y", q.attention(k, v))


def shuffles(g: Graph) -> None:
    x = g.input("x", ("M", 4, 6), DType.fp16)
    g.output("y", x.transpose(1, 2).flip(1).reshape("M", 24))


def formula(g: Graph) -> None:
    x = g.input("x", ("M", "K"), DType.fp32)
    y = g.kernel("d = input0 * 2 + ridx1; where(d > shape0, d / 3.0, -d) - 0.5 * ridx0", x.exp())
    g.output("y", g.kernel_reduce("input0 * (1 + ridx1)", y, op="sum", axes=[1]))


def bodies(g: Graph) -> None:
    x = g.input("x", ("M", "K"), DType.fp32)
    row = """
    if (input0_shape1 == 0) { output[ridx0] = 0; return; }
    float total = 0;
    for (ridx1 = 0; ridx1 < input1_shape1; ++ridx1) total += scaled(input0[ridx0 * input0_shape1 + ridx1] * input1[ridx0 * input1_shape1 + ridx1]);
    output[ridx0] = total + shape0;"""
    h = x.tanh()
    sums = g.kernel_body(
        None,
        h,
        h,
        outputs=[(DType.fp32, ("M",))],
        cuda=row,
        cuda_preamble="TT_DEV float scaled(float x) {\n  return 2 * x;\n}",
        meaning=lambda a, b: (2 * a * b).sum(1) + a.shape[0],
    )
    g.output("sums", sums * 2.0)
    turned = "output0[ridx0 * shape1 + ridx1] = input0[ridx1 * input0_shape1 + ridx0]; if (ridx0 + ridx1 == 0) output1[0] = 7;"
    outputs = [(DType.fp32, ("K", "M")), (DType.i32, (1,))]
    one, two = g.kernel_body(None, x, outputs=outputs, cuda=turned, meaning=lambda a: (a.T, np.array([7], np.int32)))
    g.output("one", one)
    g.output("two", two)


def embedding(g: Graph) -> None:
    table = g.input("table", (10, 8), DType.fp32)
    index = g.input("index", ("M",), DType.i64)
    g.output("y", table.take(index, 0).exp())
    g.output("z", g.input("t", ("M", "K"), DType.fp16).take(index, 1))


def scattered(g: Graph) -> None:
    x = g.input("x", ("M", 8), DType.fp32)
    index = g.input("index", (9, 8), DType.i64)
    u = g.input("u", (9, 8), DType.fp32)
    for op in ("set", "add", "max"):
        g.output(op, x.scatter(0, index, u.exp(), op))


def noise(g: Graph) -> None:
    key = g.input("index_key", (), DType.u64)
    g.output("y", g.uniform(("M", "K"), key, dtype=DType.fp32) * g.input("x", ("M", "K"), DType.fp32))


def orders(g: Graph) -> None:
    x = g.input("x", ("M", "K", 3), DType.fp16)
    values, at = x.sort(1)
    g.output("values", values)
    g.output("at", at)
    g.output("most", x.topk(2, 0)[0])


def long_rows(g: Graph) -> None:
    x = g.input("x", (3, 1280), DType.fp32)
    g.output("y", x.softmax(-1))
    g.output("at", x.argmin(-1))
    g.output("total", x.sum())
    g.output("running", x.cumsum(1, exclusive=True, reverse=True))


def columns(g: Graph) -> None:
    x = g.input("x", (300, 40), DType.fp32)
    g.output("total", x.sum(0))
    g.output("at", x.argmax(0))
    g.output("y", g.input("z", (2, 40, "K"), DType.fp16).softmax(1))
    g.output("w", g.input("odd", (200, 33), DType.fp32).max(0))


def turned(g: Graph) -> None:
    x = g.input("x", (2, 40, 72), DType.fp32)
    g.output("a", x.transpose(1, 2).exp())
    g.output("b", g.input("y", ("K", 80), DType.fp16).transpose(0, 1) + g.input("bias", ("K",), DType.fp16).expand((80, "K")))
    g.output("c", g.input("z", (130, 136), DType.u8).transpose(0, 1))
    g.output("d", g.input("w", (35, 37), DType.fp32).transpose(0, 1))


def integers(g: Graph) -> None:
    x = g.input("x", ("M", "K"), DType.i8)
    g.output("y", (x * x).cast(DType.u8) + x.cast(DType.u8))
    g.output("z", x.cast(DType.bf16).exp().cast(DType.i16))
    g.output("w", x.cast(DType.i32).prod(1))


PROGRAMS = (
    embedding,
    scattered,
    noise,
    orders,
    long_rows,
    columns,
    turned,
    integers,
    formula,
    bodies,
    normalised,
    averages,
    attention,
    shuffles,
    softmax,
    softmax_fp16,
    middle_axis,
    gelu,
    positions,
    running,
    convolution,
    pooling,
    two_layers,
)


def stages_of(make: Callable[[Graph], None]) -> Any:
    g = Graph("program")
    make(g)
    return compile_stages({"frontend": g.module()}, PRESETS["sm80"], Decisions(), lambda name, build: build())


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_the_kernels_mean_what_the_regions_mean(make: Callable[[Graph], None]) -> None:
    check_kernels(stages_of(make), {"M": 7, "K": 33})


def check_kernels(stages: Any, env: dict[str, int]) -> None:
    """The kernels on the emulated machine do what the Regions mean."""
    gpu, source, regions = stages["gpu"].main, stages["cu"].main, stages["realised"]
    assert verify(stages["gpu"]) == []
    machine = build_machine(source.units, source.headers, PRESETS["sm80"])

    rng = np.random.default_rng(0)
    program = regions.main
    inputs = {}
    for port in program.signature.inputs:
        shape = tuple(int(evaluate(s, env)) for s in port.shape)
        whole = port.dtype.is_int
        low, high = (-2, 3) if whole else (-16, 17)
        values = rng.integers(0 if port.dtype == DType.u64 else low, high, shape)
        inputs[port.tensor] = np.asarray(values if whole else values / 8).astype(numpy_dtype(port.dtype))
    wanted = run_regions(regions, inputs, env)

    buffers = {
        id: machine.copied(id, inputs[port.tensor], port.dtype) for id, port in zip(program.inputs, program.signature.inputs)
    }
    for item in program.body:
        assert isinstance(item, Region)
        for t in item.outputs:
            shape = tuple(int(evaluate(s, env)) for s in t.memref.shape)
            buffers[t.name] = machine.make(t.name, int(np.prod(shape)), t.memref.dtype).reshape(shape)
    kernels = {k.face.symbol: k for k in gpu.kernels}
    for b in (b for b in gpu.bindings if not b.conditions):
        for name, size in b.scratch:
            buffers[f"{b.region}.{name}"] = machine.make(name, int(evaluate(size, env)), DType.u8)
        found = [buffers.get(n, buffers.get(f"{b.region}.{n}")) for n in b.buffers]
        params = kernels[b.kernel].params
        arguments: list[Argument] = [Pointer(x, x, p.written) for x, p in zip(found, params) if x is not None]
        arguments += [int(evaluate(s, env)) for s in b.sizes]
        x, y, z = (int(evaluate(g, env)) for g in b.grid)
        machine.launch(b.kernel, arguments, LaunchShape((x, y, z), kernels[b.kernel].threads, shared_bytes=b.shared_bytes))
    for id, port in zip(program.outputs, program.signature.outputs):
        got, want = buffers[id].astype(np.float64), np.asarray(wanted[port.tensor]).astype(np.float64)
        tolerance = 4e-3 if port.dtype == DType.fp16 else 1e-5
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=tolerance, atol=tolerance)


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_the_kernels_compile(make: Callable[[Graph], None]) -> None:
    source = stages_of(make)["cu"].main
    for u in source.units:
        cubin = compile_cubin(u.text, u.arch, source.headers)
        assert cubin.spill_bytes == 0 and cubin.warnings == ()


def test_stream_documents_round_trip() -> None:
    from tatami.core.codec import dump_text, parse_text
    from tatami.gpu.json_form import decode, encode
    from tatami.gpu.show import show

    stages = stages_of(softmax)
    program = stages["gpu"].main
    assert decode(parse_text(dump_text(encode(program)))) == program
    assert "f0 : fp32 = max over i1 of p0[i0*s0 + i1], by i1" in show(stages["gpu"])


def test_documents_of_bodies_round_trip() -> None:
    from tatami.core.codec import dump_text, parse_text
    from tatami.gpu.json_form import decode, encode
    from tatami.gpu.show import show

    stages = stages_of(bodies)
    program = stages["gpu"].main
    document = parse_text(dump_text(encode(program)))
    assert decode(document, trust=True) == program
    with pytest.raises(TatamiError, match="Untrusted"):
        decode(document)
    assert "| output0[" not in show(stages["gpu"]) and "| tatami_out0[" in show(stages["gpu"])


def test_what_has_no_cuda_text_is_refused() -> None:
    def only_c(g: Graph) -> None:
        x = g.input("x", ("M",), DType.fp32)
        body = "output[ridx0] = input[ridx0];"
        g.output("y", g.kernel_body(body, x, outputs=[(DType.fp32, ("M",))], meaning=lambda a: a))

    with pytest.raises(TatamiError, match="no CUDA body"):
        _ = stages_of(only_c)["gpu"]
