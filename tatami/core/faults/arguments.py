"""Checks of arguments of public functions: a value of another type is one diagnostic, at the argument (reliability.md)."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tatami.core.diagnostic import TatamiError, fail

_SIZES = 'write for example sizes={"B": 32}, {"B": (1, 32, 512)} or {"B": [1, 8, (16, 512)]}'


def path_argument(value: Any, what: str) -> Path:
    """`value` as a path. Raises TatamiError InvalidAttribute unless it is a str or a path of str."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise _refused(what, value, "a path", "give a str or a pathlib.Path")
    return Path(value)


def bool_argument(value: Any, what: str) -> bool:
    """True if `value` is True, False if it is False. Raises InvalidAttribute for anything else: the word "no" is true to
    Python."""
    if not isinstance(value, bool):
        raise _refused(what, value, "True or False", f"write {what}=True or {what}=False")
    return value


def mapping_argument(value: Any, what: str) -> Mapping[str, Any]:
    """`value`, a mapping whose keys are names. Raises InvalidAttribute for anything else."""
    if not isinstance(value, Mapping):
        raise _refused(what, value, "a mapping", "give a dict by names")
    for name in value:
        if not isinstance(name, str):
            raise _refused(f"{what}[{name!r:.40}]", name, "a name", "names are strings")
    return value


def text_argument(value: Any, what: str) -> str:
    """`value`, a str. Raises InvalidAttribute for anything else."""
    if not isinstance(value, str):
        raise _refused(what, value, "a text", "give a str")
    return value


def count_argument(value: Any, what: str) -> int | None:
    """`value` as a number from 0 on, or None for the default. Raises InvalidAttribute for anything else."""
    number = None if value is None else _integer(value)
    if value is not None and (number is None or number < 0):
        raise _refused(what, value, "a number from 0 on", "give an int, or None for the default")
    return number


def sizes_argument(value: Any) -> dict[str, Any]:
    """Symbol -> size as Python's integers; `None` is an empty mapping. Raises InvalidSymbol, at the symbol."""
    return {n: _size(v, f"sizes[{n!r:.80}]") for n, v in mapping_argument({} if value is None else value, "sizes").items()}


def _size(value: Any, at: str) -> Any:
    """One entry of `sizes`: a number; a range (least, usual, greatest); a list of numbers and ranges."""
    if isinstance(value, list):
        if not value:
            raise fail("InvalidSymbol", at, "the list asks for no program", _SIZES)
        return [_range(v, at) if isinstance(v, tuple) else _number(v, at) for v in value]
    return _range(value, at) if isinstance(value, tuple) else _number(value, at)


def _range(value: tuple[Any, ...], at: str) -> tuple[int, ...]:
    return tuple(_number(v, at) for v in value)


def _number(value: Any, at: str) -> int:
    number = _integer(value)
    if number is None or number < 0:
        raise fail("InvalidSymbol", at, f"{value!r:.80} is not a size", _SIZES)
    return number


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _refused(what: str, value: Any, wanted: str, how: str) -> TatamiError:
    return fail("InvalidAttribute", what, f"{value!r:.80} of type {type(value).__name__} is not {wanted}", how)


def seconds_argument(value: object) -> float:
    """The seconds of `tune=`; 0 for None. Raises InvalidAttribute."""
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise fail("InvalidAttribute", "tune", f"{value!r:.80} is not a number of seconds", "give seconds above 0, or None")
    return float(value)


def cluster_argument(value: object, is_tuned: bool) -> str:
    """The address of `ray=`; empty for None. `is_tuned`: whether a search was asked for. Raises InvalidAttribute."""
    if value is None:
        return ""
    if not isinstance(value, str) or not value.strip():
        raise _refused("ray", value, "an address", 'give the address of the head node, as "10.0.0.1:6379", or "auto"')
    if not is_tuned:
        raise fail("InvalidAttribute", "ray", "a cluster measures for a search only", "give tune=60 too, or leave ray out")
    return value
