"""Edits of a document: one or two changes of fields that the seed decides.

    seed -> program, stage, [(path, before, after), …]

Fields are drawn by their pattern first (``programs.main.kernels.*.body.*.index``), so that a rare field is met as often as a
common one; then one of its places. The new value is of the kind of the old: a number a little off, at an edge, or one that
stands elsewhere; an index expression with another term, symbol or factor; a name of something else; a list with an item less,
twice or elsewhere; an object with a field less, more, or under another name.
"""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

Path = tuple[str | int, ...]
STAGE_WEIGHTS: Mapping[str, int] = {
    "frontend": 2,
    "tiny@imported": 2,
    "tiny": 2,
    "indexbook": 3,
    "poly_view": 3,
    "region@explicit": 3,
    "region": 3,
    "poly_core": 2,
    "plan": 3,
    "loop": 5,
    "execution": 5,
    "reference": 2,
}
EDGES = (0, -1, 1, 2, 63, 255, 4096, -4096, 1 << 31, 1 << 62, -(1 << 63), 1 << 64)
_EXPRESSION = re.compile(r"[A-Za-z0-9_'+\-*/%() ,]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_']*")
_OWN = ("programs", "programs", "programs", "programs", "programs", "programs", "programs", "envelope", "inputs")
"""Parts of a document that an edit falls in, drawn with this frequency: mostly the stage's own programs."""


@dataclass(frozen=True)
class Edit:
    path: Path
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {_short(self.before)} -> {_short(self.after)}"


MISSING = "(no such field)"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 90 else f"{text[:87]}..."


def places(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value in a document with its path, the document itself left out."""
    items: Iterator[tuple[str | int, Any]]
    items = iter(value.items()) if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else iter(())
    for key, inner in items:
        yield (*path, key), inner
        yield from places(inner, (*path, key))


def pattern(path: Path) -> str:
    """The path with positions left out, and the names of what the document names itself."""
    return ".".join("*" if isinstance(k, int) or (i and path[i - 1] in _NAMED) else str(k) for i, k in enumerate(path))


_NAMED = frozenset(["programs", "kernels", "tensors", "values", "constants", "origins", "inputs", "layouts", "sizes"])
"""Objects whose keys are names."""


def edited(document: Mapping[str, Any], rng: Random, count: int) -> tuple[dict[str, Any], list[Edit]]:
    """A copy with `count` fields changed."""
    out = copy.deepcopy(dict(document))
    edits: list[Edit] = []
    for _ in range(50):
        if len(edits) == count:
            break
        edit = _edit(out, rng)
        if edit is not None:
            edits.append(edit)
    return out, edits


def _edit(document: dict[str, Any], rng: Random) -> Edit | None:
    where = rng.choice(_OWN)
    groups: dict[str, list[tuple[Path, Any]]] = defaultdict(list)
    for path, value in places(document):
        top = path[0] if path[0] in ("programs", "inputs") else "envelope"
        if top == where and len(path) > 1 - (where == "envelope"):
            groups[pattern(path)].append((path, value))
    if not groups:
        return None
    names = sorted(groups)
    group = groups[rng.choice(names)]
    path, before = rng.choice(group)
    alike = [v for p, v in group if v != before]
    after = changed(before, alike, rng)
    if where == "programs" and isinstance(before, str | int) and rng.random() < 0.25:
        count = _everywhere(document[where], before, after)
        return Edit((*path, f"and {count - 1} more"), before, after) if after != before and after is not MISSING else None
    if after is MISSING:
        parent = at(document, path[:-1])
        del parent[path[-1]]
        return Edit(path, before, MISSING)
    if after == before and type(after) is type(before):
        return None
    at(document, path[:-1])[path[-1]] = after
    return Edit(path, before, after)


def _everywhere(value: Any, before: Any, after: Any) -> int:
    """Puts `after` wherever the text or number stands, so that what has to agree still does; how many times."""
    if after is MISSING:
        return 0
    count = 0
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    for key, inner in items:
        if type(inner) is type(before) and inner == before:
            value[key] = after
            count += 1
        else:
            count += _everywhere(inner, before, after)
    return count


def at(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


def changed(value: Any, alike: Sequence[Any], rng: Random) -> Any:
    """Another value in its place; MISSING to leave the field out."""
    draw = rng.random()
    if draw < 0.05:
        return MISSING
    if draw < 0.2 and alike:
        return copy.deepcopy(rng.choice(alike))
    if draw < 0.23:
        return rng.choice([None, "", 0, [], {}, "x", True, -1, 1.5])
    match value:
        case bool():
            return not value
        case int():
            return rng.choice([value + 1, value - 1, value * 2, -value, value + 8, rng.choice(EDGES)])
        case float():
            return rng.choice([value + 1.0, -value, 0.0, 1e300, value * 2])
        case str():
            return _other_text(value, alike, rng)
        case list():
            return _other_list(value, rng)
        case dict():
            return _other_object(value, rng)
        case _:
            return rng.choice([0, 1, -1, "x", [], {}, True])


def _other_text(value: str, alike: Sequence[Any], rng: Random) -> str:
    names = _NAME.findall(value)
    if _EXPRESSION.fullmatch(value) and names and (len(names) > 1 or any(c in value for c in "+-*/ ") or rng.random() < 0.6):
        others = [n for v in alike if isinstance(v, str) for n in _NAME.findall(v)] or names
        name = rng.choice(names)
        return rng.choice(
            [
                f"{value} + 1",
                f"{value} - 1",
                f"({value}) * 2",
                f"{value} - 4096",
                f"{value} + {rng.choice(EDGES)}",
                f"({value}) // 2",
                f"min({value}, 1)",
                re.sub(rf"\b{re.escape(name)}\b", rng.choice(others), value, count=1),
                str(rng.choice(EDGES)),
                _other_number(value, rng),
            ]
        )
    texts = [v for v in alike if isinstance(v, str)]
    return rng.choice([*(texts or [value]), f"{value}x", value[:-1], value.swapcase()])


def _other_number(value: str, rng: Random) -> str:
    found = list(re.finditer(r"\d+", value))
    if not found:
        return f"3*({value})"
    m = rng.choice(found)
    return f"{value[: m.start()]}{rng.choice([int(m[0]) + 1, max(0, int(m[0]) - 1), int(m[0]) * 2, 4096])}{value[m.end() :]}"


def _other_list(value: list[Any], rng: Random) -> list[Any]:
    out = copy.deepcopy(value)
    if not out:
        return [rng.choice([0, "x", 1, None])]
    i, j = rng.randrange(len(out)), rng.randrange(len(out))
    match rng.randrange(4):
        case 0:
            del out[i]
        case 1:
            out.insert(j, copy.deepcopy(out[i]))
        case 2 if i != j:
            out[i], out[j] = out[j], out[i]
        case _:
            out = out[:i]
    return out


def _other_object(value: dict[str, Any], rng: Random) -> dict[str, Any]:
    out = copy.deepcopy(value)
    if not out:
        return {"x": 1}
    key = rng.choice(sorted(out, key=str))
    match rng.randrange(3):
        case 0:
            del out[key]
        case 1:
            out[f"{key}x"] = copy.deepcopy(out[key])
        case _:
            out = {(f"{k}x" if k == key else k): v for k, v in out.items()}
    return out


def draw(seed: int, programs: Mapping[str, Mapping[str, dict[str, Any]]]) -> tuple[str, str, dict[str, Any], list[Edit]]:
    """(program, stage, edited document, edits) of a seed; a third of all have two edits."""
    rng = Random(seed)
    program = rng.choice(sorted(programs))
    stages = [s for s in STAGE_WEIGHTS if s in programs[program]]
    stage = rng.choices(stages, [STAGE_WEIGHTS[s] for s in stages])[0]
    document, edits = edited(programs[program][stage], rng, 2 if rng.random() < 1 / 3 else 1)
    return program, stage, document, edits
