"""Sizes that data decide in exported modules: one program serves every value, each size read by one Host step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError

pytest.importorskip("torch")

import torch

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export of torch 2.13 warns of itself


def module(forward: Callable[..., Any]) -> Any:
    class Made(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return forward(*args)

    return Made()


def agree(forward: Callable[..., Any], *calls: tuple[Any, ...], synchronisations: int) -> None:
    f = tt.compile(module(forward), calls[0], threads=1)
    assert f"synchronisations: {synchronisations} a run" in f.explain()
    for arguments in calls:
        wanted = forward(*arguments)
        got = f({p.tensor: a.numpy() for p, a in zip(f.arguments, arguments, strict=True)})
        for a, b in zip(got.values(), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            np.testing.assert_allclose(np.asarray(a), b.numpy(), rtol=1e-5, atol=1e-6)


def x(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_counts_of_what_is_not_zero() -> None:
    def forward(a: Any) -> Any:
        at = (a > 0.3).nonzero()
        kept = a[at[:, 0], at[:, 1]]
        return at, torch.cat([kept, kept.exp()]), kept.sum() * at.shape[0]

    agree(forward, (x(5, 3),), (x(5, 3, seed=1),), (torch.zeros(5, 3),), synchronisations=1)


def test_elements_under_a_mask() -> None:
    def forward(a: Any, column: Any) -> Any:
        return a[a > 0], a.masked_select(a.abs() < 0.5), a[:, column].sum(1), a[column[:2].any() | (a > 1)]

    columns = [torch.tensor(c) for c in ([True, False, True], [False, False, True], [False, False, False])]
    agree(forward, *((x(4, 3, seed=k), c) for k, c in enumerate(columns)), synchronisations=4)


def test_a_number_of_the_data_is_a_size() -> None:
    def forward(a: Any, n: Any) -> Any:
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= a.shape[0])
        return a[:k] * 2, torch.arange(k), torch.zeros(k, 2), a.sum() * k

    agree(forward, *((x(5, 3), torch.tensor(k)) for k in (2, 0, 5)), synchronisations=1)
    f = tt.compile(module(forward), (x(5, 3), torch.tensor(2)), threads=1)
    names = [p.tensor for p in f.arguments]
    for wrong in (6, -1):
        with pytest.raises(TatamiError):
            f(dict(zip(names, (x(5, 3).numpy(), np.array(wrong)), strict=True)))


def test_a_number_that_may_be_negative_is_refused() -> None:
    with pytest.raises(TatamiError, match="may be negative"):
        tt.compile(module(lambda a, n: a * n.item()), (x(3), torch.tensor(2)))
