"""The options of every command on a model, and the compilation that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tatami.core.diagnostic import TatamiError, fail
from tatami.decisions import Decisions
from tatami.prepare import prepare, signature_symbols

if TYPE_CHECKING:
    from tatami.compilation import Compilation
    from tatami.observer import Progress


def _with_sizes(error: TatamiError) -> TatamiError:
    """The fault of a program for all sizes; for faults of sizes, with the suggestion to give sizes."""
    from tatami.specialised.specialisation import OF_SIZES

    how = "where the model's sizes are open, give them: -D NAME=…"
    told = (
        d if d.kind not in OF_SIZES else msgspec.structs.replace(d, suggestion=f"{d.suggestion}; {how}")
        for d in error.diagnostics
    )
    return TatamiError(*told)


@dataclass(frozen=True)
class Request:
    """The options of a command. `sizes`: values given with -D; the other fields are arguments of `tt.compile`."""

    model: str
    target: str | None
    sizes: Mapping[str, int]
    precision: str | None
    decisions: Decisions | str | None
    trust: bool
    compare: bool = False

    def prepare(self, sizes: Mapping[str, int], progress: Progress | None = None) -> Compilation:
        """The compilation specialised on `sizes`. Raises TatamiError."""
        return prepare(
            self.model,
            target=self.target,
            sizes=dict(sizes),
            precision=self.precision,
            decisions=self.decisions,
            trust=self.trust,
            compare=self.compare,
            progress=progress,
        )

    def compilation(self, progress: Progress | None = None) -> Compilation:
        """The compilation specialised on those sizes that the code depends on (strides and the like); the others are
        arguments. If no program serves all sizes, it is specialised on all that are given."""
        try:
            found = self.prepare({}, progress)
        except TatamiError as error:
            if not self.sizes:
                raise _with_sizes(error) from None
            return self.prepare(self.sizes, progress)
        made = {n: found.stages[n] for n in found.stages.made}
        known = {s for module in made.values() for s in signature_symbols(module)}
        for name in self.sizes:
            if name not in known:
                have = ", ".join(sorted(known)) or "none"
                raise fail("UnboundSymbol", f"-D {name}", "the model has no such size symbol", f"its symbols are {have}")
        signatures = [getattr(module.programs.get("main"), "signature", None) for module in made.values()]
        decided = {s for signature in signatures if signature is not None for s in signature.must_bind}
        bound = {n: value for n, value in self.sizes.items() if n in decided}
        return self.prepare(bound, progress) if bound else found
