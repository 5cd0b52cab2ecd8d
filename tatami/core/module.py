"""The form that every stage shares: named programs, their constants, and the origin of each thing.

`main` is the entry; `setup` (if there is one) runs once at load, its outputs are the rest of the ConstPool; other names are
call targets. `origins[program][id]` are ids one layer up; in the first layer they are the importer's own (an ONNX node, a line
of `.harp`, a Python line)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tatami.core.diagnostic import Diagnostic
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
