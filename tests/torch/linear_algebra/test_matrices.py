"""Linear equations, inverses, determinants and factors through torch.compile against eager; what is singular raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tatami import backends  # noqa: E402
from tests.torch.test_torch_compile import assert_as_eager, compiled  # noqa: E402

L = torch.linalg


def square(*batch: int, n: int = 4) -> Any:
    return torch.randn(*batch, n, n, generator=torch.Generator().manual_seed(n)) + 2 * torch.eye(n)


def positive(*batch: int) -> Any:
    a = square(*batch)
    return a @ a.mT + torch.eye(4)


def right_side(*batch: int) -> Any:
    return torch.randn(*batch, 4, 3, generator=torch.Generator().manual_seed(9))


Case = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]
CASES: dict[str, Case] = {
    "factors": (lambda a: tuple(L.lu_factor_ex(a)), lambda: (square(2),)),
    "factors of a wide matrix": (lambda a: tuple(L.lu_factor_ex(a)), lambda: (square(n=6)[:4],)),
    "parts of a tall matrix": (lambda a: tuple(L.lu(a)), lambda: (square(2, n=6)[..., :4],)),
    "unpacked": (lambda a: torch.lu_unpack(*L.lu_factor_ex(a)[:2]), lambda: (square(2),)),
    "determinant": (lambda a: (L.det(a), *L.slogdet(a)), lambda: (square(3),)),
    "inverse": (L.inv, lambda: (square(2),)),
    "no rows": (lambda a: (*L.inv_ex(a), L.det(a)), lambda: (torch.zeros(2, 0, 0),)),
    "equations": (L.solve, lambda: (square(2), right_side(2))),
    "one right side": (L.solve, lambda: (square(), right_side()[:, 0])),
    "from the right": (lambda a, b: L.solve(a, b.mT, left=False), lambda: (square(2), right_side(2))),
    "by factors": (lambda a, b: L.lu_solve(*L.lu_factor_ex(a)[:2], b, adjoint=True), lambda: (square(2), right_side(2))),
    "upper triangle": (lambda a, b: L.solve_triangular(a, b, upper=True), lambda: (square(2), right_side())),
    "unit triangle from the right": (
        lambda a, b: L.solve_triangular(a.tril(), b.mT, upper=False, left=False, unitriangular=True),
        lambda: (square(2), right_side(2)),
    ),
    "cholesky": (lambda a: (L.cholesky(a), L.cholesky(a, upper=True)), lambda: (positive(2),)),
    "of cholesky": (lambda a, b: (torch.cholesky_solve(b, a), torch.cholesky_inverse(a)), lambda: (L.cholesky(positive()), right_side())),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_agrees_with_eager(name: str) -> None:
    assert_as_eager(*CASES[name])


def test_kernels_eliminate_for_every_batch_with_one_graph() -> None:
    run = compiled(L.det)
    for k, batch in enumerate((5, 3, 4)):
        a = square(batch)
        if k == 0:
            torch._dynamo.mark_dynamic(a, 0)
        torch.testing.assert_close(run(a), L.det(a), rtol=1e-4, atol=1e-5)
    (report,) = backends.torch_reports()
    assert report.programs == 1 and not report.unsupported


SINGULAR: dict[str, Case] = {
    "inverse": (L.inv, lambda: (torch.stack([torch.eye(3), torch.zeros(3, 3)]),)),
    "equations": (L.solve, lambda: (torch.ones(3, 3), torch.ones(3))),
    "cholesky": (L.cholesky, lambda: (-torch.eye(3),)),
    "the older cholesky": (torch.cholesky, lambda: (-torch.eye(3),)),
    "inverse that is asked to check": (lambda a: tuple(L.inv_ex(a, check_errors=True)), lambda: (torch.zeros(3, 3),)),
    "equations that are asked to check": (
        lambda a: tuple(L.solve_ex(a, a, check_errors=True)),
        lambda: (torch.zeros(2, 3, 3),),
    ),
    "cholesky that is asked to check": (lambda a: tuple(L.cholesky_ex(a, check_errors=True)), lambda: (-torch.eye(3),)),
}


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
@pytest.mark.parametrize("name", SINGULAR)
def test_what_has_no_solution_raises_what_eager_raises(name: str) -> None:
    f, given = SINGULAR[name]
    with pytest.raises(L.LinAlgError) as eager:
        f(*given())
    with pytest.raises(L.LinAlgError) as ours:
        compiled(f, target="reference")(*given())
    assert str(ours.value).splitlines()[0] == str(eager.value).splitlines()[0]


@pytest.mark.parametrize("f", [L.inv, L.det, lambda a: L.solve(a, a.sum(0)), L.cholesky])
def test_gradients_agree_with_eager(f: Callable[[Any], Any]) -> None:
    a = positive().double().requires_grad_()
    run = torch.compile(f, backend=backends.torch_backend, options={"target": "reference"})
    error = torch.ones_like(f(a))
    (got,) = torch.autograd.grad(run(a), a, error)
    (wanted,) = torch.autograd.grad(f(a), a, error)
    torch.testing.assert_close(got, wanted)


def test_the_product_in_a_multiply_add_is_not_rounded() -> None:
    x = torch.tensor([1 + 2.0**-12, 3.0])
    run = compiled(lambda x: torch.ops.prims.fma(x, x, -x * x), target="reference")
    assert run(x).tolist() == [2.0**-24, 0.0]
