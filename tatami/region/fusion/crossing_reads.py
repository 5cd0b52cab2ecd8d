"""Bytes that a kernel reads across the lines of memory: the layout term of Δtime (spec 3 §11).

Neighbours of a kernel's innermost axis lie next to each other in what it writes. A transposing view costs no kernel of its
own, but its elements change places in registers or in shared memory; a copy that keeps the innermost axis needs none of that.

Accesses along the lines are as wide as the target's vectors; across them each element is an access of its own, so that narrow
elements cost as much as wide ones: bytes count as those of 32-bit elements. The epilogue of a product walks the accumulators
in the order of the product. A template whose tensor maps and wgmma take either operand as rows (SM90) exchanges the operands
instead, and then stores a turned result along its lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import ONE
from tatami.poly_view.ir import PolyAccess, Statement


def more_across(
    producer: str, consumer: str, held: Set[str], statements: Mapping[str, Statement], bytes_of: Callable[[str, str], float]
) -> float:
    """Bytes read across their lines in one kernel that computes `producer` inside `consumer`, minus those of two kernels.

    `held`: values that the producer's kernel computes; `bytes_of(tensor, reader)`: bytes that `reader` reads of `tensor`. 0
    where the producer is a reduce or a scan, or the consumer is neither elementwise nor a copy: those walk their own axes in
    any case.
    """
    p, c = statements[producer], statements[consumer]
    if p.kind in ("reduce", "scan") or c.kind not in ("elementwise", "copy"):
        return 0.0
    own, wanted = _innermost(p), _innermost(c)
    within: set[str] = set()
    between = 0.0
    for access in c.reads:
        if access.tensor == producer:
            dims = _dims(access, wanted)
            within |= {p.axes[d].name for d in dims}
            between = max(between, bytes_of(producer, consumer) if _is_across(access, dims) else 0.0)
    if within == own:
        return 0.0
    return _across(p, within, held, statements, bytes_of) - _across(p, own, held, statements, bytes_of) - between


def more_across_of_epilogue(
    product: str,
    consumer: str,
    statements: Mapping[str, Statement],
    bytes_of: Callable[[str, str], float],
    exchanges: bool,
) -> float:
    """Bytes accessed across their lines in a product that computes `consumer` in its epilogue, minus those of two kernels.

    `exchanges`: the template can compute the turned product; `bytes_of` as in `more_across`.
    """
    p, c = statements[product], statements[consumer]
    if c.kind not in ("elementwise", "copy"):
        return 0.0
    own, wanted = _innermost(p), _innermost(c)
    read = [a for a in c.reads if a.tensor == product]
    if not read or {p.axes[d].name for a in read for d in _dims(a, wanted)} == own:
        return 0.0
    inner = wanted if exchanges else {name for a in read for name in _along(p, a, own)}
    others = [a for a in c.reads if a.tensor != product]
    together = 0.0 if exchanges else bytes_of(consumer, consumer)
    together += sum(bytes_of(a.tensor, consumer) for a in others if _is_across(a, _dims(a, inner)))
    apart = bytes_of(product, consumer) + sum(bytes_of(a.tensor, consumer) for a in others if _is_across(a, _dims(a, wanted)))
    return together - apart


def _along(product: Statement, access: PolyAccess, own: Set[str]) -> set[str]:
    """The reader's axes that move along the axis in `own` of the accessed product."""
    entries = (e for e, axis in zip(access.map, product.axes) if axis.name in own and e is not None)
    return {name for e in entries for name in free_vars(e)}


def _across(
    s: Statement, inner: set[str], held: Set[str], statements: Mapping[str, Statement], bytes_of: Callable[[str, str], float]
) -> float:
    """Bytes that `s` and the values of its kernel read across their lines when `inner` are the innermost axes."""
    found: dict[tuple[str, str], float] = {}
    stack, seen = [(s, frozenset(inner))], set()
    while stack:
        reader, names = stack.pop()
        if (reader.value, names) in seen or reader.kind in ("reduce", "scan"):
            continue
        seen.add((reader.value, names))
        for access in reader.reads:
            dims = _dims(access, names)
            if access.tensor in held:
                inside = statements[access.tensor]
                stack.append((inside, frozenset(inside.axes[d].name for d in dims)))
            elif _is_across(access, dims):
                found[access.tensor, reader.value] = bytes_of(access.tensor, reader.value)
    return sum(found.values())


def _innermost(s: Statement) -> set[str]:
    """Name of the innermost axis of `s` that has more than one element, as a set; {""} if it has none."""
    return {next((a.name for a in reversed(s.axes) if a.size != ONE), "")}


def _dims(access: PolyAccess, names: Set[str]) -> list[int]:
    """Dimensions of the tensor along which `names` move."""
    return [d for d, e in enumerate(access.map) if e is not None and free_vars(e) & names]


def _is_across(access: PolyAccess, dims: list[int]) -> bool:
    """True if `dims` lack the last dimension of the tensor along which any axis moves."""
    return bool(dims) and max(d for d, e in enumerate(access.map) if e is not None and free_vars(e)) not in dims
