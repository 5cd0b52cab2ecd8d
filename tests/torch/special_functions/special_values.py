"""NaN, infinities, signed zeros, the smallest and the largest numbers through every unary operator, binary operator and
reduction of PyTorch's OpInfo database: compiled code and its gradients against eager.

    python -m tests.torch.special_functions.special_values                          everything, what differs on a line each
    python -m tests.torch.special_functions.special_values --kinds binary --dtypes float16 --only fmod clamp
    python -m tests.torch.special_functions.special_values --share 3/40             every fortieth operator, as the tests do
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo

from tatami import backends

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
KINDS = ("unary", "scalar", "binary", "reduction", "bounds")
TOGETHER = 12
"""Operators of one compiled function: most of the time goes to tracing and to starting the C compiler."""
Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A function of tensors of one dtype. `exact`: it computes nothing but choices, so that zeros keep their signs."""

    name: str
    f: Function
    arguments: tuple[torch.Tensor, ...]


def numbers(dtype: torch.dtype) -> list[float]:
    """The special values of a dtype among ordinary ones."""
    i = torch.finfo(dtype)
    nan, inf = float("nan"), float("inf")
    return [
        nan,
        inf,
        -inf,
        0.0,
        -0.0,
        i.smallest_normal / 4,
        -i.smallest_normal / 4,
        i.max,
        i.min,
        1.0,
        -1.0,
        0.5,
        -2.5,
        3.0,
        i.eps,
    ]


def line(dtype: torch.dtype) -> torch.Tensor:
    """The special values, over more than one vector and a rest."""
    return torch.tensor(numbers(dtype) * 5, dtype=dtype)


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.tensor(list(itertools.product(numbers(dtype), repeat=2)), dtype=dtype)
    return both[:, 0].contiguous(), both[:, 1].contiguous()


def rows(dtype: torch.dtype) -> torch.Tensor:
    """Rows of ordinary values in which one or two are special: at the front, in the middle, at the end."""
    out = []
    values = numbers(dtype)
    for k, (a, b) in enumerate(itertools.product(values[:8], values)):
        if abs(a) == abs(b) == torch.finfo(dtype).max:
            continue  # the sum of these depends on the order of adding
        row = torch.linspace(-2.0, 3.0, 37).to(dtype)
        row[(0, 20, 36)[k % 3]] = a
        row[(5, 36, 1)[k % 3]] = b
        out.append(row)
    return torch.stack([*out, torch.full_like(out[0], float("nan")), torch.full_like(out[0], float("-inf"))])


# -- cases -----------------------------------------------------------------------------------------
def cases(kind: str, dtype: torch.dtype) -> Iterator[Case]:
    match kind:
        case "unary":
            for op in _supported(UnaryUfuncInfo, dtype):
                yield Case(_name(op), op.op, (line(dtype),))
        case "binary":
            for op in _supported(BinaryUfuncInfo, dtype):
                yield Case(_name(op), op.op, pairs(dtype))
        case "scalar":
            for op in _supported(BinaryUfuncInfo, dtype):
                yield Case(f"{_name(op)} by numbers", _by_numbers(op.op, dtype), (line(dtype),))
        case "reduction":
            for op in _supported(ReductionOpInfo, dtype):
                given = rows(dtype)
                if "prod" in op.name:  # the order of multiplying decides which product overflows
                    given = given[(given.nan_to_num(0, 0, 0).abs() < 100).all(1)]
                yield Case(_name(op), lambda x, f=op.op: (f(x), f(x, dim=1), f(x.t(), dim=0), f(x, dim=0)), (given,))
            for name, f in ORDERS.items():
                yield Case(name, f, (rows(dtype),))
        case "bounds":
            for name, f in BOUNDS.items():
                yield Case(name, f, pairs(dtype))
            for f in ACTIVATIONS:
                yield Case(f.__name__, f, (line(dtype),))


def _supported(kind: type[Any], dtype: torch.dtype) -> Iterator[Any]:
    for op in op_db:
        if isinstance(op, kind) and dtype in op.supported_dtypes("cpu") and not op.name.startswith(SKIPPED):
            yield op


CHEBYSHEV = [f"{shifted}chebyshev_polynomial_{kind}" for kind in "tuvw" for shifted in ("", "shifted_")]
POLYNOMIALS = (*CHEBYSHEV, "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p")
SKIPPED = ("_refs", "ops.", "complex", "polar", "cdouble", "cfloat", "chalf", "byte", "char", "short", "int", "long")
"""The database's own copies of operators; those that give complex numbers; and conversions to integers, which eager leaves to
the processor where a number does not fit."""
KNOWN = {
    "addcmul": "eager fuses the product and the sum, so that a product that is too large may still be taken away from",
    "lerp": "eager fuses the product and the sum",
    "digamma": "its derivative at the largest negative number, where eager's sine has no digits",
    "special.airy_ai": "at the largest number, where eager has NaN for 0",
    "prod": "where partial products are too large for 16 bits the order decides",
    "masked.prod": "the order decides",
    **{f"special.{n}": "eager's recurrences leave numbers at NaN and infinity" for n in POLYNOMIALS},
}
"""Differences from eager, with the reason why each stays."""


def _name(op: Any) -> str:
    return f"{op.name} {op.variant_test_name}".strip()


def _by_numbers(f: Function, dtype: torch.dtype) -> Function:
    """The operator with each special value as a number of Python on its right."""
    values = numbers(dtype)

    def call(x: torch.Tensor) -> list[torch.Tensor]:
        return [f(x, v) for v in values]

    return call


ORDERS: dict[str, Function] = {
    "sort": lambda x: x.sort(dim=1)[0],
    "sort stable": lambda x: x.sort(dim=1, stable=True),
    "sort descending": lambda x: x.sort(dim=1, descending=True, stable=True),
    "argsort": lambda x: x.argsort(dim=1, stable=True),
    "msort": lambda x: torch.msort(x.t()),
    "topk": lambda x: x[:-2].topk(5, dim=1)[0],
    "topk smallest": lambda x: x[:-2].topk(4, dim=1, largest=False)[0],
    "kthvalue": lambda x: x[:-2].kthvalue(3, dim=1)[0],
    "median": lambda x: (x.median(), x.median(dim=1)[0]),
    "nanmedian": lambda x: x[:-2].nanmedian(dim=1)[0],
    "max": lambda x: (x.max(), x.max(dim=1), x.max(dim=0)),
    "min": lambda x: (x.min(), x.min(dim=1), x.min(dim=0)),
    "aminmax": lambda x: torch.aminmax(x, dim=1),
    "argmax": lambda x: (x.argmax(), x.argmax(dim=1), x.argmax(dim=0)),
    "argmin": lambda x: (x.argmin(), x.argmin(dim=1), x.argmin(dim=0)),
    "cummax": lambda x: x.cummax(dim=1),
    "cummin": lambda x: x.cummin(dim=1),
    "cumsum": lambda x: x.cumsum(dim=1),
    "cumprod": lambda x: x.clamp(-100, 100).cumprod(dim=1),
    "logcumsumexp": lambda x: x.logcumsumexp(dim=1),
    "logsumexp": lambda x: x.logsumexp(dim=1),
    "softmax": lambda x: (x.softmax(dim=1), x.softmax(dim=0)),
    "log_softmax": lambda x: (x.log_softmax(dim=1), x.log_softmax(dim=0)),
    "norm": lambda x: [torch.linalg.vector_norm(x, p, dim=1) for p in (2, 1, 0, float("inf"), -float("inf"), 3)],
    "max_pool": lambda x: torch.nn.functional.max_pool1d(x, 3, 2, 1),
    "max_pool indices": lambda x: torch.nn.functional.max_pool2d(x[None, None], 3, 2, 1, return_indices=True),
    "adaptive_max_pool": lambda x: torch.nn.functional.adaptive_max_pool1d(x[None], 5),
    "avg_pool": lambda x: torch.nn.functional.avg_pool1d(x, 3, 2, 1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (37,)),
    "batch_norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    "nan_to_num": lambda x: (x.nan_to_num(), x.nan_to_num(2.0, 3.0, -3.0)),
    "unique": lambda x: x.isnan().sum(),
    "dist": lambda x: torch.dist(x[0], x[1]),
    "cdist": lambda x: torch.cdist(x[:5].float(), x[5:12].float()),
    "renorm": lambda x: x.renorm(2, 0, 1.0),
    "normalize": lambda x: torch.nn.functional.normalize(x, dim=1),
    "cosine_similarity": lambda x: torch.cosine_similarity(x, x.flip(0), dim=1),
    "scatter amax": lambda x: x[:4].scatter_reduce(0, (torch.arange(37) % 4).expand(100, 37), x[:100], "amax"),
    "scatter amin": lambda x: x[:4].scatter_reduce(0, (torch.arange(37) % 4).expand(100, 37), x[:100], "amin"),
    "histc": lambda x: x.nan_to_num().clamp(-3, 3).float().histc(8, -2, 2),
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0], dtype=x.dtype)),
}

N = torch.nn.functional
BOUNDS: dict[str, Function] = {
    "clamp": lambda x, y: (x.clamp(y, None), x.clamp(None, y), x.clamp(y, y.flip(0)), torch.clamp(x, y.flip(0), y)),
    "clamp by numbers": lambda x, y: [x.clamp(a, b) for a in (float("nan"), -1.0, None) for b in (float("nan"), 1.0)],
    "clamp by infinities": lambda x, y: (x.clamp(-float("inf"), float("inf")), x.clamp(float("inf")), x.clamp(max=-float("inf"))),
    "clamp upside down": lambda x, y: (x.clamp(2.0, -1.0), x.clamp(min=0.0), x.clamp(max=0.0), x.clamp(-0.0, 0.0)),
    "where": lambda x, y: torch.where(x > y, x, y),
    "comparisons": lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y, x.isclose(y, equal_nan=True)),
    "is": lambda x, y: (x.isnan(), x.isinf(), x.isfinite(), x.isposinf(), x.isneginf(), x.signbit(), x.bool(), ~x.bool()),
    "logical": lambda x, y: (x.logical_and(y), x.logical_or(y), x.logical_xor(y), x.logical_not()),
    "divide modes": lambda x, y: (torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc")),
    "operators": lambda x, y: (x // y, x % y, x / y, x**y, 3.0 // y, 3.0 % y, 2.0**y, x // 2.0, x % -2.0, x // float("inf"), x % float("inf")),
    "mask": lambda x, y: (x.masked_fill(y > 0, float("nan")), torch.where(y > 0, x, float("-inf"))),
    "lerp": lambda x, y: (torch.lerp(x, y, 0.25), torch.lerp(x, y, 0.75), torch.lerp(x, y, x)),
    "addcmul": lambda x, y: (torch.addcmul(x, y, x, value=0.5), torch.addcdiv(x, y, x, value=0.5)),
    "prelu": lambda x, y: (N.prelu(x, x[9:10]), N.glu(x[:224]), N.threshold(x, 0.5, 2.0)),
    "losses": lambda x, y: (N.smooth_l1_loss(x, y, reduction="none"), N.huber_loss(x, y, reduction="none"), N.l1_loss(x, y, reduction="none"), N.mse_loss(x, y, reduction="none")),
    "more losses": lambda x, y: (N.binary_cross_entropy_with_logits(x, y, reduction="none"), N.kl_div(x, y, reduction="none"), N.soft_margin_loss(x, y, reduction="none")),
    "round": lambda x, y: (x.round(), x.round(decimals=2), x.floor(), x.ceil(), x.trunc(), x.frac(), x.sign(), x.sgn()),
    "casts": lambda x, y: (x.to(torch.float32), x.to(torch.float16), x.to(torch.bfloat16), x.to(torch.float64), x.to(torch.bool)),
    "amax of pairs": lambda x, y: torch.stack([x, y]).amax(0) + torch.stack([x, y]).amin(0),
    "min and max": lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), torch.fmin(x, y), torch.max(x, y)),
    "max with a number": lambda x, y: (torch.maximum(x, torch.tensor(float("nan"))), torch.fmax(x, torch.tensor(float("nan"), dtype=x.dtype)), torch.minimum(x, torch.tensor(0.0, dtype=x.dtype))),
}  # fmt: skip
ACTIVATIONS: tuple[Function, ...] = (
    N.relu, N.relu6, N.leaky_relu, N.hardtanh, N.elu, N.hardswish, N.hardsigmoid, N.hardshrink, N.softshrink, N.selu, N.celu, N.silu,
    N.gelu, N.mish, N.softplus, N.logsigmoid, N.tanhshrink, N.softsign,
)  # fmt: skip


# -- comparison ------------------------------------------------------------------------------------
def flat(value: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def gradients(f: Function, given: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Results, and the gradients of the sum of those that have any."""
    results = flat(f(*given))
    followed = [r for r in results if r.requires_grad]
    if followed:
        torch.autograd.backward(followed, [torch.ones_like(r) for r in followed])
    return [r.detach() for r in results], [a.grad for a in given]


def eager(case: Case) -> list[tuple[list[torch.Tensor], list[torch.Tensor | None]]]:
    """Eager's results for contiguous arguments, which it computes in vectors, and for strided ones, which it does
    not: the two differ for NaN and for overflow between operators (gelu, hardtanh's gradient, fmod), and either is as eager."""
    whole = [a.clone().requires_grad_() for a in case.arguments]
    apart = [torch.stack([a, a], -1)[..., 0].detach().requires_grad_() for a in case.arguments]
    return [gradients(case.f, whole), gradients(case.f, apart)]


def differs(got: torch.Tensor | None, either: Sequence[torch.Tensor | None]) -> str | None:
    """Elements of a result that equal neither of two."""
    wanted = either[0]
    if got is None or wanted is None:
        return None if got is wanted else f"{'no' if got is None else 'a'} gradient"
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return f"{got.dtype}{list(got.shape)}, eager {wanted.dtype}{list(wanted.shape)}"
    bad = torch.stack([~_agrees(got, w) for w in either if w is not None]).all(0)
    if not bool(bad.any()):
        return None
    at = tuple(bad.nonzero()[0].tolist())
    return f"{int(bad.sum())} of {bad.numel()}, first at {at}: {got[at].item()}, eager {wanted[at].item()}"


def _agrees(got: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    if not wanted.is_floating_point():
        return got == wanted
    info = torch.finfo(wanted.dtype)
    a, b = got.double(), wanted.double()
    near = (a - b).abs() <= 8 * info.eps * b.abs() + max(info.smallest_normal, 4 * info.eps if info.bits == 16 else 1e-6)
    return near | (a == b) | (a.isnan() & b.isnan())


def check(group: Sequence[Case]) -> Iterator[tuple[str, str]]:
    """(name, what differs) of each case that does; compiled together, and each alone where that fails."""
    wanted: list[Any] = []
    for case in group:
        try:
            wanted.append(eager(case))
        except Exception:  # eager has no such operator, or no such gradient, for this dtype
            wanted.append(None)
    kept = [(c, w) for c, w in zip(group, wanted) if w is not None]
    if not kept:
        return
    torch._dynamo.reset()
    backends.reset()

    def together(*arguments: torch.Tensor) -> list[Any]:
        left = list(arguments)
        return [c.f(*[left.pop(0) for _ in c.arguments]) for c, _ in kept]

    compiled = torch.compile(together, backend=backends.torch_backend, dynamic=False)
    given = [a.clone().requires_grad_() for c, _ in kept for a in c.arguments]
    try:
        results = compiled(*given)
        followed = [r for r in flat(results) if r.requires_grad]
        if followed:
            torch.autograd.backward(followed, [torch.ones_like(r) for r in followed])
    except Exception as error:
        if len(kept) == 1:
            yield kept[0][0].name, f"{type(error).__name__}: {str(error)[:200]}"
        else:
            for case, _ in kept:
                yield from check([case])
        return
    for (case, references), made in zip(kept, results):
        mine = [r.detach() for r in flat(made)]
        own = [given.pop(0).grad for _ in case.arguments]
        values, grads = (list(zip(*(r[k] for r in references))) for k in (0, 1))
        whys = [f"result {k}: {w}" for k, (a, b) in enumerate(zip(mine, values)) if (w := differs(a, b))]
        whys = whys or [f"gradient {k}: {w}" for k, (a, b) in enumerate(zip(own, grads)) if (w := differs(a, b))]
        if whys:
            yield case.name, whys[0]


def check_all(
    kinds: Sequence[str], dtypes: Sequence[torch.dtype], only: Sequence[str], share: tuple[int, int]
) -> Iterator[str]:
    for kind, dtype in itertools.product(kinds, dtypes):
        chosen = [c for c in cases(kind, dtype) if not only or c.name.startswith(tuple(only))]
        chosen = chosen[share[0] :: share[1]]
        for first in range(0, len(chosen), TOGETHER):
            for name, why in check(chosen[first : first + TOGETHER]):
                if name.removesuffix(" by numbers") in KNOWN:
                    continue
                yield f"{kind} {str(dtype).removeprefix('torch.')} {name}: {why}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--dtypes", nargs="*", default=[str(d).removeprefix("torch.") for d in DTYPES])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--share", default="0/1")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    part, of = map(int, given.share.split("/"))
    count = 0
    for text in check_all(given.kinds, [getattr(torch, d) for d in given.dtypes], given.only, (part, of)):
        print(text, flush=True)
        count += 1
    print(f"{count} differences")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
