"""Every string of a JSON document, keys among them, and the document with another string in one of these places."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Step = str | int
TAGS = ("stage", "uop", "op", "v", "s", "p", "a", "is", "kind", "arg", "stmt")
"""Fields that say what an object is: places in objects of different kinds are different places."""
NAMED = ("programs", "tensors", "kernels", "origins", "main", "constants", "units", "partitions", "plans", "inputs", "sizes")
"""Fields that hold things by their names: places below different names are of one sort."""


def _below(sort: str, tag: str, key: str) -> str:
    """The last three steps: expressions nest, and documents that are embedded are read as they are alone."""
    return ".".join([*sort.split(".")[-2:], f"{tag}{key}"])


@dataclass(frozen=True)
class Place:
    """`path` leads to a string, or to the object in which `key` stands."""

    path: tuple[Step, ...]
    key: str | None = None
    sort: str = ""
    """The sort of the place: the last fields of its path, without numbers and names."""

    def __str__(self) -> str:
        return "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in self.path) + (
            "" if self.key is None else f" key {self.key}"
        )


def places(value: Any) -> Iterator[Place]:
    """Places of strings, in the order of the document."""
    stack: list[tuple[Any, tuple[Step, ...], str]] = [(value, (), "")]
    while stack:
        item, path, sort = stack.pop()
        if isinstance(item, str):
            yield Place(path, None, sort)
        elif isinstance(item, dict):
            tag = next((f"<{item[t]}>" for t in TAGS if isinstance(item.get(t), str)), "")
            for key in item:
                yield Place(path, key, f"{sort}{tag} key")
            named = path and path[-1] in NAMED
            stack += [(v, (*path, k), _below(sort, tag, "*" if named else k)) for k, v in reversed(item.items())]
        elif isinstance(item, list):
            stack += [(v, (*path, k), f"{sort}[]") for k, v in reversed(list(enumerate(item)))]


def planted(value: Any, place: Place, text: str) -> Any:
    """A copy of the document with `text` at the place."""
    out = copy.deepcopy(value)
    if not place.path and place.key is None:
        return text
    at = out
    for step in place.path if place.key is not None else place.path[:-1]:
        at = at[step]
    if place.key is None:
        at[place.path[-1]] = text
    else:
        items = [(text if k == place.key else k, v) for k, v in at.items()]
        at.clear()
        at.update(items)
    return out
