"""The definitions that a unit's text needs.

A *definition* is a piece of C named by a key such as ``f32x16`` (a vector type) or ``exp_f32x16`` (a function): made by one
of the makers (`definitions.MAKERS`), or a file of `math_text`. `Needs` collects the keys that a unit uses and prints each
once, after the definitions that it needs itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TypeAlias

from tatami.c.kernels.c_types import SHORT_C, SHORT_SIZE, short
from tatami.core.dtype import DType

_MATH = files("tatami.c") / "math_text"


class Needs:
    """Definitions in the order in which they have to be printed; `makers` by the first word of a key, all others are files."""

    def __init__(self, makers: Mapping[str, Maker]) -> None:
        self.makers = makers
        self.texts: dict[str, str] = {}

    def add(self, key: str) -> str:
        """The C name of the definition `key`, which becomes required."""
        if key not in self.texts:
            text = _define(key, self)
            self.texts.setdefault(key, text)
        return _name(key)

    def vector(self, element: str, lanes: int) -> str:
        """The C type of `lanes` elements: a vector, or the element's own type for one."""
        return SHORT_C[element] if lanes == 1 else self.add(f"{element}x{lanes}")

    def register(self, dtype: DType, lanes: int) -> str:
        """The C type of a register of this dtype; its vector type becomes required."""
        return self.vector(short(dtype), lanes)

    def text(self) -> str:
        """The text of all required definitions, in order."""
        return "\n".join(t for t in self.texts.values() if t)


Maker: TypeAlias = Callable[[str, str, int, Needs], str]
"""The text of a definition from its key, the key without lanes, the number of lanes, and the definitions it may require."""


def _name(key: str) -> str:
    return key if "_" not in key else f"t_{key}"


def _define(key: str, needs: Needs) -> str:
    base, _, lanes_text = key.rpartition("x")
    lanes = int(lanes_text) if lanes_text.isdigit() else 0
    base = base if lanes else key
    if base in SHORT_C:
        size = SHORT_SIZE[base] * lanes
        c = SHORT_C[base]
        return (
            f"typedef {c} {key} __attribute__((vector_size({size})));\n"
            f"typedef {c} {key}_u __attribute__((vector_size({size}), aligned({SHORT_SIZE[base]}), may_alias));"
        )
    for prefix, make in needs.makers.items():
        if key.startswith(prefix + "_"):
            return make(key, base, max(lanes, 1), needs)
    return _from_file(key, base, lanes, needs)


@cache
def _file_text(name: str) -> str:
    return _places()[f"{name}.c"].read_text(encoding="utf-8")


@cache
def _places() -> dict[str, Traversable]:
    """The files of `math_text` by their names, which are unique in all its folders."""
    return {file.name: file for folder in _MATH.iterdir() if folder.is_dir() for file in folder.iterdir()}


def _from_file(key: str, base: str, lanes: int, needs: Needs) -> str:
    """The text of a template of `math_text`: `@W` is the number of lanes; ``/* needs: a b */`` on the first line."""
    text = _file_text(base)
    first, _, rest = text.partition("\n")
    if first.startswith("/* needs:"):
        for word in first.removeprefix("/* needs:").removesuffix("*/").split():
            needs.add(word.replace("@W", str(lanes)))
        text = rest
    return text.replace("@W", str(lanes)).strip()
