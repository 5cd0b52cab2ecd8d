"""The place of a fault in the text of a document: the line that an editor marks.

A diagnostic names its place as the verifier of its stage does: line and column of broken JSON, the path of a field, a program and
a path, or a node, a kernel, a Region. The text is read once, token by token, and the best match of these counts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tatami.core.codec import MAX_DEPTH
from tatami.core.diagnostic import Diagnostic
from tatami.explorer.messages import DECISIONS, Place
from tatami.stages import BY_NAME

_TOKEN = re.compile(r'[{}\[\],:]|"(?:[^"\\]|\\.)*"|[^\s{}\[\],:"]+')
"""A token of JSON: a bracket, a comma, a text, a number or a word."""
_POSITION = re.compile(r":(\d+):(\d+)$")
"""Line and column at the end of a place."""
_FIELD = re.compile(r"`(\$[^`]*)`")
"""The path of a field in a reason."""
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.?([^.\[\]]+)")
"""A step of such a path: a place in a list, or a key."""
_NAMES = ("id", "name", "symbol", "region", "debug_name", "kernel", "tensor")
"""Fields that name the object they stand in."""

Path = tuple[str | int, ...]


def place_of(text: str, fault: Diagnostic) -> Place | None:
    """The place of the fault in the text of the document that it is about; None if nothing in the text has its name."""
    found = _POSITION.search(fault.at)
    if found is not None:
        return Place(max(int(found[1]) - 1, 0), max(int(found[2]) - 1, 0))
    return _place(text, _offset(text, _paths(fault), _words(fault)))


def place_at(text: str, path: Path) -> Place | None:
    """The place of the value that a path leads to, or as far as it leads."""
    return _place(text, _offset(text, [path], []))


def _place(text: str, offset: int | None) -> Place | None:
    if offset is None:
        return None
    start = text.rfind("\n", 0, offset) + 1
    return Place(text.count("\n", 0, offset), offset - start)


def _paths(fault: Diagnostic) -> list[Path]:
    """Paths that the fault names, the most exact first."""
    base: Path = ()
    _, colon, place = fault.at.partition(": ")
    inside = place if colon else fault.at.partition(".programs.")[2] or fault.at.partition(" programs.")[2]
    if inside:
        program, *rest = _steps(inside)
        base = ("programs", program, *rest)
    elif "." in fault.at:
        base = tuple(_steps(fault.at.partition(".")[2]))
    out: list[Path] = []
    field = _FIELD.search(fault.why)
    if field is not None:
        steps = _steps(field[1][1:])
        out += [(*base, *steps), tuple(steps)]
    return [*out, base] if base else out


def _steps(path: str) -> list[str | int]:
    """The steps of a path, up to one that is not told (`[...]`)."""
    out: list[str | int] = []
    for index, key in _STEP.findall(path):
        if index == "...":
            break
        out.append(int(index) if index else int(key) if key.isdigit() else key)
    return out


def _words(fault: Diagnostic) -> list[str]:
    """Names in the place of a fault, the one that it ends in first."""
    own = fault.at.partition(" (")[0]
    if own in BY_NAME or own == DECISIONS:
        return []
    dots = [m.end() for m in re.finditer(r"\.", own)]
    parts = [own, *reversed(re.split(r"[\s:,]+", own)), *(own[k:] for k in dots), *reversed(re.split(r"[^\w@]+", own))]
    return [w for w in dict.fromkeys(parts) if w]


def _offset(text: str, paths: list[Path], words: list[str]) -> int | None:
    """The offset of the value that a path leads to, else of an object of one of these names, else of the longest part of a path."""
    if not paths and not words:
        return None
    exact: dict[Path, int] = {}
    named: dict[str, int] = {}
    keyed: dict[str, int] = {}
    longest = (0, 0)
    wanted = set(words)
    for path, offset, value in _values(text):
        for p in paths:
            if path == p:
                exact.setdefault(p, offset)
            elif longest[0] < len(path) < len(p) and path == p[: len(path)]:
                longest = (len(path), offset)
        key = path[-1] if path else ""
        if key in _NAMES and isinstance(value, str) and value in wanted:
            named.setdefault(value, offset)
        elif isinstance(key, str) and key in wanted:
            keyed.setdefault(key, offset)
    for p in paths:
        if p in exact and not (len(p) == 2 and p[0] == "programs"):  # a whole program says nothing
            return exact[p]
    for word in words:
        for found in (named, keyed):
            if word in found:
                return found[word]
    return exact.get(paths[0], longest[1] or None) if paths else None


def _values(text: str) -> Iterator[tuple[Path, int, object]]:
    """(path, offset, value) of each value of a JSON text; the value of a list or an object is None. The offset of a member of an
    object is that of its key. A text that is not JSON, or is nested deeper than a document may be, ends where that shows."""
    frames: list[tuple[bool, str | int | None, int]] = []  # an object or a list: its key or index now, the offset of the key
    for match in _TOKEN.finditer(text):
        token, offset = match[0], match.start()
        if token == ":":
            continue
        if token in "}]":
            frames = frames[:-1]
            continue
        if token == ",":
            if frames:
                is_object, key, _ = frames[-1]
                frames[-1] = (is_object, None if is_object or not isinstance(key, int) else key + 1, 0)
            continue
        value = _read(token)
        if value is None and token not in "{[":
            return
        if frames and frames[-1][0]:
            if frames[-1][1] is None:
                if token[0] != '"':
                    return
                frames[-1] = (True, value, offset)
                continue
            offset = frames[-1][2]
        path = tuple(key for _, key, _ in frames if key is not None)
        yield path, offset, value
        if token in "{[":
            if len(frames) == MAX_DEPTH:
                return
            frames.append((token == "{", None if token == "{" else 0, 0))


def _read(token: str) -> str | None:
    """A text without its quotes, a number or word as it is; None for a bracket, and for a text that JSON does not allow."""
    if token[0] != '"':
        return None if token in "{[" else token
    try:
        return str(json.loads(token))
    except ValueError:
        return None
