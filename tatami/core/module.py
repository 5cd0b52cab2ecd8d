"""The form that every stage shares: named programs, their constants, and the origin of each thing.

`main` is the entry; `setup` (if there is one) runs once at load, its outputs are the rest of the ConstPool; other names are
call targets. `origins[program][id]` are ids one layer up; in the first layer they are the importer's own (an ONNX node, a line
of `.harp`, a Python line); in plans and execution plans, names of the model's nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tatami.core.diagnostic import Diagnostic
from tatami.core.scalar import one_line
from tatami.core.target import Target
from tatami.core.tensor import Tensor

P_co = TypeVar("P_co", covariant=True)
Origins = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Module(Generic[P_co]):
    """The programs of one stage by name; `constants` by name; `origins`: program -> id -> ids one layer up."""

    programs: Mapping[str, P_co]
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    origins: Mapping[str, Origins] = field(default_factory=dict)
    warnings: tuple[Diagnostic, ...] = ()
    """Warnings of the importer about the model."""
    overridable: tuple[str, ...] = ()
    """Constants that a caller may replace by an array."""
    target: str | Target = ""
    """The machine of a document that was made for one; empty if the stage does not depend on a machine."""

    @property
    def main(self) -> P_co:
        """The program that a caller of the model runs."""
        return self.programs["main"]


MOST_NAMES = 6
"""Maximum number of names of nodes on a line of a dump."""


def names_text(names: Sequence[str]) -> str:
    """Names of nodes for a line of a dump: the first ones, and how many more there are."""
    shown = [one_line(n)[:60] for n in names[:MOST_NAMES]]
    return ", ".join(shown) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
