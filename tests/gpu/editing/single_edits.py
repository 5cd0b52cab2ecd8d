"""Every single edit of a document: numbers, words and flags changed, entries left out, written twice or exchanged."""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Path = tuple[str | int, ...]


def pattern(path: Path) -> str:
    """The path without positions."""
    return ".".join("*" if isinstance(k, int) else k for k in path)


def places(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value inside a document, with its path."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key), inner
        yield from places(inner, (*path, key))


Change = Callable[[], Any]
"""Makes the document after an edit."""


def single_edits(document: Any) -> Iterator[tuple[str, Any]]:
    """(the edit in words, the document after it), in the order of the document."""
    return ((text, change()) for text, change in single_changes(document))


def single_changes(document: Any) -> Iterator[tuple[str, Change]]:
    """(the edit in words, what makes the document after it), in the order of the document."""
    alike: dict[str, set[str]] = defaultdict(set)
    found = list(places(document))
    for path, value in found:
        if isinstance(value, str):
            alike[pattern(path)].add(value)
    for path, value in found:
        for word, after in _others(value, sorted(alike[pattern(path)] - {value}) if isinstance(value, str) else []):
            yield f"{_text(path)}: {word}", partial(_put, document, path, after)
        if isinstance(path[-1], int):
            yield from _in_list(document, path)
        else:
            yield f"{_text(path)}: left out", partial(_without, document, path)


def _text(path: Path) -> str:
    return ".".join(map(str, path))


def _others(value: Any, alike: list[str]) -> Iterator[tuple[str, Any]]:
    match value:
        case bool():
            yield f"{value} -> {not value}", not value
        case int():
            for n in dict.fromkeys((value + 1, value - 1, 2 * value, value // 2)):
                if n != value and n >= 0:
                    yield f"{value} -> {n}", n
        case str():
            more = [f"{value} + 1", f"2*({value})", "0"] if re.search(r"\d|[*+]", value) or len(value) == 1 else []
            for word in (*alike[:2], *more):
                yield f"{value[:60]} -> {word[:60]}", word
        case _:
            return


def _in_list(document: Any, path: Path) -> Iterator[tuple[str, Change]]:
    *above, i = path
    assert isinstance(i, int)
    count = len(at(document, tuple(above)))
    yield f"{_text(path)}: left out", partial(_without, document, path)
    yield f"{_text(path)}: twice", partial(_twice, document, path)
    if i + 1 < count:
        yield f"{_text(path)}: exchanged with the next", partial(_turned, document, path)


def _twice(document: Any, path: Path) -> Any:
    return _with_list(document, path, lambda items, i: items.insert(i, items[i]))


def _turned(document: Any, path: Path) -> Any:
    def turn(items: list[Any], i: int) -> None:
        items[i], items[i + 1] = items[i + 1], items[i]

    return _with_list(document, path, turn)


def _with_list(document: Any, path: Path, change: Callable[[list[Any], int], None]) -> Any:
    out = _opened(document, path[:-1])
    change(at(out, path[:-1]), path[-1])  # type: ignore[arg-type]
    return out


def at(document: Any, path: Path) -> Any:
    """The value at a path."""
    for key in path:
        document = document[key]
    return document


def _put(document: Any, path: Path, value: Any) -> Any:
    out = _opened(document, path[:-1])
    at(out, path[:-1])[path[-1]] = value
    return out


def _without(document: Any, path: Path) -> Any:
    out = _opened(document, path[:-1])
    del at(out, path[:-1])[path[-1]]
    return out


def _opened(document: Any, path: Path) -> Any:
    """A copy of the values along a path, which shares all others with the document: a copy of everything would take longer than
    the reading of most edits."""
    out = copy.copy(document)
    inner = out
    for key in path:
        inner[key] = copy.copy(inner[key])
        inner = inner[key]
    return out
