"""isl objects of one run: built by the Aff API only, hash-consed, never parsed from text (notes: libraries §1).

Sizes become parameters; a product of symbols is one opaque parameter (D2.6). Trivial cases are decided without isl
(`guards.py`, `edges.py`).
"""

from __future__ import annotations

import islpy as isl

from tatami.core.expr import Expr, Floor, Var
from tatami.indexbook.ir import Guard

Extents = dict[str, Expr]


class NotAffine(Exception):
    """The expression has no isl form (a floor by a symbol, an axis times a symbol, min or max)."""


class IslCache:
    """Guards and access maps as isl sets and maps; each distinct map is built once."""

    def __init__(self) -> None:
        self._maps: dict[object, isl.PwMultiAff | None] = {}

    def without_redundant(self, guards: tuple[Guard, ...], extents: Extents) -> tuple[Guard, ...]:
        """The guards that do not follow from the ranges of the axes and the other guards (gist, coalesce,
        remove_redundancies)."""
        try:
            space = Space(extents, [e for g in guards for e in (g.index, g.size)])
            box = space.box()
            sets = [space.guard(g) for g in guards]
        except NotAffine:
            return guards
        kept = list(range(len(guards)))
        for k in range(len(guards)):
            context = box
            for j in kept:
                if j != k:
                    context = context.intersect(sets[j])
            rest = sets[k].gist(context.coalesce().remove_redundancies())
            if rest.plain_is_universe():
                kept.remove(k)
        return tuple(guards[k] for k in kept)

    def access(self, index_map: tuple[Expr, ...], extents: Extents, guards: tuple[Guard, ...] = ()) -> isl.PwMultiAff | None:
        """The access as a piecewise map on its domain, or None if it is not affine."""
        key = (index_map, guards, tuple(extents.items()))
        if key not in self._maps:
            try:
                space = Space(extents, [*index_map, *(e for g in guards for e in (g.index, g.size))])
                domain = space.box()
                for g in guards:
                    domain = domain.intersect(space.guard(g))
                affs = [space.aff(e) for e in index_map]
                target = isl.Space.alloc(isl.DEFAULT_CONTEXT, 0, len(extents), len(index_map)).align_params(space.space)
                made = isl.MultiAff.from_aff_list(target, _aff_list(affs)) if affs else isl.MultiAff.zero(target)
                self._maps[key] = isl.PwMultiAff.from_multi_aff(made).intersect_domain(domain.coalesce())
            except NotAffine:
                self._maps[key] = None
        return self._maps[key]


class Space:
    """One set space: the size parameters of some expressions and the axes of some extents."""

    def __init__(self, extents: Extents, expressions: list[Expr]) -> None:
        self.extents = extents
        self.axes = {name: k for k, name in enumerate(extents)}
        names: dict[str, int] = {}
        for e in (*expressions, *extents.values()):
            for name in self._parameters(e):
                names.setdefault(name, len(names))
        self.parameters = names
        space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, len(names), len(self.axes))
        for name, k in names.items():
            space = space.set_dim_name(isl.dim_type.param, k, name)
        self.space = space
        self.local = isl.LocalSpace.from_space(space)

    def _parameters(self, e: Expr) -> list[str]:
        out = []
        for mono, _ in e.terms:
            plain = [a.name for a in mono if isinstance(a, Var)]
            floors = [a for a in mono if isinstance(a, Floor)]
            if len(plain) + len(floors) != len(mono) or (floors and len(mono) > 1):
                raise NotAffine
            for f in floors:
                if f.den.as_int() is None:
                    raise NotAffine
                out.extend(self._parameters(f.num))
            symbols = [n for n in plain if n not in self.axes]
            if len(symbols) != len(plain) and len(plain) > 1:
                raise NotAffine
            if symbols:
                out.append("__".join(symbols))
        return out

    def aff(self, e: Expr) -> isl.Aff:
        """The expression as an isl affine function on this space."""
        total = isl.Aff.zero_on_domain(self.local)
        for mono, coef in e.terms:
            if not mono:
                total = total.add_constant_val(isl.Val(coef))
                continue
            atom = mono[0]
            if isinstance(atom, Floor):
                term = self.aff(atom.num).scale_down_val(isl.Val(atom.den.as_int() or 1)).floor()
            else:
                name = "__".join(str(a) for a in mono)
                if name in self.axes:
                    term = isl.Aff.var_on_domain(self.local, isl.dim_type.set, self.axes[name])
                else:
                    term = isl.Aff.var_on_domain(self.local, isl.dim_type.param, self.parameters[name])
            total = total.add(term.scale_val(isl.Val(coef)))
        return total

    def at_least_zero(self, e: Expr) -> isl.Set:
        """The points at which `e` is at least 0."""
        return isl.Set.from_basic_set(self.aff(e).ge_basic_set(isl.Aff.zero_on_domain(self.local)))

    def guard(self, g: Guard) -> isl.Set:
        """The points at which a guard holds."""
        return self.at_least_zero(g.index).intersect(self.at_least_zero(g.size - 1 - g.index))

    def box(self) -> isl.Set:
        """The points within the axes' ranges, with every parameter at least 1."""
        out = isl.Set.universe(self.space)
        for name, size in self.extents.items():
            axis = Expr((((Var(name),), 1),))
            out = out.intersect(self.at_least_zero(axis)).intersect(self.at_least_zero(size - 1 - axis))
        for k in range(len(self.parameters)):
            out = out.lower_bound_val(isl.dim_type.param, k, isl.Val(1))
        return out


def _aff_list(affs: list[isl.Aff]) -> isl.AffList:
    out = isl.AffList.alloc(isl.DEFAULT_CONTEXT, len(affs))
    for a in affs:
        out = out.add(a)
    return out
