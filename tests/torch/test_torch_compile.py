"""torch.compile(backend="tatami") against eager: values, strides, gradients, one compilation for every batch size."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from tatami import backends
from tatami.api import prepare
from tatami.backends import torch_compile
from tests.torch.modules import CASES

OPTIONS = {"fallback": False}


def compiled(module: Any, **options: Any) -> Any:
    return torch.compile(module, backend=backends.torch_backend, fullgraph=True, options={**OPTIONS, **options})


def assert_as_eager(f: Any, given: Any) -> None:
    """Assert that the program gives eager's results, for arguments made by `given`, equal at each call."""
    got, wanted = compiled(f, target="reference")(*given()), f(*given())
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def tuple_of(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def assert_like(got: Any, wanted: Any, dtype: Any) -> None:
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    for g, w in zip(tuple_of(got), tuple_of(wanted), strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape and g.stride() == w.stride() and g.device == w.device
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance * 10)


def graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_inference_matches_eager_for_every_batch_with_one_graph(name: str, dtype: str) -> None:
    make, inputs = CASES[name]
    kind = getattr(torch, dtype)
    module = make().to(kind).eval()
    run = compiled(module)
    with torch.no_grad():
        for k, batch in enumerate((4, 5, 9)):
            given = inputs(batch, kind)
            if k == 0:
                torch._dynamo.mark_dynamic(given[0], 0)
            assert_like(run(*given), module(*given), kind)
    assert graphs() == 1 and not torch._dynamo.utils.counters["graph_break"]
    assert not any(r.unsupported or r.refused for r in backends.torch_reports())


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("integers", "views")])
def test_training_matches_eager_gradients(name: str) -> None:
    make, inputs = CASES[name]
    module = make().to(torch.float64).train()
    reference = copy.deepcopy(module)
    run = compiled(module)
    for k, batch in enumerate((4, 6)):
        given = [t.requires_grad_(t.is_floating_point()) for t in inputs(batch, torch.float64)]
        same = [t.detach().clone().requires_grad_(t.requires_grad) for t in given]
        if k == 0:
            torch._dynamo.mark_dynamic(given[0], 0)
        out, wanted = run(*given), reference(*same)
        assert_like(out, wanted, torch.float64)
        error = torch.randn_like(wanted)
        out.backward(error)
        wanted.backward(error)
        pairs = [*zip(module.parameters(), reference.parameters(), strict=True), *zip(given, same, strict=True)]
        for p, q in pairs:
            assert (p.grad is None) == (q.grad is None)
            if q.grad is not None:
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-9, atol=1e-11)
        for p, q in zip(module.buffers(), reference.buffers(), strict=True):
            torch.testing.assert_close(p, q)
    assert graphs() == 1
    assert {r.kind for r in backends.torch_reports()} >= ({"forward", "backward"} if list(module.parameters()) else {"forward"})


def test_a_new_batch_size_is_automatically_dynamic() -> None:
    make, inputs = CASES["mlp"]
    module = make()
    run = compiled(module)
    for batch in (4, 5, 6, 7, 32):
        given = inputs(batch, torch.float32)
        assert_like(run(*given), module(*given), torch.float32)
    assert graphs() == 2, "the first is of a constant size, the second of every size"


def test_dropout_is_seeded_scaled_and_the_same_in_the_backward_pass() -> None:
    module = torch.nn.Dropout(0.25)
    run = compiled(module)
    x = torch.ones(200, 100, requires_grad=True)

    def draw(seed: int) -> Any:
        torch.manual_seed(seed)
        return run(x)

    a, b, c = draw(1), draw(1), draw(2)
    assert torch.equal(a, b) and not torch.equal(a, c)
    assert a.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert abs((a == 0).double().mean().item() - 0.25) < 0.02
    (gradient,) = torch.autograd.grad(a.sum(), x)
    assert torch.equal(gradient != 0, a != 0)


class Mixed(torch.nn.Module):
    """An operator that no table row imports between two that are."""

    def forward(self, x: Any) -> Any:
        y = torch.linalg.matrix_exp(0.1 * x @ x.T + 1)
        return (y * 2).relu()


def test_operators_we_lack_stay_in_pytorch_and_are_listed() -> None:
    module, x = Mixed(), torch.randn(4, 4)
    run = torch.compile(module, backend=backends.torch_backend)
    torch.testing.assert_close(run(x), module(x), rtol=1e-4, atol=1e-4)
    (report,) = backends.torch_reports()
    assert report.programs == 2 and [u.operator for u in report.unsupported] == ["aten.linalg_matrix_exp.default"]
    assert "aten.linalg_matrix_exp.default" in backends.explain()


def test_without_fallback_one_diagnostic_lists_everything() -> None:
    def two(x: Any) -> Any:
        return torch.linalg.ldl_factor_ex(x)[0] + torch.linalg.matrix_exp(x).sum()

    with pytest.raises(Exception, match=r"E1606 UnsupportedModel.*linalg_ldl_factor_ex.*linalg_matrix_exp"):
        compiled(two)(torch.eye(3))


@pytest.mark.parametrize("options", [{"falback": True}, {"threads": "many"}, {"tune": -1}, {"tune": "60"}])
def test_unknown_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="E1009 InvalidAttribute"):
        torch.compile(lambda x: x + 1, backend=backends.torch_backend, options=options)(torch.ones(2))


def test_arguments_in_another_memory_order_are_read_where_they_lie() -> None:
    def f(x: Any) -> Any:
        return x * 2 + x.sum(0)

    x = torch.randn(4, 5, 6).permute(2, 0, 1)
    assert_like(compiled(f)(x), f(x), torch.float32)
    (report,) = backends.torch_reports()
    assert not report.copies


def test_a_constant_tensor_of_the_model_is_a_constant_of_the_program() -> None:
    def f(x: Any) -> Any:
        return torch.where(x > 0, x, torch.tensor(float("-inf"))) + torch.tensor([1.0, 2.0])

    x = torch.randn(3, 2)
    assert_like(compiled(f)(x), f(x), torch.float32)


@pytest.mark.parametrize("error", [IndexError, RuntimeError])
def test_an_index_outside_raises_as_operators_of_pytorch_do(error: type[Exception]) -> None:
    run = compiled(lambda x, i: x.scatter(0, i, 1.0))
    with pytest.raises(error, match="E1804 IndexOutOfRange"):
        run(torch.zeros(3), torch.tensor([34]))


def test_special_functions_of_double_precision_stay_in_pytorch() -> None:
    x = torch.linspace(0.5, 30.0, 7, dtype=torch.float64)
    run = torch.compile(lambda x: torch.special.i0(x) + torch.lgamma(x), backend=backends.torch_backend)
    assert_like(run(x), torch.special.i0(x) + torch.lgamma(x), torch.float64)
    assert any(r.unsupported for r in backends.torch_reports())


def far_and_near() -> Any:
    """Both sides of the places where the formulas change, and what is special."""
    values = [0.0, 1e-6, 0.3, 0.5, 1.9, 2.1, 5.9, 6.1, 7.9, 8.1, 9.9, 10.1, 11.9, 12.1, 15.9, 16.1, 40.0, 80.0]
    return torch.tensor([*values, *(-v for v in values), math.nan])


SPECIAL = ["i0", "i0e", "i1", "i1e", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1",
           "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "gammaln", "digamma", "erfcx", "erfinv"]  # fmt: skip


def test_special_functions_near_and_far_from_zero() -> None:
    x = far_and_near()
    functions = [getattr(torch.special, name) for name in SPECIAL]
    run = compiled(lambda x: tuple(f(x) for f in functions), target="reference")
    for name, got, wanted in zip(SPECIAL, run(x), [f(x.double()).float() for f in functions], strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-6, atol=2e-6, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}")


def test_polynomials_of_a_degree_that_is_a_tensor() -> None:
    x = torch.tensor([-1.5, -1.0, -0.6, 0.0, 0.3, 1.0, 1.2]).reshape(-1, 1)
    degree = torch.tensor([-3, 0, 1, 2, 7, 9, 20])
    names = [f"chebyshev_polynomial_{k}" for k in "tuvw"] + [
        "hermite_polynomial_h",
        "laguerre_polynomial_l",
        "legendre_polynomial_p",
    ]
    functions = [getattr(torch.special, name) for name in names]
    run = compiled(lambda x, n: tuple(f(x, n) for f in functions))
    for got, wanted in zip(run(x, degree), [f(x.double(), degree).float() for f in functions], strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-6, atol=2e-6)


def test_a_masked_write_needs_as_many_elements_as_the_mask() -> None:
    run = compiled(lambda x, mask, source: x.masked_scatter(mask, source))
    x, mask = torch.zeros(4), torch.tensor([True, False, True, True])
    source = torch.arange(3.0)
    assert_like(run(x, mask, source), x.masked_scatter(mask, source), torch.float32)
    with pytest.raises(RuntimeError, match="E1804 IndexOutOfRange"):
        run(x, torch.ones(4, dtype=torch.bool), source)
    with pytest.raises(RuntimeError, match="a mask of dtype u8"):
        run(x, mask.to(torch.uint8), source)
    with pytest.raises(RuntimeError, match="only supports boolean masks"):
        torch.compile(lambda *a: a[0].masked_scatter(*a[1:]), backend=backends.torch_backend)(x, mask.to(torch.uint8), source)


class Resampled(torch.nn.Module):
    """Pooled, widened again and joined with what it was: sizes such as 2*(H//2) that PyTorch takes to be H."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.widen = torch.nn.ConvTranspose2d(4, 4, 2, stride=2)

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        small = torch.nn.functional.max_pool2d(y, 2)
        both = torch.cat([self.widen(small), y], 1) + torch.stack(
            [torch.cat([self.widen(small), y], 1), torch.cat([y, y], 1)]
        ).sum(0)
        near = torch.nn.functional.interpolate(small, scale_factor=2, mode="nearest")
        return both, torch.nn.functional.interpolate(near, size=x.shape[-2:], mode="bilinear", align_corners=False)


def test_conv_nets_with_open_height_and_width_run_whole() -> None:
    module = Resampled().eval()
    run = compiled(module)
    with torch.no_grad():
        for k, shape in enumerate([(2, 3, 12, 16), (3, 3, 10, 14), (2, 3, 22, 8)]):
            x = torch.randn(*shape)
            if k == 0:
                for axis in (0, 2, 3):
                    torch._dynamo.mark_dynamic(x, axis)
            assert_like(run(x), module(x), torch.float32)
    assert graphs() == 1
    (report,) = backends.torch_reports()
    assert report.programs == 1 and not report.unsupported


def test_a_ratio_of_sizes_reaches_the_parts_of_a_graph_that_was_cut() -> None:
    def f(x: Any) -> Any:
        scale = x.shape[0] / (x.shape[1] + 1)
        y = torch.linalg.matrix_exp(0.1 * x.T @ x)
        return y * scale + y.sum() * scale

    run = torch.compile(f, backend=backends.torch_backend, dynamic=True)
    for rows, columns in ((4, 6), (7, 5)):
        x = torch.randn(rows, columns, dtype=torch.float64)
        torch.testing.assert_close(run(x), f(x))
    assert all(not r.refused for r in backends.torch_reports())
    assert [u.operator for r in backends.torch_reports() for u in r.unsupported] == ["aten.linalg_matrix_exp.default"]


def test_training_of_16_bits_keeps_no_scores_of_the_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel for the attention with its log-sum-exp, on the CPU and on both architectures; gradients as float64's."""
    forward: list[list[str]] = []

    def prepared(module: Any, **options: Any) -> Any:
        plans = [prepare(module, target=t).stages["plan"].main.regions for t in ("sm80", "sm90", "cpu")]
        forward.append([type(c.plan).__name__ for regions in plans for r in regions for c in r.choices[:1]])
        return prepare(module, **options)

    monkeypatch.setattr(torch_compile, "prepare", prepared)
    make, inputs = CASES["attention"]
    module = make().to(torch.bfloat16).train()
    reference = copy.deepcopy(module).double()
    (x,) = inputs(3, torch.bfloat16)
    compiled(module)(x).float().square().sum().backward()
    reference(x.double()).square().sum().backward()
    assert {"CpuStreaming", "Sm80Pair"} <= set(forward[0]), forward
    for got, wanted in zip(module.parameters(), reference.parameters(), strict=True):
        error = (got.grad.double() - wanted.grad).norm() / wanted.grad.norm()
        assert error < 2e-2


def test_each_group_of_rows_is_multiplied_by_a_matrix_of_its_own() -> None:
    x, w = torch.randn(16, 32, dtype=torch.bfloat16), torch.randn(3, 32, 16, dtype=torch.bfloat16)
    ends = torch.tensor([2, 2, 16], dtype=torch.int32)
    grouped = torch.nn.functional.grouped_mm
    got = compiled(lambda x, w, ends: grouped(x, w, offs=ends))(x, w, ends)
    torch.testing.assert_close(got, grouped(x, w, offs=ends))
