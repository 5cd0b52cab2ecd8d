"""A tensor of a graph under construction: Python's operators, numpy's slicing, and a method per operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, IntoExpr, Shape, exact_div, expr, floordiv, product
from tatami.frontend.graph_api.arguments import Axes, constant, each, flat, integer, integers, several, size, sizes
from tatami.frontend.graph_api.arguments import pads as pairs
from tatami.frontend.graph_api.arguments import shape as shape_of
from tatami.frontend.graph_api.collectives import Collectives
from tatami.frontend.graph_api.elementwise import Elementwise
from tatami.frontend.graph_api.indexing import Indexing
from tatami.frontend.graph_api.layers import Layers
from tatami.frontend.graph_api.reductions import Reductions
from tatami.frontend.graph_api.slices import place_on_axis, slice_bounds
from tatami.frontend.graph_api.value import Operand
from tatami.frontend.node_view import INDEXED, LINEAR
from tatami.frontend.operation import Site, axis_of

Index: TypeAlias = "int | str | Expr | slice | ellipsis | Tensor | list[int] | None"  # noqa: F821


class Tensor(Elementwise, Reductions, Layers, Indexing, Collectives):
    """A value of `graph`, by name. Arithmetic adds nodes; operands have the same shape, or rank 0 (D2.1)."""

    __slots__ = ()
    __hash__ = object.__hash__
    __array_ufunc__ = None
    """None, so that numpy leaves `number * tensor` to the tensor."""

    # -- operators ---------------------------------------------------------------------------------
    def __add__(self, other: Operand) -> Tensor:
        return self.one("add", other)

    def __radd__(self, other: Operand) -> Tensor:
        return self.made("add", other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return self.one("sub", other)

    def __rsub__(self, other: Operand) -> Tensor:
        return self.made("sub", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return self.one("mul", other)

    def __rmul__(self, other: Operand) -> Tensor:
        return self.made("mul", other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return self.one("div", other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return self.made("div", other, self)

    def __floordiv__(self, other: Operand) -> Tensor:
        return self.one("floordiv", other)

    def __rfloordiv__(self, other: Operand) -> Tensor:
        return self.made("floordiv", other, self)

    def __mod__(self, other: Operand) -> Tensor:
        return self.one("mod", other)

    def __rmod__(self, other: Operand) -> Tensor:
        return self.made("mod", other, self)

    def __divmod__(self, other: Operand) -> tuple[Tensor, Tensor]:
        return self // other, self % other

    def __pow__(self, other: Operand) -> Tensor:
        return self.one("powi", n=other) if isinstance(other, int) else self.one("pow", other)

    def __rpow__(self, other: Operand) -> Tensor:
        return self.made("pow", other, self)

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.one("matmul", other)

    def __pos__(self) -> Tensor:
        return self

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

    def _logic(self, name: str) -> str:
        """The operation of `&`, `|`, `^`: logical for bool, bitwise for integers."""
        return name if self.dtype == DType.bool else f"bit{name}"

    def __and__(self, other: Operand) -> Tensor:
        return self.one(self._logic("and"), other)

    def __rand__(self, other: Operand) -> Tensor:
        return self.made(self._logic("and"), other, self)

    def __or__(self, other: Operand) -> Tensor:
        return self.one(self._logic("or"), other)

    def __ror__(self, other: Operand) -> Tensor:
        return self.made(self._logic("or"), other, self)

    def __xor__(self, other: Operand) -> Tensor:
        return self.one(self._logic("xor"), other)

    def __rxor__(self, other: Operand) -> Tensor:
        return self.made(self._logic("xor"), other, self)

    def __lshift__(self, other: Operand) -> Tensor:
        return self.one("shl", other)

    def __rlshift__(self, other: Operand) -> Tensor:
        return self.made("shl", other, self)

    def __rshift__(self, other: Operand) -> Tensor:
        return self.one("shr", other)

    def __rrshift__(self, other: Operand) -> Tensor:
        return self.made("shr", other, self)

    def __bool__(self) -> bool:
        raise TypeError("a graph tensor has no value yet; use g.where or g.cond")

    def __iter__(self) -> Iterator[Tensor]:
        """The slices along the first axis. Raises TypeError if its size is not a number."""
        count = self.shape[0].as_int() if self.shape else None
        if count is None:
            raise TypeError("a tensor whose first size is not a number cannot be taken apart; use g.loop")
        return (self[i] for i in range(count))

    # -- numpy slicing -----------------------------------------------------------------------------
    def __getitem__(self, key: Index | tuple[Index, ...]) -> Tensor:
        """The selected elements: integers, slices (also with negative steps), `...`, None and one tensor of integers have
        numpy's meaning."""
        keys: list[Any] = list(key) if isinstance(key, tuple) else [key]
        used = sum(k is not None and k is not Ellipsis for k in keys)
        if used > self.rank:
            raise fail("AxisOutOfRange", self._what("index"), f"{used} indices for {self!r}", "index at most every axis once")
        dots = [i for i, k in enumerate(keys) if k is Ellipsis]
        if len(dots) > 1:
            raise fail("InvalidAttribute", self._what("index"), "... stands twice", "write ... once")
        at = dots[0] if dots else len(keys)
        keys[at : at + len(dots)] = [slice(None)] * (self.rank - used)
        places = [i for i, k in enumerate(keys) if isinstance(k, Tensor | list) or hasattr(k, "ndim")]
        if places:
            return self._taken(keys, places)
        starts: list[Expr] = []
        stops: list[Expr] = []
        steps: list[int] = []
        flipped: list[int] = []
        shape: list[bool] = []  # per result axis: True for an inserted axis of size 1, False for the next kept axis
        kept: list[bool] = []
        for k in keys:
            if k is None:
                shape.append(True)
                continue
            size = self.shape[len(starts)]
            if isinstance(k, slice):
                lo, hi, step, reverse = slice_bounds(k, size, self._what("slice"))
                if reverse:
                    flipped.append(len(starts))
                shape.append(False)
                kept.append(True)
            else:
                lo, step = place_on_axis(k, size, self._what("index")), 1
                hi = lo + 1
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

    def _taken(self, keys: list[Index], places: list[int]) -> Tensor:
        """The element or slices for one index tensor along its axis; the other keys are slices and None."""
        at = self._what("index")
        index: Any = keys[places[0]]
        if isinstance(index, list):
            index = self.graph.constant(index)
        if not isinstance(index, Tensor):
            index = self.graph.constant(index) if index.ndim else index.item()
            if not isinstance(index, Tensor):
                return self[(*keys[: places[0]], index, *keys[places[0] + 1 :])]
        if index.dtype == DType.bool:
            raise fail(
                "InvalidAttribute",
                at,
                "a boolean index: how many elements it keeps is not known before the run",
                "g.where(mask, x, 0) keeps the shape; x.compress(keep, axis) takes slices into a new size",
            )
        if len(places) > 1 or not all(k is None or isinstance(k, slice) for i, k in enumerate(keys) if i != places[0]):
            raise fail("InvalidAttribute", at, "an index tensor among other indices", "use take or gather_nd, then slice")
        sliced = self[tuple(slice(None) if i == places[0] else k for i, k in enumerate(keys))]
        return sliced.take(index, places[0])

    # -- movement ----------------------------------------------------------------------------------
    def reshape(self, *shape: IntoExpr | Sequence[IntoExpr]) -> Tensor:
        """The same row-major elements in another shape. One size may be -1: it follows from the others."""
        to = list(sizes(shape, self._what("reshape")))
        unknown = sum(s.as_int() == -1 for s in to)
        if unknown > 1:
            raise fail("AxisSizeMismatch", self._what("reshape"), "two sizes are -1", "leave one size open at most")
        if unknown:
            at = next(i for i, s in enumerate(to) if s.as_int() == -1)
            total, rest = product(self.shape), product(to[:at] + to[at + 1 :])
            exact = exact_div(total, rest) if rest != ZERO else ZERO
            to[at] = exact if exact is not None else floordiv(total, rest)
        return self._laid_out().one("reshape", shape=tuple(to))

    def _laid_out(self) -> Tensor:
        """This tensor, through `contiguous` if it is read by index expressions (spec 1 "Auto-contiguous"). Only the graph
        records that: no kernel copies for it."""
        name = self.name
        while name in self.graph._producer:
            node = self.graph._nodes[self.graph._producer[name]]
            if node.op in INDEXED:
                return self.one("contiguous")
            if node.op not in LINEAR:
                break
            name = node.inputs[0]
        return self

    def contiguous(self) -> Tensor:
        """The same values, laid out row-major."""
        return self.one("contiguous")

    def permute(self, *perm: int | Sequence[int]) -> Tensor:
        """The axes reordered: axis j of the result is axis perm[j]; negative axes count from the end."""
        at = self._what("permute")
        return self.one("permute", perm=tuple(p + self.rank if -self.rank <= p < 0 else p for p in flat(perm, at)))

    def transpose(self, a: int = -2, b: int = -1) -> Tensor:
        """Two axes exchanged, by default the last two."""
        perm = list(range(self.rank))
        a, b = (self._axis(axis, "transpose") for axis in (a, b))
        perm[a], perm[b] = perm[b], perm[a]
        return self.one("permute", perm=tuple(perm))

    def _axis(self, axis: int, method: str) -> int:
        return axis_of(integer(axis, self._what(method)), self.rank, Site(self._what(method)))

    def expand(self, *shape: IntoExpr | Sequence[IntoExpr], dims: Sequence[int] | None = None) -> Tensor:
        """Axes of size 1 repeated to `shape`; operand axis j becomes result axis dims[j], right-aligned without `dims`."""
        at = self._what("expand")
        return self.one("expand", shape=sizes(shape, at), dims=None if dims is None else integers(dims, at))

    def unsqueeze(self, *axes: int | Sequence[int]) -> Tensor:
        """Axes of size 1 inserted at these positions of the result."""
        return self.one("unsqueeze", axes=flat(axes, self._what("unsqueeze")))

    def squeeze(self, *axes: int | Sequence[int]) -> Tensor:
        """These axes of size 1 removed; without arguments, all axes whose size is the number 1."""
        ones = tuple(i for i, s in enumerate(self.shape) if s == ONE)
        return self.one("squeeze", axes=flat(axes, self._what("squeeze")) if axes else ones)

    def flatten(self, start: int = 0, end: int = -1) -> Tensor:
        """Axes start..end (inclusive) joined to one."""
        return self.one("flatten", start=start, end=end)

    def flip(self, *axes: int | Sequence[int]) -> Tensor:
        """The elements in reverse order along these axes; without arguments, along all."""
        return self.one("flip", axes=flat(axes, self._what("flip")) if axes else tuple(range(self.rank)))

    def repeat(self, axis: int, times: IntoExpr) -> Tensor:
        """An axis of size 1 repeated `times` times."""
        return self.one("repeat", axis=axis, times=size(times, self._what("repeat")))

    def tile(self, axis: int | Sequence[IntoExpr], times: IntoExpr | None = None) -> Tensor:
        """Whole copies next to each other: `times` along one axis, `tile(0, 3)`, or a count per axis, `tile((3, 1))`."""
        at = self._what("tile")
        if times is None:
            if not isinstance(axis, list | tuple):
                raise fail("InvalidAttribute", at, "tile takes an axis and a count", "write tile(0, 3), or tile([3, 1])")
            return self.one("tile", repeats=sizes((axis,), at))
        repeats: list[Expr] = [expr(1)] * self.rank
        if isinstance(axis, Sequence):
            raise fail("InvalidAttribute", at, "tile takes one axis with a count", "write tile(0, 3), or tile([3, 1])")
        repeats[self._axis(axis, "tile")] = size(times, at)
        return self.one("tile", repeats=tuple(repeats))

    def pad(self, pads: Sequence[tuple[IntoExpr, IntoExpr]], value: bool | float = 0, mode: str = "constant") -> Tensor:
        """A border of (before, after) elements per axis, negative to crop; `mode`: constant (`value`), edge, reflect or
        wrap."""
        at = self._what("pad")
        if not isinstance(pads, list | tuple) or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pads):
            raise fail("InvalidAttribute", at, f"{pads!r} are not pairs", "give (before, after) for every axis")
        return self.one("pad", pads=pairs(pads, self.rank, at), value=constant(value, at), mode=mode)

    def roll(self, shift: int | Sequence[int], axis: int | Sequence[int]) -> Tensor:
        """The elements shifted cyclically along one axis or several."""
        at = self._what("roll")
        axes = integers(axis, at)
        return self.one("roll", shifts=each(shift, len(axes), at), axes=axes)

    def unfold(self, kernel: Axes, stride: Axes = (), dilation: Axes = (), groups: int = 1) -> Tensor:
        """Windows over the last axes, one per kernel size: (C, L..) to (C, k.., L'..)."""
        return self._laid_out().one("unfold", **self._windows("unfold", kernel, stride, dilation), groups=groups)

    def fold(self, size: Sequence[IntoExpr], kernel: Axes, stride: Axes = (), dilation: Axes = (), groups: int = 1) -> Tensor:
        """The transpose of `unfold`: windows are added up into the shape `size`."""
        to = shape_of(size, self._what("fold"))
        return self.one("fold", size=to, **self._windows("fold", kernel, stride, dilation), groups=groups)

    def _windows(self, method: str, kernel: Axes, stride: Axes, dilation: Axes) -> dict[str, tuple[int, ...]]:
        at = self._what(method)
        extents = integers(kernel, at)
        n = len(extents)
        return {"kernel": extents, "stride": each(stride, n, at), "dilation": each(dilation, n, at)}

    def split(self, sizes: Sequence[IntoExpr] | int, axis: int = 0) -> tuple[Tensor, ...]:
        """Parts of these sizes along an axis; a number stands for parts of that size, the last of which has the rest."""
        at = self._what("split")
        parts = self._equal_parts(sizes, axis) if isinstance(sizes, int) else tuple(size(s, at) for s in _listed(sizes, at))
        out = self.op("split", axis=axis, sizes=parts)
        return out if isinstance(out, tuple) else (out,)

    def _equal_parts(self, each_size: int, axis: int) -> Shape:
        at = self._what("split")
        total = self.shape[self._axis(axis, "split")].as_int()
        if total is None or each_size < 1:
            raise fail(
                "InvalidAttribute", at, f"parts of {each_size} of a size that is not a number", "give the size of every part"
            )
        whole, rest = divmod(total, each_size)
        return (*(expr(each_size) for _ in range(whole)), *((expr(rest),) if rest or not whole else ()))

    def diagonal(self) -> Tensor:
        """The diagonal of the last two axes, which have the same size."""
        return self.one("diagonal")

    def view(self, shape: Sequence[IntoExpr], map: Sequence[IntoExpr] | None = None, linear: IntoExpr | None = None) -> Tensor:
        """Elements read at coordinates `map` (one per operand axis) or at row-major element `linear`, over i0, i1, …"""
        at = self._what("view")
        return self.one(
            "view",
            shape=shape_of(shape, at),
            map=None if map is None else shape_of(map, at),
            linear=None if linear is None else size(linear, at),
        )


def _listed(values: object, at: str) -> tuple[IntoExpr, ...]:
    if not isinstance(values, list | tuple) or not values:
        raise fail("InvalidAttribute", at, f"{values!r} are not sizes", "give the size of every part")
    return tuple(values)


def tensors(values: object, what: str) -> tuple[Tensor, ...]:
    """The tensors of a list or tuple, as a tuple. Raises E1009."""
    listed = several(values)
    if listed is None:
        raise fail("InvalidAttribute", what, f"{values!r} is not a list of tensors", "write [a, b]")
    return listed
