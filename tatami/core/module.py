"""What every stage holds: named programs, the constants they use, and where each thing came from.

`main` is the entry; `setup` (when there is one) runs once at load, its outputs are the rest of the ConstPool; other
names are call targets. `origins[program][id]` are ids one layer up; in the first layer they are the importer's own
(an ONNX node, a line of `.harp`, a Python line).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tatami.core.diagnostic import Diagnostic
from tatami.core.target import Target
from tatami.core.tensor import Tensor

P = TypeVar("P")
Origins = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Module(Generic[P]):
    programs: Mapping[str, P]
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    origins: Mapping[str, Origins] = field(default_factory=dict)
    warnings: tuple[Diagnostic, ...] = ()
    """Warnings of the importer about the model it was made of."""
    overridable: tuple[str, ...] = ()
    """Constants of the model in whose place a caller may pass an array."""
    target: str | Target = ""
    """The machine that a document was made for; empty for what does not depend on one."""

    @property
    def main(self) -> P:
        return self.programs["main"]
