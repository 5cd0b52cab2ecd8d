"""What torch.compile gave us and what became of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from weakref import WeakSet

from tatami.api import CompiledFunction
from tatami.torch.imported import Unsupported, described

KEPT = 256
"""Graphs that `explain` remembers."""


@dataclass
class GraphReport:
    """One fx graph: forward, backward or inference."""

    kind: str
    nodes: int
    programs: int = 0
    """Compiled programs the graph was cut into; one where all of it is ours."""
    alive: WeakSet[CompiledFunction] = field(default_factory=WeakSet)
    """Those that PyTorch still keeps."""
    kernels: int = 0
    seconds: float = 0.0
    unsupported: list[Unsupported] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Programs that were imported and could not be compiled: they run in PyTorch."""
    checks: int = 0
    """Looks at values that eager would refuse (divisors, indices, matrices), one per operator."""
    copies: dict[str, int] = field(default_factory=dict)
    """Argument or result -> how often it had to be copied so far."""
    packed: list[str] = field(default_factory=list)
    """Parameters of which programs keep a packed copy, or values computed from them."""
    packings: int = 0
    """How often: once for each module, and again when its parameters changed."""
    packed_bytes: int = 0
    """Memory of the copies of one module."""
    watched_bytes: int = 0
    """Bytes of parameters that each call looks at, since a write that PyTorch does not count makes copies stale."""

    def text(self) -> str:
        """The report of `tatami.backends.explain`."""
        lines = [
            f"{self.kind} graph of {self.nodes} operators: {self.programs} compiled programs, {self.kernels} kernels, "
            f"{self.seconds:.1f} s"
        ]
        if self.unsupported:
            lines.append(f"  stays in PyTorch: {described(self.unsupported)}")
        lines += [f"  stays in PyTorch: {why}" for why in self.refused]
        if self.checks:
            lines.append(f"  looks at the values of {self.checks} operators, which eager might refuse")
        lines += [f"  copied {count} times: {name}" for name, count in sorted(self.copies.items())]
        if self.packed:
            size = f"{self.packed_bytes / 2**20:.1f} MiB"
            lines.append(f"  packed {self.packings} times, {size}: {', '.join(self.packed)}")
            if self.watched_bytes:
                watched = f"{self.watched_bytes / 2**20:.1f} MiB"
                lines.append(f'  each call looks whether {watched} of parameters changed (options={{"freeze": True}}: not)')
        return "\n".join(lines)


REPORTS: deque[GraphReport] = deque(maxlen=KEPT)
