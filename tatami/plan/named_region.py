"""A Region as planning sees it: by canonical names, with its layouts, its facts and its constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tatami.core.algebra.visit import substitute
from tatami.core.expr import var
from tatami.core.layout import Layout
from tatami.core.module import Module
from tatami.core.signature import is_constant
from tatami.plan.memory.convert import with_layouts
from tatami.poly_core.ir import Contraction, PolyCore, RegionFacts
from tatami.region.ir import Program, Region
from tatami.region.views.alike import OncePerForm
from tatami.region.views.canonical_key import Renaming, canonical


@dataclass(frozen=True)
class NamedRegion:
    """A Region of the program, with its values as they lie in memory; that form, its facts and its constants by canonical
    names."""

    region: Region
    lying: Region
    renamed: Region
    names: Renaming
    facts: RegionFacts
    constants: frozenset[str]

    def hints(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The known sizes by their canonical names."""
        return {new: sizes[old] for old, new in self.names.symbols.items() if old in sizes}


class Named(NamedTuple):
    """The canonical form of a Region, how its values are called there, and its facts."""

    renamed: Region
    names: Renaming
    facts: RegionFacts


def named_region(region: Region, lying: Region, facts: RegionFacts, constants: frozenset[str]) -> NamedRegion:
    """A Region with what planning needs of it. `lying`: the same with its values as they lie in memory."""
    return _named_region(region, lying, _named(lying, facts), constants)


def _named(lying: Region, facts: RegionFacts) -> Named:
    renamed, names = canonical(lying)
    return Named(renamed, names, facts_of_renamed(facts, names))


def _in_names(of: Named, names: Mapping[str, str], name: str) -> Named:
    """The same form, made for a Region whose values are called `names[old]`."""
    tensors, lets = ({names[old]: new for old, new in group.items()} for group in (of.names.tensors, of.names.lets))
    facts = msgspec.structs.replace(of.facts, region=name)
    return Named(of.renamed, Renaming(tensors, lets, of.names.axes, of.names.symbols), facts)


def _named_region(region: Region, lying: Region, of: Named, constants: frozenset[str]) -> NamedRegion:
    known = frozenset(of.names.tensors[p.name] for p in lying.inputs if p.name in constants)
    return NamedRegion(region, lying, of.renamed, of.names, of.facts, known)


def named_regions(
    program: Program, poly_core: PolyCore, layouts: Mapping[str, Layout], constants: frozenset[str]
) -> list[NamedRegion]:
    """The Regions of a program in order, with values that lie in `layouts`."""
    facts = {f.region: f for f in poly_core.regions}
    lying = {item.name: item for item in with_layouts(program, layouts, constants)[0].body if isinstance(item, Region)}
    items = [item for item in program.body if isinstance(item, Region)]
    named = OncePerForm(lambda form: _named(form, facts[form.name]), _in_names)
    return [_named_region(item, lying[item.name], named(lying[item.name]), constants) for item in items]


def facts_of_renamed(facts: RegionFacts, names: Renaming) -> RegionFacts:
    """The facts of the canonical Region, from those of the named one: only those that planning reads."""
    sizes = {old: var(new) for old, new in names.symbols.items()}

    def axes(group: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.axes.get(a, a) for a in group)

    def lets(group: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.lets.get(n, n) for n in group)

    return msgspec.structs.replace(
        facts,
        parallel_axes=axes(facts.parallel_axes),
        reduce_axes=axes(facts.reduce_axes),
        tail_axes=axes(facts.tail_axes),
        compute_at=(),
        min_buffer=(),
        bank_hints=tuple(msgspec.structs.replace(h, tensor=names.tensors.get(h.tensor, h.tensor)) for h in facts.bank_hints),
        contractions=tuple(
            Contraction(
                names.lets[c.acc],
                axes(c.batch),
                axes(c.m),
                axes(c.n),
                axes(c.k),
                names.tensors.get(c.lhs, c.lhs),
                names.tensors.get(c.rhs, c.rhs),
                lets(c.epilogue),
            )
            for c in facts.contractions
        ),
        flops=substitute(facts.flops, sizes),
        bytes_read=substitute(facts.bytes_read, sizes),
        bytes_written=substitute(facts.bytes_written, sizes),
    )


def constant_tensors(region: Module[Program], name: str) -> frozenset[str]:
    """Ids of values that `setup` may prepare: constants of the module, outputs of `setup`, held inputs."""
    program = region.programs[name]
    known = set(region.constants)
    if name == "main" and "setup" in region.programs:
        known |= {o.tensor for o in region.programs["setup"].signature.outputs}
    ids = zip(program.inputs, program.signature.inputs)
    return frozenset(i for i, port in ids if is_constant(port, known))
