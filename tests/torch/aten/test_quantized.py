"""Quantisation as PT2E exports and torchao write it: eager's numbers, in one program."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  defines the operators

import tatami as tt
from tatami import backends
from tatami.backends.torch_report import REPORTS

OPS = torch.ops.quantized_decomposed
X = torch.cat([torch.linspace(-4, 4, 96), torch.tensor([0.5, 1.5, -0.5, 100.0, -100.0, 0.0])]).reshape(6, 17)


def compiled(function: Any) -> Any:
    return torch.compile(function, backend=backends.torch_backend, fullgraph=True, options={"fallback": False})


def by_export(model: Any, x: Any) -> Any:
    """The result of the exported program, compiled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's own, about its trees
        program = tt.compile(torch.export.export(model, (x,)))
    (found,) = program(x).values()
    return torch.as_tensor(found)


LIMITS = {torch.int8: (-128, 127), torch.uint8: (0, 255), torch.int16: (-32768, 32767)}


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("scale", [0.1, 0.03125, 3.0])
@pytest.mark.parametrize("zero", [0, 3])
def test_numbers_as_scale_and_zero_point(dtype: Any, scale: float, zero: int) -> None:
    low, high = LIMITS[dtype]

    def function(x: Any) -> Any:
        q = OPS.quantize_per_tensor.default(x, scale, zero, low, high, dtype)
        return q, OPS.dequantize_per_tensor.default(q, scale, zero, low, high, dtype)

    for got, want in zip(compiled(function)(X), function(X), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("zero", [-200, 128, 300])
def test_a_zero_point_that_is_no_code(zero: int) -> None:
    codes = torch.arange(-128, 128, dtype=torch.int8)

    def function(x: Any) -> Any:
        return OPS.dequantize_per_tensor.default(x, 0.1, zero, -128, 127, torch.int8)

    assert torch.equal(compiled(function)(codes), function(codes))


def test_tensors_as_scale_and_zero_point() -> None:
    def function(x: Any) -> Any:
        scale, zero = OPS.choose_qparams.tensor(x, 0, 255, 1e-6, torch.uint8)
        q = OPS.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
        return scale, zero, q, OPS.dequantize_per_tensor.tensor(q, scale, zero, 0, 255, torch.uint8)

    for x in (X, X.abs() + 1, -X.abs(), torch.zeros(6, 17), X.half().float()):
        torch._dynamo.reset()
        for got, want in zip(compiled(function)(x), function(x), strict=True):
            assert got.dtype == want.dtype
            assert torch.equal(got, want)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_scale_for_each_index_of_an_axis(axis: int) -> None:
    count = X.shape[axis]
    scales, zeros = torch.linspace(0.02, 0.3, count), torch.arange(count) % 5 - 2

    def function(x: Any, scales: Any, zeros: Any) -> Any:
        q = OPS.quantize_per_channel.default(x, scales, zeros, axis, -128, 127, torch.int8)
        with_zero = OPS.dequantize_per_channel.default(q, scales, zeros, axis, -128, 127, torch.int8)
        return q, with_zero, OPS.dequantize_per_channel.default(q, scales, None, axis, -128, 127, torch.int8)

    for got, want in zip(compiled(function)(X, scales, zeros), function(X, scales, zeros), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("left", [torch.int8, torch.uint8])
def test_products_of_8_bits(left: Any) -> None:
    info = torch.iinfo(left)
    a = torch.randint(info.min, info.max + 1, (19, 40), dtype=left)
    b = torch.randint(-128, 128, (40, 24), dtype=torch.int8)
    a[0], b[:, 0] = info.min, -128
    want = a.int() @ b.int()
    assert torch.equal(compiled(torch._int_mm)(a, b), want)


class Rounded(nn.Module):
    """A product with weights of 8 bits and rounded activations, as `convert_pt2e` writes it."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randn(24, 17)
        self.register_buffer("scales", weight.abs().amax(1) / 127)
        self.register_buffer("zeros", torch.zeros(24, dtype=torch.int64))
        self.register_buffer("codes", (weight / self.scales[:, None]).round().to(torch.int8))

    def forward(self, x: Any) -> Any:
        q = OPS.quantize_per_tensor.default(x, 0.05, 128, 0, 255, torch.uint8)
        x = OPS.dequantize_per_tensor.default(q, 0.05, 128, 0, 255, torch.uint8)
        w = OPS.dequantize_per_channel.default(self.codes, self.scales, self.zeros, 0, -128, 127, torch.int8)
        return nn.functional.linear(x, w).relu()


def test_a_layer_by_compile_and_by_export() -> None:
    model = Rounded().eval()
    want = model(X)
    assert torch.allclose(compiled(model)(X), want, rtol=1e-5, atol=1e-5)
    (report,) = REPORTS
    assert (report.programs, report.unsupported) == (1, [])
    assert torch.allclose(by_export(model, X), want, rtol=1e-5, atol=1e-5)


class Two(nn.Module):
    """Two layers to be quantised."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 96), nn.Linear(96, 32, bias=False)

    def forward(self, x: Any) -> Any:
        return self.b(torch.relu(self.a(x)))


@pytest.mark.parametrize("name", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig", "IntxWeightOnlyConfig"])
def test_modules_of_torchao(name: str) -> None:
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    options = {"weight_dtype": torch.int4, "granularity": quantization.PerGroup(32)} if name.startswith("Intx") else {}
    model, x = Two().eval(), torch.randn(5, 64)
    quantization.quantize_(model, getattr(quantization, name)(**options))
    with torch.no_grad():
        want = model(x)
        assert torch.allclose(compiled(model)(x), want, rtol=1e-5, atol=1e-5)
        (report,) = REPORTS
        assert (report.programs, report.unsupported) == (1, [])
        assert torch.allclose(by_export(model, x), want, rtol=1e-5, atol=1e-5)
