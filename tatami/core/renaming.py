"""Records under other names: a field says by its type what it names, so that one function renames every record.

    class Turn(Struct):                          renamed(Turn("i", "j", 64), {AXIS: {"i": "x0", "j": "x1"}.__getitem__})
        along: Annotated[str, AXIS]      ->      Turn("x0", "x1", 64)
        across: Annotated[str, AXIS]
        tile: int

Marks are found in tuples, dicts (keys and values), optional fields and records inside records.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

R = TypeVar("R", bound=msgspec.Struct)


class Mark(msgspec.Struct, frozen=True):
    """The kind of thing that a name names: metadata of an annotated `str`."""

    what: str


Names: TypeAlias = Mapping[Mark, Callable[[str], str]]
"""The new name of an old one, for each mark of the records that are renamed."""
Change: TypeAlias = Callable[[Any, Names], Any]


def renamed(record: R, names: Names) -> R:
    """`record` with all its marked names changed."""
    change = _change_of_record(type(record))
    return record if change is None else change(record, names)


@cache
def _change_of_record(kind: type[msgspec.Struct]) -> Change | None:
    changes: dict[str, Change] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if (change := _change(hint)) is not None:
            changes[name] = change
    if not changes:
        return None

    def of_record(record: Any, names: Names) -> Any:
        return msgspec.structs.replace(record, **{f: change(getattr(record, f), names) for f, change in changes.items()})

    return of_record


def _change(hint: Any) -> Change | None:
    """The function that renames a value of this type; None if nothing in it is a name."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        mark = next((m for m in hint.__metadata__ if isinstance(m, Mark)), None)
        return _change(args[0]) if mark is None else lambda value, names: names[mark](value)
    if origin is tuple:
        return _change_of_tuple(args)
    if origin is dict:
        return _change_of_dict(*args)
    if origin in (Union, types.UnionType):
        return _change_of_optional(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _change_of_record(hint)
    if origin is not Literal and any(_change(a) is not None for a in args):
        raise TypeError(f"{hint} holds names; they are changed in tuples, dicts and records only")
    return None


def _change_of_tuple(args: tuple[Any, ...]) -> Change | None:
    if len(args) == 2 and args[1] is Ellipsis:
        each = _change(args[0])
        return each and (lambda value, names: tuple(each(x, names) for x in value))
    entries = [_change(a) for a in args]
    if not any(entries):
        return None
    return lambda value, names: tuple(x if c is None else c(x, names) for c, x in zip(entries, value, strict=True))


def _change_of_dict(key: Any, value: Any) -> Change | None:
    keys, values = _change(key), _change(value)
    if keys is None and values is None:
        return None
    return lambda table, names: {
        k if keys is None else keys(k, names): v if values is None else values(v, names) for k, v in table.items()
    }


def _change_of_optional(hint: Any) -> Change | None:
    """Only `X | None` may hold names: of other unions nothing says which member a value is."""
    changes = [c for c in map(_change, get_args(hint)) if c is not None]
    if not changes:
        return None
    if len(get_args(hint)) != 2 or type(None) not in get_args(hint):
        raise TypeError(f"{hint} holds names; a field of names is one type, or one type or None")
    return lambda value, names: None if value is None else changes[0](value, names)
