"""Regions that differ in the names of their values only: a pass derives the first one and renames its result for the others.

    r3: n7 = n5[m] + n6[m]              r9: n31 = n5[m] + n30[m]
    form of both: #2 = #0[m] + #1[m]    a result for r3 is one for r9 with n7 -> n31, n6 -> n30

Tensors and lets are values; axes and size symbols keep their names, so that no index expression is built anew. Regions have
one form if their values stand at the same places. A pass that looks at the names of values only to see whether two are equal
cannot tell such Regions apart; each pass that is called once per form is one. It may name a new let after another: `n7_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar
from weakref import ref

from tatami.region.ir import Region
from tatami.region.views.canonical_key import Renaming, rename

T = TypeVar("T")

PART = "_s"
"""Suffix of a let that a rule splits off from the let whose name precedes it."""


class Form(NamedTuple):
    """A Region without the names of its values. `key`: equal for Regions that only these names tell apart; `names`: the names,
    in order of their places."""

    key: Region
    names: tuple[str, ...]


_KNOWN: dict[int, tuple[ref[Region], Form]] = {}
"""Forms of the Regions that exist, by their identity: several passes ask for the form of one Region."""


def form_of(region: Region) -> Form:
    """The form of a Region that is not opaque."""
    place = id(region)
    if place not in _KNOWN:
        _KNOWN[place] = ref(region, lambda _: _KNOWN.pop(place, None)), _form(region)
    return _KNOWN[place][1]


def _form(region: Region) -> Form:
    ports = (*(p.name for p in region.inputs), *(n for t in region.outputs for n in (t.name, t.updates) if n))
    names = tuple(dict.fromkeys((*ports, *(let.name for let in region.lets))))
    places = {name: f"#{k}" for k, name in enumerate(names)}
    return Form(rename(region, Renaming(places, places, {}, {}), ""), names)


def original_name(name: str, known: Mapping[str, object]) -> str:
    """The name of the let that `name` is a part of, itself if it is in `known`; "" if there is none."""
    while name not in known and name.endswith(PART):
        name = name.removesuffix(PART)
    return name if name in known else ""


def region_in_names(region: Region, names: Mapping[str, str], name: str) -> Region | None:
    """The Region called `name` with its values renamed; None if it has a let that `names` does not lead to."""
    to = dict(names)
    for let in region.lets:
        if let.name not in to:
            origin = original_name(let.name, names)
            if not origin:
                return None
            to[let.name] = names[origin] + let.name[len(origin) :]
    return rename(region, Renaming(to, to, {}, {}), name)


class OncePerForm(Generic[T]):
    """A pure function of a Region, called once for each form. `in_names(result, names, name)`: the result for a Region called
    `name`, whose values are called `names[old]`; None if it cannot be said without calling the function."""

    def __init__(self, make: Callable[[Region], T], in_names: Callable[[T, Mapping[str, str], str], T | None]) -> None:
        self._make = make
        self._in_names = in_names
        self._made: dict[Region, tuple[tuple[str, ...], T]] = {}

    def __call__(self, region: Region) -> T:
        """The function's result for `region`."""
        if region.opaque is not None:
            return self._make(region)
        form = form_of(region)
        found = self._made.get(form.key)
        if found is None:
            result = self._make(region)
            self._made[form.key] = (form.names, result)
            return result
        names, first = found
        renamed = self._in_names(first, dict(zip(names, form.names, strict=True)), region.name)
        return self._make(region) if renamed is None else renamed
