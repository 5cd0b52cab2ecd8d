"""Sizes of a program that is called again and again, such as the body of a loop: `binding.bind_sizes` for signatures of
numbers and symbols only, with the work that is the same for each call done once."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tatami.core.algebra.visit import free_vars
from tatami.core.signature import Signature, symbols
from tatami.core.sizes.binding import check_assumptions, equation_symbols


class QuickBinding:
    """The binding of one signature. `later`: symbols that get their values while the program runs."""

    def __init__(self, signature: Signature, later: Collection[str]) -> None:
        self.signature = signature
        self.ports = [(p.tensor, [(s.as_int(), s.as_name()) for s in p.shape]) for p in signature.inputs]
        self.is_simple = all((number is None) != (name is None) for _, dims in self.ports for number, name in dims)
        given = {s for p in signature.inputs for size in p.shape for s in free_vars(size)}
        shared = [equation_symbols(e) for e in signature.assumptions if not e.is_read]
        decided = {s for names in shared if names & given for s in names}
        self.needed = frozenset((*symbols(signature), *signature.must_bind)) - frozenset(later) | decided

    def bind(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        constants: Mapping[str, tuple[int, ...]],
        sizes: Mapping[str, int] | None,
    ) -> dict[str, int] | None:
        """The result of `bind_sizes`; None if only `bind_sizes` can decide, or has something to refuse."""
        if not self.is_simple:
            return None
        known = dict(sizes or {})
        for tensor, dims in self.ports:
            shape = shapes.get(tensor)
            if shape is None:
                shape = constants.get(tensor)
                if shape is None:
                    continue
            if len(shape) != len(dims) or 0 in shape:
                return None
            for (number, name), value in zip(dims, shape):
                if (number if name is None else known.setdefault(name, value)) != value:
                    return None
        for name, value in self.signature.defaults.items():
            known.setdefault(name, value)
        if not self.needed <= known.keys() or min(known.values(), default=0) < 0:
            return None
        return None if self.signature.assumptions and check_assumptions(self.signature, known) else known
