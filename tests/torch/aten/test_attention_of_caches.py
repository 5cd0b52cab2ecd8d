"""Attention whose keys and values come from a cache: heads that share keys, and sizes that PyTorch does not know to be equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from tatami import backends
from tatami.backends.torch_report import REPORTS
from tatami.core.diagnostic import TatamiError


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend=backends.torch_backend, fullgraph=True, options={"fallback": False}, **options)


@pytest.fixture
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(4, 2), (6, 1), (3, 3)])
def test_heads_that_share_keys(causal: bool, heads: tuple[int, int]) -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    q, (k, v) = torch.randn(2, heads[0], 9, 16), torch.randn(2, 2, heads[1], 9, 16)
    results = []
    for function in (attend, compiled(attend)):
        given = [x.clone().requires_grad_() for x in (q, k, v)]
        out = function(*given)
        results.append([out, *torch.autograd.grad(out, given, torch.linspace(-1, 1, out.numel()).reshape(out.shape))])
    for got, want in zip(*reversed(results), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert [r.programs for r in REPORTS] == [1, 1]


@pytest.mark.usefixtures("no_gradients")
def test_shared_heads_are_one_kernel() -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    q, (k, v) = torch.randn(1, 16, 64, 64), torch.randn(2, 1, 4, 512, 64)
    torch.testing.assert_close(compiled(attend)(q, k, v), attend(q, k, v), rtol=1e-4, atol=1e-5)
    (report,) = REPORTS
    assert (report.programs, report.kernels) == (1, 1)


def step(*given: Any) -> Any:
    """A token's attention over caches to which its key and value are appended."""
    q, k, v, keys, values = given
    keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
    return functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True), keys, values


@pytest.mark.usefixtures("no_gradients")
def test_caches_that_grow_are_one_program() -> None:
    """PyTorch traces the first length as it is, and the second one for all."""
    function = compiled(step)
    keys, values = torch.randn(2, 1, 2, 5, 16)
    for _ in range(6):
        token: list[Any] = [torch.randn(1, 4, 1, 16), *torch.randn(2, 1, 2, 1, 16)]
        want = step(*token, keys, values)
        got = function(*token, keys, values)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        _, keys, values = want
    assert [(r.programs, r.unsupported) for r in REPORTS] == [(1, []), (1, [])]


@pytest.mark.usefixtures("no_gradients")
def test_keys_and_values_of_other_lengths_are_refused() -> None:
    """PyTorch's own operator reads past the values here."""
    function = compiled(step)
    token = torch.randn(1, 4, 1, 16), *torch.randn(2, 1, 2, 1, 16)
    for count in (5, 6):
        function(*token, *torch.randn(2, 1, 2, count, 16))
    with pytest.raises((TatamiError, RuntimeError)):
        function(*token, torch.randn(1, 2, 9, 16), torch.randn(1, 2, 5, 16))
