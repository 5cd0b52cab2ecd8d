"""Reductions of a product's rows or columns begin in its epilogue, in blocks of a fixed width (decision 0026).

    r0: y[m, n] = acc as fp16                       r0: y[m, n] = acc as fp16
    r1: s[n] = sum over m of cast(y[m, n])    ->        e = cast(cast(acc, fp16)); p[t, n] = sum over j < 16 of e[16*t + j, n]
                                                    r1: s[n] = sum over t of p[t, n]

r1 then reads 1/8 of y's fp16 bytes (1/32 along rows), and y is not stored if nothing else reads it. The width of a block does
not depend on the plan, so that every plan adds in the same order. A reader qualifies if it only reduces y: a reader that also
needs the elements (a norm, a softmax) reads y once in any case. A product begins the reductions of all its readers, over rows
and columns, for which writing and reading the blocks moves fewer bytes than reading y.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tatami.core.cost import estimate
from tatami.core.dtype import DType
from tatami.core.expr import ONE
from tatami.core.kernel import is_divisible
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.plan.block_reduces.reader import begin_blocks
from tatami.region.ir import Program, Reduce, Region, Yield
from tatami.region.views.partials import BLOCK, without_partials
from tatami.region.views.product import GemmView, gemm_view, is_product_reduce, why_not_plain
from tatami.region.walk import reads

TILE = 128 * 128
"""Results in one tile of a product. A product qualifies if it has at least one whole tile per SM: smaller products are cut
along k or exchanged, which leaves no epilogue with whole blocks, and their results are in the cache anyway."""


def reduce_in_blocks(module: Module[Program], target: Target) -> Module[Program]:
    """The module with every reduction that its product can begin; unchanged for targets other than sm90, since only the wgmma
    template computes blocks."""
    if target.isa != "sm90":
        return module
    programs = {name: _in_program(p, target) for name, p in module.programs.items()}
    origins = {name: _origins(programs[name], known) for name, known in module.origins.items()}
    return Module(programs, module.constants, origins)


def reductions_of_products(program: Program, target: Target) -> Iterator[tuple[str, str]]:
    """For a program that `reduce_in_blocks` made: each let that reduces a product's result, with the epilogue it begins in or
    the reason why it stays apart."""
    products = [r for r in program.body if isinstance(r, Region) and _multiplies(r)]
    for product in products:
        plain, begun = without_partials(product)
        for p in begun:
            what = "columns" if p.width == BLOCK["n"] else "rows"
            less = f", exponentials less their maximum {p.top}" if p.top else ""
            yield p.let, f"begins in the epilogue of {product.name}, {p.width} {what} of {p.source} at a time{less}"
        stored = {y.to: y for y in plain.yields}
        for reader in program.body:
            if not isinstance(reader, Region) or reader is product or _multiplies(reader):
                continue
            for let in reader.lets:
                read = {r.tensor for r in reads(let.expr)}
                mine = read & set(stored)
                if isinstance(let.expr, Reduce) and mine and (mine == read or not is_product_reduce(let.expr)):
                    yield let.name, f"reads {min(mine)}: {_why_apart(product, stored[min(mine)], reader, program, target)}"


def _multiplies(region: Region) -> bool:
    """True if the Region is a product of matrices; a sum of squares is none."""
    view = gemm_view(region)
    return not isinstance(view, str) and bool(view.m.axes and view.n.axes)


def _why_apart(product: Region, y: Yield, reader: Region, program: Program, target: Target) -> str:
    if target.isa != "sm90":
        return f"no template of {target.isa or target.kind} reduces what a product stores"
    view = _view(product, target, program.signature.defaults)
    if view is None:
        what = "no product by wgmma at every size, with pitches of whole 16 bytes"
        return f"{product.name} is {what} and a tile for each of {target.sms} SMs"
    found = begin_blocks(product, view, y, reader)
    assert isinstance(found, str)
    return found


def _origins(program: Program, known: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The known origins, and for each let that was added those of the reduction it begins."""
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
                found = begin_blocks(now, view, y, reader)
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
    """The view of a product that the wgmma template takes at all of its sizes, with whole tiles for every SM; None for other
    Regions."""
    view = gemm_view(region)
    if isinstance(view, str) or view.groups is not None or view.lhs.dtype != view.rhs.dtype:
        return None
    dtype = view.lhs.dtype
    if not dtype.is_narrow_float and not (view.tf32 and (dtype == DType.fp32 or dtype.is_fp8)):
        return None
    if not view.m.axes or not view.n.axes or len(view.k.axes) != 1 or not view.k.size.as_int():
        return None
    for operand, group in ((view.lhs, view.m), (view.rhs, view.n)):
        if why_not_plain(operand, group, view.k):
            return None
        strides = operand.strides or {}
        inner = next(a for a in (view.k.axes[0], group.axes[-1]) if strides[a] == ONE)
        if inner != view.k.axes[0] and not dtype.is_narrow_float:
            return None
        extent = view.k.size if inner == view.k.axes[0] else group.sizes[-1]
        steps = (extent, operand.offset, *(s for a, s in strides.items() if a != inner))
        if not all(is_divisible(e, 16 // dtype.itemsize) for e in steps):
            return None
    tiles = estimate(view.batch.size * view.m.size * view.n.size, sizes) / TILE
    return view if view.dtype == DType.fp32 and tiles >= target.sms else None


def _unstored(product: Region, y: Yield) -> Region:
    """The product without the output of `y`, which nothing reads."""
    return msgspec.structs.replace(
        product,
        outputs=tuple(o for o in product.outputs if o.name != y.to),
        yields=tuple(x for x in product.yields if x != y),
    )
