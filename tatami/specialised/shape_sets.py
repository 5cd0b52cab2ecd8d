"""The programs of a compilation: one for all sizes, one for each requested tuple of sizes, and further ones that calls need
(C-86).

    sizes={"B": [1, 8, (16, 512)], "T": 128}      B = 1; B = 8; B from 16 to 512, planned for 512; every other B; T = 128 in
all"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

from tatami.core.diagnostic import TatamiError, fail
from tatami.models import find_source
from tatami.specialised.specialisation import MAX_SPECIALISATIONS, ShapeSet, without_frames

if TYPE_CHECKING:
    from tatami.compiled_function import CompiledFunction
    from tatami.prepare import SizeRequest
    from tatami.specialised.adaptive import Cluster

SizeEntry: TypeAlias = int | tuple[int, ...]
"""A size, (least, greatest) or (least, usual, greatest)."""
Compile: TypeAlias = "Callable[[object, Mapping[str, SizeRequest]], CompiledFunction]"
"""compile(model, sizes) returns one program."""
MAX_CLUSTERS = 256
"""Maximum number of programs that one call of compile makes ahead of time."""


def compile_shape_set(
    model: object, sizes: Mapping[str, SizeRequest | list[SizeEntry]], compile: Compile, most: int | None
) -> CompiledFunction:
    """The callable of a model with all its programs. Raises TatamiError."""
    from tatami.specialised.adaptive import AdaptiveFunction, DeferredFunction

    asked = {n: v for n, v in sizes.items() if isinstance(v, list)}
    common = {n: v for n, v in sizes.items() if not isinstance(v, list)}
    tuples = _tuples(asked)
    shape_set = None
    if most != 0 and (source := find_source(model)) is not None:
        numbers = {n: v for n, v in common.items() if isinstance(v, int)}
        most = MAX_SPECIALISATIONS if most is None else most
        shape_set = ShapeSet(source, lambda module: compile(module, {}), most, numbers)
    try:
        function = compile(model, common)
    except TatamiError as error:
        if shape_set is None:
            raise
        if any("forms" in d.details for d in error.diagnostics):  # nothing was imported yet
            shape_set.source.resume(error)
            without_frames(error)
            error = _prepared(shape_set) or error
        if not shape_set.source.may_serve_some_size(error):
            raise error from None
        return DeferredFunction(shape_set, without_frames(error))  # type: ignore[return-value]
    clusters = tuple(_cluster(model, common, entry, compile) for entry in tuples)
    if not _has_open_sizes(function) and not function.compilation.overridable:
        shape_set = None
    if shape_set is None and not clusters:
        return function
    return AdaptiveFunction.around(function, shape_set, clusters)


def _prepared(shape_set: ShapeSet) -> TatamiError | None:
    """The error that keeps the shape set from having a program independent of the call's sizes; None if it has one."""
    try:
        shape_set.prepare()
    except TatamiError as error:
        return error
    return None


def _has_open_sizes(function: CompiledFunction) -> bool:
    """True if the model leaves a size of an input open, even one that an equation decides."""
    model = function.compilation.stages.get_made("frontend")
    signature = function.signature if model is None else model.main.signature
    return any(size.as_int() is None for port in signature.inputs for size in port.shape)


def _tuples(asked: Mapping[str, Sequence[SizeEntry]]) -> list[dict[str, SizeEntry]]:
    """Every combination of one entry for each symbol. Raises InvalidSymbol."""
    if not asked:
        return []
    for name, entries in asked.items():
        for entry in entries:
            numbers = entry if isinstance(entry, tuple) else (entry,)
            ordered = all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in numbers) and list(
                numbers
            ) == sorted(numbers)
            if not ordered or len(numbers) not in (1, 2, 3):
                why = f"{entry!r} is neither a number nor (least, greatest) nor (least, usual, greatest)"
                raise fail("InvalidSymbol", f"sizes[{name!r}]", why, 'write for example sizes={"B": [1, 8, (16, 512)]}')
    count = 1
    for entries in asked.values():
        count *= len(entries)
    if count > MAX_CLUSTERS:
        why = f"{count} tuples of sizes"
        raise fail("InvalidSymbol", "sizes", why, f"ask for at most {MAX_CLUSTERS}: give ranges in place of numbers")
    return [dict(zip(asked, entry, strict=True)) for entry in product(*asked.values())]


def _cluster(model: object, common: Mapping[str, SizeRequest], entry: Mapping[str, SizeEntry], compile: Compile) -> Cluster:
    from tatami.specialised.adaptive import Cluster

    wanted = {n: v if isinstance(v, int) else (v[0], v[len(v) // 2], v[-1]) for n, v in entry.items()}
    guard = {n: (v, v) if isinstance(v, int) else (v[0], v[-1]) for n, v in entry.items()}
    start = time.perf_counter()
    function = compile(model, {**common, **wanted})
    return Cluster(guard, function, time.perf_counter() - start)
