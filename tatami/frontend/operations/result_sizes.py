"""Sizes of results of calls that only a run decides: sizes that differ between branches, grow in a loop, or are found by a
step of the callee. The caller names them (`new`), in the order of the results and of their axes.

    if c: [2, 3] else [5, 3]                    ->   [S, 3]
    loop over a state [2], body: [L] -> [L+1]   ->   [S]; L has another value each turn
    call of f: [N] -> [K], K found by f         ->   [S]"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import Expr, shape_text, var
from tatami.core.signature import Input, Output
from tatami.frontend.ir import Graph, TensorType
from tatami.frontend.operation import Site, want


class NewSizes:
    """The caller's symbols, one for each distinct size. Raises `kind` if a name is missing."""

    def __init__(self, names: Sequence[str], site: Site, *, unlimited: bool = False) -> None:
        self.names = names
        self.site = site
        self.unlimited = unlimited
        self.given: dict[Hashable, Expr] = {}

    def size(self, key: Hashable, why: str, kind: str = "BroadcastMismatch") -> Expr:
        """The symbol of the size that `key` identifies. `why`: the fault if there is no name for it."""
        if key not in self.given:
            place = len(self.given)
            if self.unlimited:
                self.given[key] = var(f"S_{place}")
            else:
                how = "give equal sizes, or names in `new` for the sizes that only a run tells"
                want(place < len(self.names), why, how, self.site, kind)
                self.given[key] = var(self.names[place])
        return self.given[key]

    def done(self) -> None:
        """Raise InvalidAttribute for a name that stands for no size."""
        if not self.unlimited and len(self.names) > len(self.given):
            why = f"`new` names {len(self.names)} sizes, {len(self.given)} are found by the run"
            want(False, why, "name each size that is found, and no other", self.site)


def found_symbols(graph: Graph) -> frozenset[str]:
    """The graph's own symbols whose values its nodes find when it runs."""
    out: set[str] = set()
    for node in graph.graph:
        size = node.attrs.get("size")
        out.update((size,) if isinstance(size, str) else (), node.attrs.get("new", ()))
    return frozenset(out) - {s for p in graph.signature.inputs for e in p.shape for s in free_vars(e)}


@dataclass(frozen=True)
class Bound:
    """A callee's symbols: `sizes` in terms of the caller's, and `open` symbols without a value before it runs."""

    sizes: Mapping[str, Expr]
    open: frozenset[str]

    def knows(self, size: Expr) -> bool:
        """True if the caller's sizes decide `size` before the call."""
        return free_vars(size).isdisjoint(self.open)

    def __call__(self, size: Expr) -> Expr:
        return substitute(size, self.sizes)


def called_types(outputs: Sequence[Output], bound: Bound, new: NewSizes, why: str) -> tuple[TensorType, ...]:
    """The result types of a call, or of one turn: sizes that it finds have the caller's names. `why`: the fault of a size
    without a name, with {} for that size."""

    def size(s: Expr) -> Expr:
        return bound(s) if bound.knows(s) else new.size(("found", s), why.format(s))

    return tuple(TensorType(o.dtype, tuple(map(size, o.shape))) for o in outputs)


def joined_types(
    yes: Sequence[Output],
    no: Sequence[Output],
    bound: tuple[Bound, Bound],
    new: NewSizes,
) -> tuple[TensorType, ...]:
    """The result types of an `if`: the size that both branches have, else a named one. Raises TatamiError if dtypes or ranks
    differ."""
    kinds = (_kinds(yes, bound[0]), _kinds(no, bound[1]))
    same = [(a.dtype, len(a.shape)) for a in yes] == [(b.dtype, len(b.shape)) for b in no]
    why = f"the branches give {kinds[0]} and {kinds[1]}"
    want(same, why, "make both branches give the same dtypes and ranks", new.site, "BroadcastMismatch")

    def size(a: Expr, b: Expr) -> Expr:
        known = bound[0].knows(a), bound[1].knows(b)
        a, b = bound[0](a), bound[1](b)
        return a if all(known) and a == b else new.size((known, a, b), why)

    return tuple(
        TensorType(a.dtype, tuple(size(s, t) for s, t in zip(a.shape, b.shape, strict=True)))
        for a, b in zip(yes, no, strict=True)
    )


def varying_symbols(states: Sequence[Input], results: Sequence[Output], bound: Bound) -> frozenset[str] | None:
    """The body's symbols whose value may differ in each turn: sizes of a state that the body returns with another size. None
    if such a size is not a symbol by itself, or if dtype or rank change."""
    if [(s.dtype, len(s.shape)) for s in states] != [(r.dtype, len(r.shape)) for r in results]:
        return None
    pairs = [pair for s, r in zip(states, results, strict=True) for pair in zip(s.shape, r.shape, strict=True)]
    found: set[str] = set()
    while True:
        before = len(found)
        for given, made in pairs:
            if keeps(given, made, bound, found):
                continue
            symbol = given.as_name()
            if symbol is None:
                return None
            found.add(symbol)
        if len(found) == before:
            return frozenset(found)


def keeps(given: Expr, made: Expr, bound: Bound, varying: set[str] | frozenset[str]) -> bool:
    """True if a size of the state is the same after every turn as before the first."""
    if not (free_vars(given) | free_vars(made)).isdisjoint(varying):
        return False
    if given == made:
        return True
    return bound.knows(made) and bound(given) == bound(made)


def last_states(
    states: Sequence[Input], results: Sequence[Output], bound: Bound, varying: frozenset[str], new: NewSizes
) -> tuple[TensorType, ...]:
    """The types of the last states: two sizes are one if they begin, change and therefore end alike."""

    def size(given: Expr, made: Expr) -> Expr:
        if keeps(given, made, bound, varying):
            return bound(given)
        return new.size(("last", given, made), f"loop state changes its size from {given} to {made}")

    return tuple(
        TensorType(s.dtype, tuple(size(g, m) for g, m in zip(s.shape, r.shape, strict=True)))
        for s, r in zip(states, results, strict=True)
    )


def _kinds(outputs: Sequence[Output], bound: Bound) -> str:
    return ", ".join(f"{o.dtype}{shape_text(tuple(map(bound, o.shape)))}" for o in outputs)
