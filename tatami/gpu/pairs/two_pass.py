"""Attention in two passes over the keys: a kernel for what a row needs, then one that multiplies with it.

    one pass     a block of scores changes the largest score so far, so that the result so far is scaled
    two passes   first   max[m] = max over n of S[m, n];  sum[m] = sum over n of exp(S[m, n] - max[m])
                 second  C[m, :] = sum over n of exp(S[m, n] - max[m]) / sum[m] * B[n, :]

Scores are computed in each pass and never stored: memory is linear in the number of rows. Both kernels are those of the plan's
template. The first one has the fewest columns that its instructions take and stores values per row alone; in the second one
weights are pointwise in the scores."""

from __future__ import annotations

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.expr import expr, product, var
from tatami.core.kernel import Binding
from tatami.core.layout import MemRef
from tatami.core.target import Target
from tatami.gpu.ir import AnyKernel
from tatami.gpu.pairs.lower import lower_pair
from tatami.plan.ir import Guarded, Sm80Pair, Sm90Pair
from tatami.region.ir import Let, Param, Read, Reduce, Region, Yield
from tatami.region.ir import Target as Output
from tatami.region.views.pairs.pair import PairView, pair_view
from tatami.region.walk import all_axes, let_shape, used_lets

COLUMNS = 16
"""Number of columns of the first pass, whose products are not stored: the fewest that both templates take."""


def lower_two_pass(region: Region, choice: Guarded, target: Target) -> list[tuple[AnyKernel, Binding]]:
    """The kernels of both passes. Raises InvalidPlan if rows of the pair need no first pass."""
    plan = choice.plan
    assert isinstance(plan, Sm80Pair | Sm90Pair)
    view = pair_view(region)
    if isinstance(view, str):
        raise fail("InvalidPlan", region.name, f"no pair of products to stream: {view}", "use a plan of kind gpu_stream")
    found = () if view.direct else _of_rows(region, view)
    axes = all_axes(region)
    few = axes[view.columns].as_int() or 0
    broken = {
        "weights that need no value of their row": not found,
        f"split {plan.split}": plan.split > 1,
        f"{few} columns": few < COLUMNS,
    }
    if why := [name for name, holds in broken.items() if holds]:
        raise fail(
            "InvalidPlan", region.name, f"two passes over the keys with {why[0]}", "set algo_choice.attention to one_pass"
        )
    stored = _stored(region, found)
    columns = {view.columns} if "n" in axes else {view.columns, "n"}
    tail = tuple(a for a in plan.predicate_tail if a.split(".")[0] not in columns)
    own = msgspec.structs.replace(
        plan, tile=(plan.tile[0], COLUMNS, plan.tile[2]), predicate_tail=tail, algo_choice={}, shared=False
    )
    first = lower_pair(_first(region, view, stored), msgspec.structs.replace(choice, plan=own), target)
    second = lower_pair(_second(region, stored), choice, target)
    looking = second[:-1] or first[:-1]  # both ask whether all of B is finite
    kernels = [*looking, first[-1], second[-1]]
    sizes = tuple((p.name, product(p.memref.shape) * p.memref.dtype.itemsize) for p in stored.values())
    kernel, binding = kernels[0]
    return [(kernel, msgspec.structs.replace(binding, scratch=(*sizes, *binding.scratch))), *kernels[1:]]


def _of_rows(region: Region, view: PairView) -> tuple[Let, ...]:
    """The lets that reduce scores over the keys, with one value per row."""
    return tuple(
        let
        for let in region.lets
        if let.name != view.second and isinstance(let.expr, Reduce) and view.keys in let.expr.axes and view.rows in let.axes
    )


def _stored(region: Region, found: tuple[Let, ...]) -> dict[str, Param]:
    """The tensor between the passes of each let, under a name that the Region lacks."""
    names = {p.name for p in region.inputs} | {o.name for o in region.outputs}
    out: dict[str, Param] = {}
    for let in found:
        name = f"{let.name}'"
        while name in names:
            name += "'"
        out[let.name] = Param(name, MemRef(let.dtype, let_shape(region, let)))
    return out


def _first(region: Region, view: PairView, stored: dict[str, Param]) -> Region:
    """The Region with its values per row as its only results, and few columns."""
    narrow = tuple(msgspec.structs.replace(i, size=expr(COLUMNS)) if i.name == view.columns else i for i in region.iters)
    return msgspec.structs.replace(
        region,
        iters=narrow,
        outputs=tuple(Output(p.name, p.memref) for p in stored.values()),
        lets=_used(region.lets, (view.second, *stored)),
        yields=tuple(Yield(n, p.name) for n, p in stored.items()),
    )


def _second(region: Region, stored: dict[str, Param]) -> Region:
    """The Region with its values per row read from memory."""
    lets = tuple(
        msgspec.structs.replace(x, expr=Read(stored[x.name].name, tuple(var(a) for a in x.axes))) if x.name in stored else x
        for x in region.lets
    )
    used = _used(lets, tuple(y.source for y in region.yields))
    return msgspec.structs.replace(region, inputs=(*region.inputs, *stored.values()), lets=used)


def _used(lets: tuple[Let, ...], results: tuple[str, ...]) -> tuple[Let, ...]:
    """The lets from which the named ones follow."""
    by_name = {let.name: let for let in lets}
    found: set[str] = set()
    stack = list(results)
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack.extend(used_lets(by_name[name].expr))
    return tuple(let for let in lets if let.name in found)
