"""Reductions of a product's rows or columns begin in its epilogue, in blocks of a fixed width (decision 0026).

    r0: y[m, n] = acc as fp16                       r0: y[m, n] = acc as fp16
    r1: s[n] = sum over m of cast(y[m, n])    ->        e = cast(cast(acc, fp16)); p[t, n] = sum over j < 16 of e[16*t + j, n]
                                                    r1: s[n] = sum over t of p[t, n]

r1 then reads 1/8 of y's fp16 bytes, along rows 1/32; y is not stored where nobody else reads it. The blocks do not depend on
the plan, so that every plan adds in the same order. It is done where nothing of r1 but reductions reads y: who needs the
elements as well (a norm, a softmax) reads y once in any case. A product begins those of all its readers, of rows and of columns,
where the blocks of a reader, written and read, are fewer bytes than y.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from tatami.core.cost import estimate
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, ceildiv, expr, var
from tatami.core.kernel import is_divisible
from tatami.core.layout import MemRef
from tatami.core.module import Module
from tatami.core.ops import neutral
from tatami.core.target import Target
from tatami.indexbook.ir import Guard
from tatami.region.gemm_view import GemmView, dtype_of, gemm_view, is_product_reduce, why_not_plain
from tatami.region.ir import (
    At,
    Binary,
    Cast,
    Const,
    Iter,
    Let,
    Param,
    Program,
    Read,
    ReadAt,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Select,
    Unary,
    Within,
    Yield,
)
from tatami.region.ir import Target as Output
from tatami.region.partials import BLOCK, FOLDS, without_partials
from tatami.region.walk import all_axes, let_uses, nodes, reads, rewrite

TILE = 128 * 128
"""Results of a tile of a product that fills a machine with at least one for each SM: smaller products are cut along k or
exchanged, which leaves no epilogue with whole blocks, and their results are in the cache anyway."""


def reduce_in_blocks(module: Module[Program], target: Target) -> Module[Program]:
    """The module with every reduction that its product can begin. Only the wgmma template has blocks."""
    if target.isa != "sm90":
        return module
    programs = {name: _in_program(p, target) for name, p in module.programs.items()}
    origins = {name: _origins(programs[name], known) for name, known in module.origins.items()}
    return Module(programs, module.constants, origins)


def reductions_of_products(program: Program, target: Target) -> Iterator[tuple[str, str]]:
    """Of a program that `reduce_in_blocks` made: each reduction of what a product computes, and where it begins, or why apart."""
    products = [r for r in program.body if isinstance(r, Region) and not isinstance(gemm_view(r), str)]
    for product in products:
        plain, begun = without_partials(product)
        for p in begun:
            what = "columns" if p.width == BLOCK["n"] else "rows"
            yield p.let, f"begins in the epilogue of {product.name}, {p.width} {what} of {p.source} at a time"
        stored = {y.to: y for y in plain.yields}
        for reader in program.body:
            for let in reader.lets if isinstance(reader, Region) and reader is not product else ():
                mine = {r.tensor for r in reads(let.expr)} & set(stored)
                if isinstance(let.expr, Reduce) and mine and not is_product_reduce(let.expr):
                    assert isinstance(reader, Region)
                    yield let.name, f"reads {min(mine)}: {_why_apart(product, stored[min(mine)], reader, program, target)}"


def _why_apart(product: Region, y: Yield, reader: Region, program: Program, target: Target) -> str:
    if target.isa != "sm90":
        return f"no template of {target.isa or target.kind} reduces what a product stores"
    view = _view(product, target, program.signature.defaults)
    if view is None:
        return f"{product.name} is no product of 16-bit matrices with pitches of whole 16 bytes and a tile for each of {target.sms} SMs"
    found = _begun(product, view, y, reader)
    assert isinstance(found, str)
    return found


def _origins(program: Program, known: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Of what was added, those of the reduction that it begins."""
    out = dict(known)
    for region in program.body:
        for let in region.lets if isinstance(region, Region) else ():
            if let.name not in out:
                out[let.name] = known.get(let.name.rpartition("_")[0], ())
    return out


def _in_program(program: Program, target: Target) -> Program:
    body = list(program.body)
    for i, product in enumerate(body):
        view = _view(product, target, program.signature.defaults) if isinstance(product, Region) else None
        if view is None:
            continue
        assert isinstance(product, Region)
        now = product
        for y in product.yields:
            before = now
            for j in range(i + 1, len(body)):
                reader = body[j]
                if not isinstance(reader, Region) or not any(p.name == y.to for p in reader.inputs):
                    continue
                found = _begun(now, view, y, reader)
                if not isinstance(found, str):
                    now, body[j] = found
            if now is before:
                continue
            used = {p.name for r in body if isinstance(r, Region) for p in r.inputs}
            used |= {t for s in body if not isinstance(s, Region) for t in s.inputs} | set(program.outputs)
            now = now if y.to in used else _unstored(now, y)
        body[i] = now
    return msgspec.structs.replace(program, body=tuple(body))


def _view(region: Region, target: Target, sizes: Mapping[str, int]) -> GemmView | None:
    """Of a product that the wgmma template takes at all of its sizes, with whole tiles for every SM."""
    view = gemm_view(region)
    if (
        isinstance(view, str)
        or view.groups is not None
        or not view.lhs.dtype.is_narrow_float
        or view.lhs.dtype != view.rhs.dtype
    ):
        return None
    if len(view.m.axes) != 1 or len(view.n.axes) != 1 or len(view.k.axes) != 1 or not view.k.size.as_int():
        return None
    for operand, group in ((view.lhs, view.m), (view.rhs, view.n)):
        if why_not_plain(operand, group, view.k):
            return None
        strides = operand.strides or {}
        inner = next(a for a in (view.k.axes[0], group.axes[0]) if strides[a] == ONE)
        extent = view.k.size if inner == view.k.axes[0] else group.size
        if not all(is_divisible(e, 8) for e in (extent, operand.offset, *(s for a, s in strides.items() if a != inner))):
            return None
    tiles = estimate(view.batch.size * view.m.size * view.n.size, sizes) / TILE
    return view if view.dtype == DType.fp32 and tiles >= target.sms else None


def _begun(product: Region, view: GemmView, y: Yield, reader: Region) -> tuple[Region, Region] | str:
    """Both Regions where `reader` does nothing but reduce what `y` stores, over all rows or all columns of the product, or why
    it begins none of its reductions."""
    if y.map is not None or reader.opaque is not None:
        return f"{reader.name} is a named routine, or reads a view of it"
    source = next(x for x in product.lets if x.name == y.source)
    dtype = next(o.memref.dtype for o in product.outputs if o.name == y.to)
    element: RegionExpr = Ref(source.name) if dtype == source.dtype else Cast(Ref(source.name), dtype)
    extents, sizes = all_axes(reader), all_axes(product)
    lets: list[Let] = []
    bytes_of_blocks = 0.0  # written and read, for each element of y
    for let in reader.lets:
        e = let.expr
        mine = [r for r in reads(e) if r.tensor == y.to]
        if not mine:
            lets.append(let)
            continue
        if not isinstance(e, Reduce):
            return f"{reader.name} reads its elements too"
        if not _is_fold(e) or not _is_pointwise(e.body, y.to, dtype):
            return f"{let.name} is no sum in fp32, and no maximum or minimum, of what depends on single elements alone"
        apart = f"{let.name} does not reduce all rows or all columns"
        maps = {r.map for r in mine}
        names = [None if i is None else i.as_name() for i in next(iter(maps))]
        place = {a: b for a, b in zip(names, source.axes) if a is not None}
        if len(maps) != 1 or len(place) != len(source.axes) or any(extents.get(a) != sizes[b] for a, b in place.items()):
            return apart
        role: Literal["m", "n"] = "m" if [place.get(a) for a in e.axes] == [view.m.axes[0]] else "n"
        axis = (view.m if role == "m" else view.n).axes[0]
        if [place.get(a) for a in e.axes] != [axis] or set(let.axes) != set(place) - set(e.axes):
            return apart
        body = rewrite(e.body, lambda n: element if isinstance(n, Read) else n)
        if dtype_of(e.body, {y.to: dtype}, {}) != DType.fp32:
            body = Cast(body, DType.fp32)
        bytes_of_blocks += 2 * DType.fp32.itemsize / BLOCK[role]
        product, part, count = _with_blocks(product, let.name, e.fn, body, source, axis, role)
        t = f"{part}_t"
        back = {b: a for a, b in place.items()}
        kept = next(o for o in product.lets if o.name == part).axes
        at = tuple(var(t) if a == f"{part}_b" else var(back[a]) for a in kept)
        block: RegionExpr = Read(part, at) if e.dtype == DType.fp32 else Cast(Read(part, at), e.dtype)
        lets.append(msgspec.structs.replace(let, expr=Reduce(e.fn, (t,), e.init, e.dtype, block)))
        ref = next(o.memref for o in product.outputs if o.name == part)
        reader = msgspec.structs.replace(
            reader, inputs=(*reader.inputs, Param(part, ref)), reduce_axes=(*reader.reduce_axes, Iter(t, count))
        )
    if bytes_of_blocks >= dtype.itemsize:
        return f"blocks of all that {reader.name} reduces are {bytes_of_blocks / dtype.itemsize:.2g} times the bytes of {y.to}"
    used = {a for x in lets if isinstance(x.expr, Reduce) for a in x.expr.axes}
    return product, msgspec.structs.replace(
        reader,
        inputs=tuple(p for p in reader.inputs if p.name != y.to),
        reduce_axes=tuple(a for a in reader.reduce_axes if a.name in used),
        lets=tuple(lets),
    )


def _is_fold(e: Reduce) -> bool:
    """A reduction whose blocks are exact in fp32, or sums in fp32 themselves."""
    return e.fn in FOLDS and (e.dtype == DType.fp32 or (e.fn != "sum" and e.dtype.is_narrow_float))


def _is_pointwise(body: RegionExpr, tensor: str, dtype: DType) -> bool:
    """Of nothing but elements of `tensor` and constants, all of whose arithmetic is fp32."""

    if any(r.tensor != tensor or isinstance(r, ReadAt) for r in reads(body)) or let_uses(body):
        return False

    def is_wide(e: RegionExpr) -> bool:
        return dtype_of(e, {tensor: dtype}, {}) == DType.fp32

    return all(
        isinstance(n, Read | Const)
        or (isinstance(n, Unary) and is_wide(n.x))
        or (isinstance(n, Binary) and is_wide(n.x) and is_wide(n.y))
        or (isinstance(n, Cast) and not n.bits and n.to.is_float)
        for n in nodes(body)
    )


def _with_blocks(
    product: Region, name: str, fn: str, body: RegionExpr, source: Let, axis: str, role: Literal["m", "n"]
) -> tuple[Region, str, Expr]:
    """With the let and the output `part`, one fp32 of each block of `body`, and how many blocks there are."""
    part, width = f"{name}_p", BLOCK[role]
    size = all_axes(product)[axis]
    count = ceildiv(size, expr(width))
    block, inner = f"{part}_b", f"{part}_j"
    added: tuple[Let, ...] = ()
    if isinstance(body, Ref):
        element = body.let
    elif known := next((x.name for x in product.lets if x.expr == body and x.dtype == DType.fp32), ""):
        element = known
    else:
        element = f"{name}_e"
        added = (Let(element, source.axes, DType.fp32, body),)
    index = var(block) * width + var(inner)
    outside = neutral(fn, DType.fp32)
    at: RegionExpr = At(element, tuple(index if a == axis else var(a) for a in source.axes))
    if not is_divisible(size, width):
        at = Select(Within((Guard(index, size),)), at, Const(outside, DType.fp32))
    axes = tuple(block if a == axis else a for a in source.axes)
    sizes = all_axes(product) | {block: count}
    let = Let(part, axes, DType.fp32, Reduce(fn, (inner,), outside, DType.fp32, at))
    return (
        msgspec.structs.replace(
            product,
            iters=(*product.iters, Iter(block, count)),
            reduce_axes=(*product.reduce_axes, Iter(inner, expr(width))),
            lets=(*product.lets, *added, let),
            outputs=(*product.outputs, Output(part, MemRef(DType.fp32, tuple(sizes[a] for a in axes)))),
            yields=(*product.yields, Yield(part, part)),
        ),
        part,
        count,
    )


def _unstored(product: Region, y: Yield) -> Region:
    """Without the output that nobody reads any more."""
    return msgspec.structs.replace(
        product,
        outputs=tuple(o for o in product.outputs if o.name != y.to),
        yields=tuple(x for x in product.yields if x != y),
    )
