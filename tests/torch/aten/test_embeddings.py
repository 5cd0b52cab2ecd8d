"""Embeddings whose rows are bounded, and bags of rows, against eager."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch.test_torch_compile import compiled  # noqa: E402

F = torch.nn.functional


def table() -> Any:
    return torch.randn(7, 4, generator=torch.Generator().manual_seed(0))


def test_rows_that_are_read_are_made_no_longer_than_the_bound_and_the_table_keeps_them() -> None:
    tables = []
    for run in (F.embedding, compiled(F.embedding, target="reference")):
        weight = table()
        tables.append((run(torch.tensor([[1, 3], [3, 6]]), weight, max_norm=1.5, norm_type=2.0), weight))
    torch.testing.assert_close(*tables)


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_with_empty_ones_padding_and_a_last_offset(mode: str, padding: int | None) -> None:
    indices, offsets = torch.tensor([1, 3, 3, 6, 0, 3]), torch.tensor([0, 2, 2, 5])

    def f(weight: Any) -> Any:
        plain = F.embedding_bag(indices, weight, offsets, mode=mode, padding_idx=padding)
        last = torch.cat([offsets, torch.tensor([6])])
        ended = F.embedding_bag(indices, weight, last, mode=mode, padding_idx=padding, include_last_offset=True)
        return plain, ended, F.embedding_bag(indices.reshape(2, 3), weight, mode=mode, padding_idx=padding)

    torch.testing.assert_close(compiled(f, target="reference")(table()), f(table()))


def test_weights_of_the_rows_of_a_bag() -> None:
    indices, offsets, scale = torch.tensor([1, 3, 3, 6]), torch.tensor([0, 3]), torch.tensor([0.5, 2.0, -1.0, 3.0])

    def f(weight: Any) -> Any:
        return F.embedding_bag(indices, weight, offsets, mode="sum", per_sample_weights=scale)

    torch.testing.assert_close(compiled(f, target="reference")(table()), f(table()))
    with pytest.raises(IndexError):
        compiled(f, target="reference")(table()[:5])


@pytest.mark.parametrize("is_last", [False, True])
def test_a_bag_that_begins_or_ends_behind_the_indices_raises(is_last: bool) -> None:
    def f(weight: Any, indices: Any, offsets: Any) -> Any:
        return F.embedding_bag(indices, weight, offsets, include_last_offset=is_last)

    given = table(), torch.tensor([1, 3, 3]), torch.tensor([0, 2, 4])
    with pytest.raises((RuntimeError, ValueError)):
        f(*given)
    with pytest.raises(IndexError):
        compiled(f, target="reference")(*given)
