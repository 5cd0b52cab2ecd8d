"""A tensor of a graph under construction: Python's operators, numpy's slicing, and a method per operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tatami.core.bounds import is_at_most
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, IntoExpr, Shape, exact_div, expr, floordiv, maximum, minimum, product
from tatami.frontend.node_view import INDEXED, LINEAR

if TYPE_CHECKING:
    from tatami.frontend.graph import Graph

Operand: TypeAlias = "Tensor | bool | int | float"
Index: TypeAlias = "int | slice | ellipsis | None"  # noqa: F821


class Tensor:
    """A value of `graph` by name. Arithmetic adds nodes; operands need one shape, or rank 0 (D2.1)."""

    __slots__ = ("graph", "name")
    __hash__ = object.__hash__

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.name = name

    @property
    def dtype(self) -> DType:
        return self.graph._tensors[self.name].dtype

    @property
    def shape(self) -> Shape:
        return self.graph._tensors[self.name].shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self.dtype}[{', '.join(map(str, self.shape))}])"

    def op(self, name: str, *others: Operand | None, **attrs: Any) -> Any:
        """Any operation of the table with this tensor first."""
        return self.graph.op(name, self, *others, **attrs)

    def one(self, name: str, *others: Operand | None, **attrs: Any) -> Tensor:
        """The same for an operation with one result."""
        return self.graph.one(name, self, *others, **attrs)

    # -- operators ---------------------------------------------------------------------------------
    def __add__(self, other: Operand) -> Tensor:
        return self.one("add", other)

    def __radd__(self, other: Operand) -> Tensor:
        return self.graph.one("add", other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return self.one("sub", other)

    def __rsub__(self, other: Operand) -> Tensor:
        return self.graph.one("sub", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return self.one("mul", other)

    def __rmul__(self, other: Operand) -> Tensor:
        return self.graph.one("mul", other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return self.one("div", other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return self.graph.one("div", other, self)

    def __mod__(self, other: Operand) -> Tensor:
        return self.one("mod", other)

    def __pow__(self, other: Operand) -> Tensor:
        return self.one("powi", n=other) if isinstance(other, int) else self.one("pow", other)

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.one("matmul", other)

    def __neg__(self) -> Tensor:
        return self.one("neg")

    def __abs__(self) -> Tensor:
        return self.one("abs")

    def __lt__(self, other: Operand) -> Tensor:
        return self.one("lt", other)

    def __le__(self, other: Operand) -> Tensor:
        return self.one("le", other)

    def __gt__(self, other: Operand) -> Tensor:
        return self.one("gt", other)

    def __ge__(self, other: Operand) -> Tensor:
        return self.one("ge", other)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return self.one("eq", other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return self.one("ne", other)  # type: ignore[arg-type]

    def __invert__(self) -> Tensor:
        return self.one("not" if self.dtype == DType.bool else "bitnot")

    def __and__(self, other: Operand) -> Tensor:
        return self.one("and" if self.dtype == DType.bool else "bitand", other)

    def __or__(self, other: Operand) -> Tensor:
        return self.one("or" if self.dtype == DType.bool else "bitor", other)

    def __xor__(self, other: Operand) -> Tensor:
        return self.one("xor" if self.dtype == DType.bool else "bitxor", other)

    def __lshift__(self, other: Operand) -> Tensor:
        return self.one("shl", other)

    def __rshift__(self, other: Operand) -> Tensor:
        return self.one("shr", other)

    def __bool__(self) -> bool:
        raise TypeError("a graph tensor has no value yet; use g.where or g.cond")

    def __iter__(self) -> Iterator[Tensor]:
        """The slices along the first axis, when its size is a number."""
        count = self.shape[0].as_int() if self.shape else None
        if count is None:
            raise TypeError("a tensor whose first size is no number cannot be taken apart; use g.loop")
        return (self[i] for i in range(count))

    # -- numpy slicing -----------------------------------------------------------------------------
    def __getitem__(self, key: Index | tuple[Index, ...]) -> Tensor:
        """Integers, slices (also with negative steps), `...` and None, as in numpy."""
        keys = list(key) if isinstance(key, tuple) else [key]
        used = sum(k is not None and k is not Ellipsis for k in keys)
        if used > self.rank:
            raise fail("AxisOutOfRange", self.name, f"{used} indices for {self!r}", "index at most every axis once")
        if Ellipsis not in [k for k in keys if not isinstance(k, Tensor)]:
            keys.append(Ellipsis)
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys[at : at + 1] = [slice(None)] * (self.rank - used)
        starts: list[Expr] = []
        stops: list[Expr] = []
        steps: list[int] = []
        flipped: list[int] = []
        shape: list[bool] = []  # per result axis: True new axis of size 1, False next kept axis
        kept: list[bool] = []
        for k in keys:
            if k is None:
                shape.append(True)
                continue
            size = self.shape[len(starts)]
            if isinstance(k, slice):
                lo, hi, step, reverse = _slice_bounds(k, size)
                if reverse:
                    flipped.append(len(starts))
                shape.append(False)
                kept.append(True)
            else:
                assert not isinstance(k, type(Ellipsis))
                lo = expr(k) + (size if isinstance(k, int) and k < 0 else ZERO)
                hi, step = lo + 1, 1
                kept.append(False)
            starts.append(lo)
            stops.append(hi)
            steps.append(step)
        out = self.flip(*flipped) if flipped else self
        if any(s != ZERO for s in starts) or tuple(stops) != self.shape or any(s != 1 for s in steps):
            out = out.one("slice", starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
        sizes = iter([s for s, keep in zip(out.shape, kept, strict=True) if keep])
        wanted = tuple(ONE if new else next(sizes) for new in shape)
        return out if wanted == out.shape else out.one("reshape", shape=wanted)

    # -- movement ----------------------------------------------------------------------------------
    def reshape(self, *shape: IntoExpr | Sequence[IntoExpr]) -> Tensor:
        """One size may be -1: what the others leave."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        to = [expr(s) for s in sizes]  # type: ignore[arg-type]
        unknown = sum(s.as_int() == -1 for s in to)
        if unknown > 1:
            raise fail("AxisSizeMismatch", f"reshape of {self.name}", "two sizes are -1", "leave one size open at most")
        if unknown:
            at = next(i for i, s in enumerate(to) if s.as_int() == -1)
            total, rest = product(self.shape), product(to[:at] + to[at + 1 :])
            exact = exact_div(total, rest) if rest != ZERO else ZERO
            to[at] = exact if exact is not None else floordiv(total, rest)
        return self._laid_out().one("reshape", shape=tuple(to))

    def _laid_out(self) -> Tensor:
        """This tensor, through `contiguous` where it is read by index expressions (spec 1 "Auto-contiguous"). Only what
        the graph says: no kernel copies for it."""
        name = self.name
        while name in self.graph._producer:
            node = self.graph._nodes[self.graph._producer[name]]
            if node.op in INDEXED:
                return self.one("contiguous")
            if node.op not in LINEAR:
                break
            name = node.inputs[0]
        return self

    def permute(self, *perm: int) -> Tensor:
        return self.one("permute", perm=_flat(perm))

    def transpose(self, a: int = -2, b: int = -1) -> Tensor:
        """Swap two axes."""
        perm = list(range(self.rank))
        perm[a], perm[b] = perm[b], perm[a]
        return self.one("permute", perm=tuple(perm))

    def expand(self, *shape: IntoExpr, dims: Sequence[int] | None = None) -> Tensor:
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        to = tuple(expr(s) for s in sizes)
        return self.one("expand", shape=to, dims=None if dims is None else tuple(dims))

    def unsqueeze(self, *axes: int) -> Tensor:
        return self.one("unsqueeze", axes=_flat(axes))

    def squeeze(self, *axes: int) -> Tensor:
        return self.one("squeeze", axes=_flat(axes))

    def flatten(self, start: int = 0, end: int = -1) -> Tensor:
        return self.one("flatten", start=start, end=end)

    def flip(self, *axes: int) -> Tensor:
        return self.one("flip", axes=_flat(axes))

    def repeat(self, axis: int, times: IntoExpr) -> Tensor:
        return self.one("repeat", axis=axis, times=expr(times))

    def tile(self, *repeats: IntoExpr) -> Tensor:
        return self.one("tile", repeats=tuple(expr(r) for r in repeats))

    def pad(self, pads: Sequence[tuple[IntoExpr, IntoExpr]], value: float = 0, mode: str = "constant") -> Tensor:
        from tatami.core.scalar import scalar

        try:
            sizes = tuple((expr(a), expr(b)) for a, b in pads)
        except (TypeError, ValueError) as error:
            raise fail("InvalidAttribute", f"pad of {self.name}", str(error), "give (before, after) for every axis") from None
        return self.one("pad", pads=sizes, value=scalar(value), mode=mode)

    def roll(self, shift: int, axis: int) -> Tensor:
        return self.one("roll", shifts=(shift,), axes=(axis,))

    def unfold(
        self, kernel: Sequence[int], stride: Sequence[int] = (), dilation: Sequence[int] = (), groups: int = 1
    ) -> Tensor:
        return self._laid_out().one(
            "unfold", kernel=tuple(kernel), stride=tuple(stride), dilation=tuple(dilation), groups=groups
        )

    def fold(
        self,
        size: Sequence[IntoExpr],
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        dilation: Sequence[int] = (),
        groups: int = 1,
    ) -> Tensor:
        to = tuple(expr(s) for s in size)
        return self.one("fold", size=to, kernel=tuple(kernel), stride=tuple(stride), dilation=tuple(dilation), groups=groups)

    def split(self, sizes: Sequence[IntoExpr], axis: int = 0) -> tuple[Tensor, ...]:
        out = self.op("split", axis=axis, sizes=tuple(expr(s) for s in sizes))
        return out if isinstance(out, tuple) else (out,)

    def view(self, shape: Sequence[IntoExpr], map: Sequence[IntoExpr] | None = None, linear: IntoExpr | None = None) -> Tensor:
        """Read coordinates `map` (per operand axis) or row-major element `linear`, over i0, i1, …"""
        return self.one(
            "view",
            shape=tuple(expr(s) for s in shape),
            map=None if map is None else tuple(expr(m) for m in map),
            linear=None if linear is None else expr(linear),
        )

    def gather(self, axis: int, index: Tensor) -> Tensor:
        return self.one("gather", index, axis=axis)

    def take(self, index: Tensor, axis: int = 0) -> Tensor:
        return self.one("take", index, axis=axis)

    def scatter(self, axis: int, index: Tensor, updates: Tensor, op: str = "set") -> Tensor:
        return self.one("scatter", index, updates, axis=axis, op=op)

    # -- elementwise -------------------------------------------------------------------------------
    def cast(self, to: DType) -> Tensor:
        return self if self.dtype == to else self.one("cast", to=to)

    def exp(self) -> Tensor:
        return self.one("exp")

    def exp2(self) -> Tensor:
        return self.one("exp2")

    def log(self) -> Tensor:
        return self.one("log")

    def log2(self) -> Tensor:
        return self.one("log2")

    def sqrt(self) -> Tensor:
        return self.one("sqrt")

    def rsqrt(self) -> Tensor:
        return self.one("rsqrt")

    def recip(self) -> Tensor:
        return self.one("recip")

    def sin(self) -> Tensor:
        return self.one("sin")

    def cos(self) -> Tensor:
        return self.one("cos")

    def tanh(self) -> Tensor:
        return self.one("tanh")

    def erf(self) -> Tensor:
        return self.one("erf")

    def abs(self) -> Tensor:
        return self.one("abs")

    def floor(self) -> Tensor:
        return self.one("floor")

    def ceil(self) -> Tensor:
        return self.one("ceil")

    def round(self) -> Tensor:
        return self.one("round")

    def square(self) -> Tensor:
        return self.one("square")

    def relu(self) -> Tensor:
        return self.one("relu")

    def sigmoid(self) -> Tensor:
        return self.one("sigmoid")

    def silu(self) -> Tensor:
        return self.one("silu")

    def gelu(self, approximate: str = "none") -> Tensor:
        return self.one("gelu", approximate=approximate)

    def softplus(self) -> Tensor:
        return self.one("softplus")

    def leaky_relu(self, alpha: float = 0.01) -> Tensor:
        return self.one("leaky_relu", alpha=alpha)

    def elu(self, alpha: float = 1.0) -> Tensor:
        return self.one("elu", alpha=alpha)

    def clamp(self, lo: float | None = None, hi: float | None = None) -> Tensor:
        return self.one("clamp", lo=lo, hi=hi)

    def maximum(self, other: Operand) -> Tensor:
        return self.one("max", other)

    def minimum(self, other: Operand) -> Tensor:
        return self.one("min", other)

    # -- reduce ------------------------------------------------------------------------------------
    def _reduce(self, name: str, axis: int | Sequence[int] | None, keepdims: bool) -> Tensor:
        axes = None if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        return self.one(name, axes=axes, keepdims=keepdims)

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_sum", axis, keepdims)

    def prod(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_prod", axis, keepdims)

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_max", axis, keepdims)

    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_min", axis, keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_mean", axis, keepdims)

    def variance(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("variance", axis, keepdims)

    def all(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_and", axis, keepdims)

    def any(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("reduce_or", axis, keepdims)

    def argmax(self, axis: int = -1, keepdims: bool = False) -> Tensor:
        return self.one("argmax", axis=axis, keepdims=keepdims)

    def argmin(self, axis: int = -1, keepdims: bool = False) -> Tensor:
        return self.one("argmin", axis=axis, keepdims=keepdims)

    def cumsum(self, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
        return self.one("cumsum", axis=axis, exclusive=exclusive, reverse=reverse)

    def cumprod(self, axis: int = 0) -> Tensor:
        return self.one("cumprod", axis=axis)

    # -- the field's compound operations -----------------------------------------------------------
    def softmax(self, axis: int = -1) -> Tensor:
        return self.one("softmax", axis=axis)

    def log_softmax(self, axis: int = -1) -> Tensor:
        return self.one("log_softmax", axis=axis)

    def layer_norm(
        self, scale: Tensor | None = None, bias: Tensor | None = None, *, axis: int = -1, eps: float = 1e-5
    ) -> Tensor:
        return self.one("layer_norm", scale, bias, axis=axis, eps=eps)

    def rms_norm(self, scale: Tensor | None = None, *, axis: int = -1, eps: float = 1e-5) -> Tensor:
        return self.one("rms_norm", scale, axis=axis, eps=eps)

    def batch_norm(
        self, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *, eps: float = 1e-5, axis: int = 1
    ) -> Tensor:
        return self.one("batch_norm", scale, bias, mean, variance, eps=eps, axis=axis)

    def gemm(self, b: Tensor, c: Tensor | None = None, **attrs: Any) -> Tensor:
        return self.one("gemm", b, c, **attrs)

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return self.one("linear", weight, bias)

    def conv(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int | tuple[IntoExpr, IntoExpr]] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        acc_dtype: DType | None = None,
    ) -> Tensor:
        """padding: a number, one number per spatial axis, or (before, after) pairs."""
        n = weight.rank - 2
        return self.one(
            "conv",
            weight,
            bias,
            stride=_each(stride, n),
            padding=_pads(padding, n),
            dilation=_each(dilation, n),
            groups=groups,
            acc_dtype=acc_dtype,
        )

    def conv_transpose(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int | tuple[IntoExpr, IntoExpr]] = 0,
        output_padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> Tensor:
        n = weight.rank - 2
        return self.one(
            "conv_transpose",
            weight,
            bias,
            stride=_each(stride, n),
            padding=_pads(padding, n),
            output_padding=_each(output_padding, n),
            dilation=_each(dilation, n),
            groups=groups,
        )

    def max_pool(
        self, kernel: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: Any = 0, **attrs: Any
    ) -> Tensor:
        """Stride defaults to the kernel; a number means both spatial axes."""
        return self._pool("max_pool", kernel, stride, padding, attrs)

    def avg_pool(
        self, kernel: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: Any = 0, **attrs: Any
    ) -> Tensor:
        return self._pool("avg_pool", kernel, stride, padding, attrs)

    def _pool(self, name: str, kernel: int | Sequence[int], stride: Any, padding: Any, attrs: dict[str, Any]) -> Tensor:
        sizes = _each(kernel, self.rank - 2) if isinstance(kernel, int) else tuple(kernel)
        n = len(sizes)
        return self.one(
            name, kernel=sizes, stride=sizes if stride is None else _each(stride, n), padding=_pads(padding, n), **attrs
        )

    def attention(self, key: Tensor, value: Tensor, mask: Tensor | None = None, **attrs: Any) -> Tensor:
        return self.one("attention", key, value, mask, **attrs)


def _flat(axes: Sequence[Any]) -> tuple[int, ...]:
    return tuple(axes[0]) if len(axes) == 1 and isinstance(axes[0], list | tuple) else tuple(axes)


def _each(value: int | Sequence[int], n: int) -> tuple[int, ...]:
    return (value,) * n if isinstance(value, int) else tuple(value)


def _pads(padding: Any, n: int) -> tuple[tuple[Expr, Expr], ...]:
    sides = (padding,) * n if isinstance(padding, int | str | Expr) else tuple(padding)
    return tuple((expr(p[0]), expr(p[1])) if isinstance(p, list | tuple) else (expr(p), expr(p)) for p in sides)


def _slice_bounds(k: slice, size: Expr) -> tuple[Expr, Expr, int, bool]:
    """(lo, hi, step, reversed first) with 0 <= lo <= hi <= size and step > 0, numpy's meaning."""
    step = 1 if k.step is None else k.step
    if not isinstance(step, int) or step == 0:
        raise fail("InvalidAttribute", "slice", f"step {step!r}", "give a step that is a number and not 0")
    reverse = step < 0
    if not reverse:
        lo = ZERO if k.start is None else _bound(k.start, size)
        hi = size if k.stop is None else _bound(k.stop, size)
    else:
        # Element j is element size-1-j of the flipped axis.
        lo = ZERO if k.start is None else size - 1 - _bound(k.start, size, low=-1, high=-1)
        hi = size if k.stop is None else size - 1 - _bound(k.stop, size, low=-1, high=-1)
    if not is_at_most(lo, hi):
        hi = lo if is_at_most(hi, lo) else maximum(lo, hi)
    return lo, hi, abs(step), reverse


def _bound(value: IntoExpr, size: Expr, low: int = 0, high: int = 0) -> Expr:
    """A start or stop clamped into low..size+high; sizes count as 1 or more where that decides."""
    at = expr(value)
    number = at.as_int()
    if number is not None and number < 0:
        at = at + size
    if not is_at_most(expr(low), at):
        at = expr(low) if is_at_most(at, expr(low)) else maximum(at, low)
    if not is_at_most(at, size + high):
        at = size + high if is_at_most(size + high, at) else minimum(at, size + high)
    return at
