"""Orthogonal factors of matrices through torch.compile: against eager where they are unique, else by what they have to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tatami as tt

pytest.importorskip("torch")

import torch

from tatami import backends
from tests.torch.test_torch_compile import assert_as_eager, compiled

L = torch.linalg


def matrices(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def deficient(rows: int, columns: int, rank: int) -> Any:
    return matrices(2, rows, rank) @ matrices(2, rank, columns)


Case = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]
UNIQUE: dict[str, Case] = {
    "qr of tall ones": (lambda a: tuple(L.qr(a)), lambda: (matrices(2, 5, 3),)),
    "qr of wide ones": (lambda a: tuple(L.qr(a)), lambda: (matrices(3, 5),)),
    "complete qr": (lambda a: tuple(L.qr(a, mode="complete")), lambda: (matrices(5, 3),)),
    "reflections": (lambda a: tuple(torch.geqrf(a)), lambda: (matrices(2, 5, 3),)),
    "product of reflections": (lambda a: L.householder_product(*torch.geqrf(a)), lambda: (matrices(2, 5, 3),)),
    "its product from the right": (
        lambda a, b: torch.ormqr(*torch.geqrf(a), b, left=False, transpose=True), lambda: (matrices(5, 3), matrices(4, 5)),
    ),
    "singular values": (L.svdvals, lambda: (matrices(2, 5, 4),)),
    "the largest one": (lambda a: (L.matrix_norm(a, 2), L.matrix_norm(a, "nuc"), L.cond(a)), lambda: (matrices(4, 4),)),
    "rank": (L.matrix_rank, lambda: (deficient(6, 5, 3),)),
    "eigenvalues of an upper triangle": (lambda a: L.eigvalsh(a, UPLO="U"), lambda: (matrices(2, 5, 5),)),
    "pseudo-inverse": (L.pinv, lambda: (matrices(2, 5, 3),)),
    "pseudo-inverse of low rank": (lambda a: L.pinv(a, rtol=1e-4), lambda: (deficient(5, 4, 2),)),
    "with a tolerance": (lambda a: L.pinv(a, atol=1.0), lambda: (matrices(2, 5, 3),)),
    "of symmetric ones": (lambda a: L.pinv(a + a.mT, hermitian=True), lambda: (matrices(4, 4),)),
    "no rows": (lambda a: (*L.qr(a), L.svdvals(a), *L.svd(a)), lambda: (torch.zeros(2, 0, 3),)),
    "one element": (lambda a: (*L.eigh(a), L.svdvals(a)), lambda: (torch.full((1, 1), -3.0),)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNIQUE)
def test_it_agrees_with_eager(name: str) -> None:
    assert_as_eager(*UNIQUE[name])


@pytest.mark.parametrize("size", [1.0, 1e200, 1e-200])
def test_signs_and_sizes_of_qr_are_those_of_eager_where_columns_begin_with_zeros(size: float) -> None:
    a = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 5.0], [4.0, 3.0, 1.0]], dtype=torch.float64) * size
    got, wanted = compiled(lambda a: tuple(L.qr(a)), target="reference")(a), tuple(L.qr(a))
    torch.testing.assert_close(got[0], wanted[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got[1] / size, wanted[1] / size, rtol=1e-12, atol=1e-12)


def orthogonal(q: Any) -> bool:
    return torch.allclose(q.mT @ q, torch.eye(q.shape[-1], dtype=q.dtype).expand(q.mT.shape[:-1] + q.shape[-1:]), atol=1e-5)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("whole", [False, True])
def test_singular_vectors_make_the_matrix_and_are_orthogonal(target: str, whole: bool) -> None:
    f = compiled(lambda *all_: [tuple(L.svd(a, full_matrices=whole)) for a in all_], target=target)
    given = [matrices(2, 5, 3), matrices(3, 5), deficient(5, 4, 2), torch.zeros(3, 2), torch.eye(4)]
    for a, (u, s, vh) in zip(given, f(*given), strict=True):
        k = s.shape[-1]
        torch.testing.assert_close(u[..., :k] * s.unsqueeze(-2) @ vh[..., :k, :], a, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(s, L.svdvals(a), rtol=1e-4, atol=1e-5)
        assert orthogonal(u) and orthogonal(vh.mT)
        assert [t.shape for t in (u, s, vh)] == [t.shape for t in L.svd(a, full_matrices=whole)]


@pytest.mark.parametrize("n", [2, 5, 8])
def test_eigenvectors_are_orthogonal_and_belong_to_their_values(n: int) -> None:
    a = matrices(3, n, n)
    a[1] = torch.eye(n)  # one value n times
    values, v = compiled(lambda a: tuple(L.eigh(a)), target="reference")(a)
    lower = a.tril() + a.tril(-1).mT
    torch.testing.assert_close(lower @ v, v * values.unsqueeze(-2), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(values, L.eigvalsh(a), rtol=1e-4, atol=1e-5)
    assert orthogonal(v)


def test_a_matrix_that_is_not_finite_raises_as_in_eager() -> None:
    bad = torch.full((3, 3), float("nan"))
    for f in (L.svdvals, L.eigvalsh, L.pinv):
        with pytest.raises(L.LinAlgError):
            f(bad)
        with pytest.raises(L.LinAlgError):
            compiled(f, target="reference")(bad)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export of torch 2.13 warns of itself
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_matrix_that_is_not_finite_gives_nan_where_nothing_raises(value: float) -> None:
    """A matrix that is not finite gives nan next to a finite one, whose result is unaffected."""
    bad = torch.eye(3).repeat(2, 1, 1)
    bad[1, 2, 0], bad[0, 0, 2] = value, value  # the upper triangle of the first is not read
    got = compiled(lambda a: L.pinv(a, hermitian=True), target="reference")(bad)
    torch.testing.assert_close(got[0], torch.eye(3))
    assert got[1].isnan().all()
    bad[0, 0, 2] = 0.0
    exported = torch.export.export(Factors(), (bad,))
    for made in tt.compile(exported, target="reference")(bad.numpy()).values():
        assert np.isfinite(made[0]).all() and np.isnan(made[1]).all()


class Factors(torch.nn.Module):
    def forward(self, a: Any) -> Any:
        return (*L.svd(a), L.svdvals(a), *L.eigh(a), L.pinv(a))


def test_the_gradient_of_singular_values_is_that_of_eager() -> None:
    grads = []
    for f in (L.svdvals, compiled(L.svdvals, target="reference")):
        a = matrices(4, 3).requires_grad_()
        f(a).square().sum().backward()
        grads.append(a.grad)
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)


def test_pytorch_runs_larger_matrices_where_it_may() -> None:
    a = matrices(12, 12)

    def f(a: Any) -> Any:
        return L.svdvals(a * 2).sum() + L.svdvals(a[:8, :8] * 2).sum()

    torch.testing.assert_close(compiled(f, target="reference")(a), f(a))
    assert not backends.torch_reports()[-1].unsupported
    torch._dynamo.reset()
    torch.testing.assert_close(compiled(f, target="reference", fallback=True)(a), f(a))
    (left,) = backends.torch_reports()[-1].unsupported
    assert left.operator == "aten._linalg_svd.default" and "quicker" in left.why
