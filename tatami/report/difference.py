"""Two dumps compared by node: what was added, removed and changed in each stage.

    tiny main
      + n17 exp (n16)
      - n20 relu (n19)
      ~ n12 dtype: "fp16" -> "fp32"

A node is an object of a list in a document that has a name (`id`, `name`, `region`, …). Names are counters, so a node that is
added renumbers those behind it: nodes of a list are aligned by what they say apart from names, then names of the one document
are read as those of the other, and only what differs after that is told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

import msgspec

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

COUNTED = ("id", "name", "region", "symbol", "debug_name")
"""Fields whose text is a name that a stage gave, the first that an object has; other names than these are a difference."""
NAMES = (*COUNTED, "tensor")
"""Fields that name a node in what is printed."""
KINDS = ("op", "uop", "kind", "s", "v", "p", "stmt")
"""Fields that say which node of a union an object is."""
OWN_NAMES = ("frontend", "tiny@imported", "tiny")
"""Stages whose names are their own; the names of the others are those of tiny, and new ones."""
TEXT_LINES = 8
"""Minimum number of strings in a list that is taken for the lines of a text."""
_WORD = re.compile(r"\w+")
MOST_SHOWN = 100
"""Maximum characters of a value in a line."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference. `node`: program, list and name; `how`: added, removed or changed; `field`: the path in the node that
    changed, with both values."""

    stage: str
    node: str
    how: str
    field: str = ""
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        if self.how == "changed":
            return f"~ {self.node}{' ' * bool(self.field)}{self.field}: {self.before} -> {self.after}"
        return f"{'+' if self.how == 'added' else '-'} {self.node} {self.after or self.before}".rstrip()


class Comparison:
    """A comparison of two dumps, stage by stage in their order: names of `tiny` are those of later stages too."""

    def __init__(self) -> None:
        self.stage = ""
        self.renamed: dict[str, str] = {}
        """Name of a node in the first document -> its name in the second."""
        self.scopes: list[dict[str, str | None]] = []
        """For each node around: names that its own lists gave, with what they were read as before."""

    def changes(self, stage: str, a: Mapping[str, Json], b: Mapping[str, Json]) -> list[Change]:
        """The differences of the programs of one stage, by program, in the order of the documents."""
        self.stage = stage
        if stage in OWN_NAMES:
            self.renamed = {}
        return list(self.objects(a, b, "", ""))

    def values(self, a: Json, b: Json, place: str, node: str) -> Iterator[Change]:
        """Differences of two values. `node`: the names of the nodes around them, `place`: the path in the innermost one."""
        if isinstance(a, dict) and isinstance(b, dict):
            yield from self.objects(a, b, place, node)
        elif isinstance(a, list) and isinstance(b, list) and _are_nodes(a, b):
            yield from self.nodes(a, b, f"{node} {place}".strip())
        elif isinstance(a, list) and isinstance(b, list) and _is_text(a) and _is_text(b):
            if a != b:
                yield Change(
                    self.stage, node, "changed", place, f"{len(a)} lines", f"{len(b)} lines, {_lines(a, b)} of them others"
                )
        elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            for k, (x, y) in enumerate(zip(a, b)):
                yield from self.values(x, y, f"{place}[{k}]", node)
        elif self.read(a) != b:
            yield self.changed(place, node, a, b)

    def objects(self, a: Mapping[str, Json], b: Mapping[str, Json], place: str, node: str) -> Iterator[Change]:
        """Differences of two objects. A key that is a node's name in the first is read as its name in the second."""
        keys = {self.renamed.get(key, key): key for key in a}
        for key in dict.fromkeys((*keys, *b)):
            inside = f"{place}.{key}" if place else key
            old, new = a.get(keys.get(key, "")) if key in keys else None, b.get(key)
            if key in keys and key in b:
                if place or node:
                    yield from self.field(key, old, new, inside, node)
                else:
                    yield from self.values(old, new, "", key)
            elif isinstance(old if key in keys else new, dict):
                yield self.alone(f"{node} {inside}".strip(), old, new)
            else:
                yield self.changed(inside, node, old, new)

    def field(self, key: str, a: Json, b: Json, place: str, node: str) -> Iterator[Change]:
        """Differences of one field; numbers that name a node do not count."""
        if not (key == "id" and isinstance(a, int) and isinstance(b, int)):
            yield from self.values(a, b, place, node)

    def nodes(self, a: Sequence[Json], b: Sequence[Json], place: str) -> Iterator[Change]:
        """Differences of two lists of nodes, aligned by what they say."""
        names = {_name(x, COUNTED) for x in (*a, *b)}
        pairs, removed, added = aligned(a, b, [_key(self.read(x), names) for x in a], [_key(y, names) for y in b])
        for x, y in pairs:
            if not ((old := _name(x, COUNTED)) and (new := _name(y, COUNTED))):
                continue
            if self.scopes and self.renamed.get(old, new) != new:  # the name of another node of the whole program
                yield self.changed("", f"{place} {new}", old, new)
            else:
                self.rename(old, new)
        for x in removed:
            yield self.alone(f"{place} {_name(x)}".strip(), x, None)
        for y in added:
            yield self.alone(f"{place} {_name(y)}".strip(), None, y)
        for x, y in pairs:
            self.scopes.append({})
            yield from self.values(x, y, "", f"{place} {_name(y)}".strip())
            self.leave()

    def rename(self, old: str, new: str) -> None:
        """Read a name of the first document as one of the second, as far as the node around it goes."""
        if self.scopes:
            self.scopes[-1].setdefault(old, self.renamed.get(old))
        self.renamed[old] = new

    def leave(self) -> None:
        """Read names as before the innermost node."""
        for name, was in self.scopes.pop().items():
            if was is None:
                del self.renamed[name]
            else:
                self.renamed[name] = was

    def read(self, value: Json) -> Json:
        """A value of the first document, its names replaced by those of the second."""
        if isinstance(value, str):
            return self.renamed.get(value, value)
        if isinstance(value, list):
            return [self.read(v) for v in value]
        if isinstance(value, dict):
            return {self.renamed.get(k, k): self.read(v) for k, v in value.items()}
        return value

    def alone(self, node: str, a: Json, b: Json) -> Change:
        """The change of a node that one document has."""
        if b is None:
            return Change(self.stage, node, "removed", before=_shown(a))
        return Change(self.stage, node, "added", after=_shown(b))

    def changed(self, place: str, node: str, a: Json, b: Json) -> Change:
        """The change of a field of a node that both have."""
        return Change(self.stage, node, "changed", place, _shown(a), _shown(b))


Pairs: TypeAlias = "list[tuple[Json, Json]]"


def aligned(
    a: Sequence[Json], b: Sequence[Json], a_keys: Sequence[str], b_keys: Sequence[str]
) -> tuple[Pairs, list[Json], list[Json]]:
    """(pairs of nodes, nodes of `a` alone, nodes of `b` alone): those with equal keys in order, then in the gaps those of one kind
    that share most words."""
    pairs: Pairs = []
    removed: list[Json] = []
    added: list[Json] = []
    for word, i, i_end, j, j_end in SequenceMatcher(None, a_keys, b_keys, autojunk=False).get_opcodes():
        if word == "equal":
            pairs += zip(a[i:i_end], b[j:j_end])
            continue
        left = list(range(j, j_end))
        for k in range(i, i_end):
            alike = [y for y in left if _kind(b[y]) == _kind(a[k])]
            best = max(alike, key=lambda y: _likeness(a_keys[k], b_keys[y]), default=None)
            if best is None:
                removed.append(a[k])
            else:
                left.remove(best)
                pairs.append((a[k], b[best]))
        added += (b[y] for y in left)
    return pairs, removed, added


def _are_nodes(a: Sequence[Json], b: Sequence[Json]) -> bool:
    """True if objects in the lists have names, or if both are lists of objects and one is longer."""
    both = (*a, *b)
    return any(_name(v) for v in both) or (len(a) != len(b) and all(isinstance(v, dict) for v in both))


def _is_text(values: Sequence[Json]) -> bool:
    return len(values) >= TEXT_LINES and all(isinstance(v, str) for v in values)


def _lines(a: Sequence[Json], b: Sequence[Json]) -> int:
    """Number of lines of `b` that are not in `a` in their order."""
    words = SequenceMatcher(None, [str(x) for x in a], [str(y) for y in b], autojunk=False).get_matching_blocks()
    return len(b) - sum(block.size for block in words)


def _likeness(a: str, b: str) -> float:
    """Share of the words of two texts that both have."""
    x, y = set(_WORD.findall(a)), set(_WORD.findall(b))
    return len(x & y) / max(1, len(x | y))


def _name(value: Json, fields: Sequence[str] = NAMES) -> str:
    if not isinstance(value, dict):
        return ""
    return next((v for n in fields if isinstance(v := value.get(n), str)), "")


def _kind(value: Json) -> Json:
    """The word that says which node of a union an object is."""
    while isinstance(value, dict):
        value = next((value[k] for k in KINDS if k in value), None)
    return value


def _key(value: Json, names: set[str]) -> str:
    """The text of a node without names."""
    return msgspec.json.encode(_nameless(value, names)).decode()


def _nameless(value: Json, names: set[str]) -> Json:
    if isinstance(value, str):
        return "" if value in names else value
    if isinstance(value, list):
        return [_nameless(v, names) for v in value]
    if isinstance(value, dict):
        return {("" if k in names else k): _nameless(v, names) for k, v in value.items()}
    return value


def _shown(value: Json) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"
