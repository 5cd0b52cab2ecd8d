"""Replacing size symbols, or other nodes, in a value, program or module of any type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from tatami.core.algebra.visit import substitute
from tatami.core.diagnostic import fail
from tatami.core.expr import Expr
from tatami.core.module import Module
from tatami.core.signature import Signature

T = TypeVar("T")


def substitute_sizes(value: T, sizes: Mapping[str, Expr]) -> T:
    """A copy of `value` with every expression rewritten. Raises E1305 when a value makes a divisor 0 or negative."""
    try:
        result: T = rewritten(value, lambda x: substitute(x, sizes) if isinstance(x, Expr) else None)
    except (ZeroDivisionError, ValueError) as error:
        given = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        raise fail(
            "InvalidSymbol", next(iter(sizes)), f"{given}: {error}", "give sizes that leave every divisor positive"
        ) from None
    return result


def rewritten(value: Any, change: Callable[[Any], Any]) -> Any:
    """The tree of structs, tuples, lists and dicts with nodes replaced: `change(node)` is the new node, kept as it is, or None
    to go on inside `node`. Unchanged parts are shared."""
    made = change(value)
    if made is not None:
        return made
    if isinstance(value, msgspec.Struct):
        old = [(n, getattr(value, n)) for n in value.__struct_fields__]
        new = {n: made for n, part in old if (made := rewritten(part, change)) is not part}
        return msgspec.structs.replace(value, **new) if new else value
    if isinstance(value, tuple | list):
        items = [rewritten(v, change) for v in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else type(value)(items)
    if isinstance(value, dict):
        entries = {k: rewritten(v, change) for k, v in value.items()}
        return value if all(entries[k] is value[k] for k in value) else entries
    return value


def specialise(module: Module[Any], sizes: Mapping[str, Expr]) -> Module[Any]:
    """The module with the symbols of `main` replaced. Callees keep their own symbols."""
    if not sizes:
        return module
    programs = {n: _specialised(p, sizes) if n in ("main", "setup") else p for n, p in module.programs.items()}
    return Module(programs, module.constants, module.origins)


def _specialised(program: Any, sizes: Mapping[str, Expr]) -> Any:
    """One program; symbols that have a value leave `must_bind` and `defaults`."""
    program = substitute_sizes(program, sizes)
    signature = getattr(program, "signature", None)
    if not isinstance(signature, Signature) or not (set(signature.must_bind) | signature.defaults.keys()) & sizes.keys():
        return program
    left = tuple(s for s in signature.must_bind if s not in sizes)
    defaults = {s: v for s, v in signature.defaults.items() if s not in sizes}
    return msgspec.structs.replace(program, signature=msgspec.structs.replace(signature, must_bind=left, defaults=defaults))
