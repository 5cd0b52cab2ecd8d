"""Arguments that are slices of wider rows are read where they lie."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tatami.backends.torch_report import REPORTS  # noqa: E402
from tatami.torch.rows import rows_around  # noqa: E402
from tests.torch.test_torch_compile import compiled  # noqa: E402


def heads(k: int) -> Any:
    """Queries (0), keys (1) or values (2) of 2 heads of 16 columns, for 3 sequences of 5 tokens."""
    return torch.randn(3, 5, 96).chunk(3, 2)[k].reshape(3, 5, 2, 16).transpose(1, 2)


SLICES = {
    "queries": (lambda: heads(0), (3, 5, 96), 0),
    "values": (lambda: heads(2), (3, 5, 96), 64),
    "channels": (lambda: torch.randn(2, 6, 4, 4)[:, 3:5], (2, 96), 48),
    "later rows": (lambda: torch.randn(6, 40)[2:5, 8:24], (3, 40), 8),
    "with an axis of size 1": (lambda: torch.randn(3, 40)[:, None, 8:24], (3, 40), 8),
    "every second": (lambda: torch.randn(3, 40)[:, ::2], None, 0),
    "short pieces": (lambda: torch.randn(3, 40)[:, :15], None, 0),
    "two gaps": (lambda: torch.randn(3, 4, 40)[:, :2, :16], None, 0),
    "repeated": (lambda: torch.randn(1, 16).expand(3, 16), None, 0),
    "overlapping": (lambda: torch.randn(40).unfold(0, 32, 4), None, 0),
    "no gap": (lambda: torch.randn(3, 40).t(), None, 0),
    "no element": (lambda: torch.randn(0, 40)[:, :16], None, 0),
    "the memory ends early": (lambda: torch.randn(96)[16:].as_strided((2, 32), (64, 1), 0), None, 0),
}
"""Name -> (the tensor, the shape of the array around it, None if it is not read so, and the first column)."""


@pytest.mark.parametrize("name", SLICES)
def test_a_tensor_with_one_gap_is_a_slice_of_rows(name: str) -> None:
    made, shape, begin = SLICES[name]
    x = made()
    rows = rows_around(x)
    assert (rows and rows.shape) == shape
    if rows is None:
        return
    assert rows.begin == begin
    for whole in (rows.around(x), rows.copied(x)):
        assert whole is not None and tuple(whole.shape) == shape
        columns = whole[..., begin : begin + rows.count].reshape(rows.pieces)
        assert torch.equal(columns, x.permute(rows.order))


@pytest.mark.parametrize("name", [n for n, (_, shape, _) in SLICES.items() if shape])
def test_a_slice_is_not_copied(name: str) -> None:
    REPORTS.clear()
    x = SLICES[name][0]()
    assert torch.allclose(compiled(lambda x: (x * 2).sum(-1))(x), (x * 2).sum(-1), atol=1e-5)
    (report,) = REPORTS
    assert report.programs == 1 and not report.copies


def test_a_slice_that_begins_elsewhere_is_copied() -> None:
    """A graph is not made anew for another place in the same rows: what lies around the slice has no influence."""
    REPORTS.clear()
    run = compiled(lambda x: x.exp() + 1)
    wide = torch.full((3, 48), float("nan"))
    for start in (16, 0, 32):
        x = wide[:, start : start + 16]
        x.copy_(torch.randn(3, 16))
        assert torch.equal(run(x).isnan(), torch.zeros(3, 16, dtype=torch.bool))
        assert torch.allclose(run(x), x.exp() + 1, rtol=1e-5)
        x.fill_(float("nan"))
    last = torch.empty(2 * 48 + 16).as_strided((3, 16), (48, 1)).copy_(torch.randn(3, 16))
    assert torch.allclose(run(last), last.exp() + 1, rtol=1e-5)
    (report,) = REPORTS
    assert sum(report.copies.values()) == 5


def test_an_updated_slice_is_updated() -> None:
    wide = torch.zeros(3, 48)

    def add(x: Any, y: Any) -> None:
        x.add_(y)

    compiled(add)(wide[:, 16:32], wide[:, 32:] + 1)
    assert float(wide.sum()) == 48 and float(wide[:, 16:32].min()) == 1


def test_backward_reads_queries_keys_and_values_in_place() -> None:
    REPORTS.clear()

    def attention(x: Any, w: Any) -> Any:
        q, k, v = (y.reshape(2, 8, 2, 16).transpose(1, 2) for y in (x @ w).chunk(3, 2))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    x, w = torch.randn(2, 8, 32), torch.randn(32, 96, requires_grad=True)
    attention(x, w).square().sum().backward()
    wanted, w.grad = w.grad, None
    compiled(attention)(x, w).square().sum().backward()
    assert torch.allclose(w.grad, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))
    assert [r.kind for r in REPORTS] == ["forward", "backward"] and not any(r.copies for r in REPORTS)
