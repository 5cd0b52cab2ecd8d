"""The kinds of CPU plans: one entry for each class of `plan.ir.CpuPlan`, in the order of that union, in which they are proposed.

A file of `plan/cpu/` that describes a kind ends with its entry; it is found here by the class of plan that it names. A class
without an entry, or with two, is refused when this module is imported (decision 0069). `loop/lower.py` has a case for each
class, which makes its loops.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, TypeAlias, get_args

from tatami.plan import cpu
from tatami.plan.cpu_kind import CpuKind, P
from tatami.plan.ir import CpuPlan

Entry: TypeAlias = CpuKind[Any]


def described() -> Iterator[Entry]:
    """The entries that the files of `plan/cpu/` have, by file name."""
    for module in sorted(m.name for m in pkgutil.iter_modules(cpu.__path__)):
        found = vars(import_module(f"{cpu.__name__}.{module}")).values()
        yield from (value for value in found if isinstance(value, CpuKind))


def in_order(kinds: Sequence[type], entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """One entry for each class of plan, in the order of the classes. Raises TypeError where a class has none or several."""
    by_class = {kind: [e for e in entries if e.plan is kind] for kind in kinds}
    for kind, found in by_class.items():
        if len(found) != 1:
            raise TypeError(f"{kind.__name__} has {len(found)} entries of CpuKind in plan/cpu; it needs 1")
    return tuple(found[0] for found in by_class.values())


CPU_KINDS = in_order(get_args(CpuPlan), tuple(described()))
"""Entries of all kinds, in the order in which they are proposed."""
_BY_CLASS: dict[type, Entry] = {kind.plan: kind for kind in CPU_KINDS}


def cpu_kind_of(plan: P) -> CpuKind[P]:
    """The entry of a CPU plan's class."""
    return _BY_CLASS[type(plan)]
