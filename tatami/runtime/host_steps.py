"""Steps that run in Python between segments: sizes that depend on data, and work that no kernel does (design §3 execution).

A routine takes arrays and attributes and returns arrays. The routines of `tiny.meaning.routines` are the meaning that every
stage shares; more may be registered by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.numbers.numerics import cast
from tatami.tiny.meaning.routines import ROUTINES

Routine: TypeAlias = Callable[[Sequence[np.ndarray], Mapping[str, Any]], Sequence[np.ndarray]]
Place: TypeAlias = Callable[[], str]
"""A function that returns the place of a fault, called only if there is one, since it may need the stages."""
HOST_ROUTINES: dict[str, Routine] = {}
"""Name -> routine that only the runtime knows."""


def host_routine(name: str) -> Callable[[Routine], Routine]:
    """A decorator that registers a routine under `name`."""

    def register(function: Routine) -> Routine:
        HOST_ROUTINES[name] = function
        return function

    return register


def run_host_step(
    at: Place, name: str, inputs: Sequence[np.ndarray], attrs: Mapping[str, object], dtypes: Sequence[DType]
) -> list[np.ndarray]:
    """The results of one step, C-contiguous and of the declared dtypes. Raises UnknownOp and HostFault."""
    routine = HOST_ROUTINES.get(name) or ROUTINES.get(name)
    if routine is None:
        known = ", ".join(sorted({*HOST_ROUTINES, *ROUTINES}))
        raise fail("UnknownOp", at(), f"there is no host routine {name!r}", f"the routines are {known}")
    try:
        results = list(routine(inputs, attrs))
    except TatamiError:
        raise
    except Exception as error:
        raise fail(
            "HostFault", at(), f"{name} failed: {type(error).__name__}: {error}", "check the values of its inputs"
        ) from error
    if len(results) != len(dtypes):
        raise fail(
            "HostFault",
            at(),
            f"{name} gave {len(results)} values, the plan expects {len(dtypes)}",
            "use the routine as declared",
        )
    return [np.asarray(cast(np.asarray(r), d), order="C") for r, d in zip(results, dtypes)]
