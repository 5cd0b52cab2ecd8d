"""What a map reads across the lines of memory: the layout term of Δtime (spec 3 §11).

Neighbours of the innermost axis of a map lie next to each other in what it writes. A view that turns what it reads costs no
kernel; its lines change places in registers or in shared memory, which a copy that keeps its lines does without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from tatami.core.expr import ONE, free_vars
from tatami.poly_view.ir import PolyAccess, Statement


def more_across(
    producer: str, consumer: str, held: Set[str], statements: Mapping[str, Statement], bytes_of: Callable[[str, str], float]
) -> float:
    """Bytes that are read across their lines when `consumer` computes `producer`, whose kernel holds `held`, beyond those of
    two kernels. `bytes_of(tensor, reader)`. Reduces and scans walk their own axes in any case."""
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


def _across(
    s: Statement, inner: set[str], held: Set[str], statements: Mapping[str, Statement], bytes_of: Callable[[str, str], float]
) -> float:
    """Bytes that `s` and what its kernel holds read across their lines, where `inner` are its innermost axes."""
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
    return {next((a.name for a in reversed(s.axes) if a.size != ONE), "")}


def _dims(access: PolyAccess, names: Set[str]) -> list[int]:
    """Dimensions of the tensor along which `names` move."""
    return [d for d, e in enumerate(access.map) if e is not None and free_vars(e) & names]


def _is_across(access: PolyAccess, dims: list[int]) -> bool:
    """They are not the last one along which anything moves."""
    return bool(dims) and max(d for d, e in enumerate(access.map) if e is not None and free_vars(e)) not in dims
