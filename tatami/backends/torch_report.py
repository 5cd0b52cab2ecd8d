"""Reports on the graphs that torch.compile hands to the backend."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from weakref import WeakSet

from tatami.api import CompiledFunction
from tatami.torch.imported import Unsupported, described

KEPT = 256
"""Maximum number of graphs that `explain` remembers."""


@dataclass
class GraphReport:
    """The report on one fx graph. `kind`: forward, backward or inference; `seconds`: time to compile."""

    kind: str
    nodes: int
    programs: int = 0
    """Number of compiled programs that the graph was cut into; 1 if all of it is ours."""
    alive: WeakSet[CompiledFunction] = field(default_factory=WeakSet)
    """Programs that PyTorch keeps."""
    kernels: int = 0
    seconds: float = 0.0
    unsupported: list[Unsupported] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Reasons why imported programs could not be compiled: they run in PyTorch."""
    checks: int = 0
    """Number of operators whose values are checked because eager would refuse some (divisors, indices, matrices)."""
    copies: dict[str, int] = field(default_factory=dict)
    """Argument or result -> number of times it was copied."""
    packed: list[str] = field(default_factory=list)
    """Names of parameters of which programs keep a packed copy, or values computed from them."""
    packings: int = 0
    """Number of times they were packed: once for each module, and again when its parameters changed."""
    packed_bytes: int = 0
    """Bytes of the packed copies of one module."""
    kept_bytes: int = 0
    """Bytes that a forward graph keeps for its backward graph, besides arguments and results."""
    watched_bytes: int = 0
    """Bytes of parameters that each call checks, since a write that PyTorch does not count makes copies stale."""

    def text(self) -> str:
        """The text of the report in `tatami.backends.explain`."""
        lines = [
            f"{self.kind} graph of {self.nodes} operators: {self.programs} compiled programs, {self.kernels} kernels, "
            f"{self.seconds:.1f} s"
        ]
        if self.kept_bytes:
            lines.append(f"  keeps {_amount(self.kept_bytes)} for backward")
        if self.unsupported:
            lines.append(f"  stays in PyTorch: {described(self.unsupported)}")
        lines += [f"  stays in PyTorch: {why}" for why in self.refused]
        if self.checks:
            lines.append(f"  looks at the values of {self.checks} operators, which eager might refuse")
        lines += [f"  copied {count} times: {name}" for name, count in sorted(self.copies.items())]
        if self.packed:
            lines.append(f"  packed {self.packings} times, {_amount(self.packed_bytes)}: {', '.join(self.packed)}")
            if self.watched_bytes:
                watched = _amount(self.watched_bytes)
                lines.append(f'  each call looks whether {watched} of parameters changed (options={{"freeze": True}}: not)')
        return "\n".join(lines)


def _amount(size: int) -> str:
    """A number of bytes in the largest unit of which there is one."""
    unit, name = next(((u, n) for u, n in ((1 << 20, "MiB"), (1 << 10, "KiB")) if size >= u), (1, "bytes"))
    return f"{size} {name}" if unit == 1 else f"{size / unit:.1f} {name}"


REPORTS: deque[GraphReport] = deque(maxlen=KEPT)
"""Reports of the last graphs, oldest first."""
