"""The record of estimates and measurements: a row for each kernel of each model."""

from __future__ import annotations

import msgspec

from tatami.core.codec import dump_text


class Kernel(msgspec.Struct):
    """A kernel with its estimate and its least time in seconds."""

    name: str
    region: str
    """Kind of the Region."""
    plan: str
    """Kind of the plan."""
    sources: list[str]
    """Nodes of the model that it computes: the first of them."""
    estimate: float
    seconds: float
    bytes: float
    """Bytes of operands and results, each once."""
    terms: dict[str, float]

    @property
    def ratio(self) -> float:
        """Estimate over measurement."""
        return self.estimate / self.seconds

    @property
    def largest_term(self) -> str:
        """The largest term of the estimate."""
        own = {k: v for k, v in self.terms.items() if k not in ("total", "threads") and not k.startswith("at.")}
        return max(own, key=lambda k: own[k], default="none")


class Model(msgspec.Struct):
    """A model with its kernels. `whole`: the least time of a call; `unpriced`: kernels without an estimate."""

    name: str
    whole: float = 0.0
    unpriced: int = 0
    kernels: list[Kernel] = []
    refused: str = ""


class Record(msgspec.Struct):
    """All models, with the machine and the caches that estimates count with."""

    machine: dict[str, str]
    l2_bytes: int
    l3_bytes: int
    models: list[Model]

    def text(self) -> str:
        """JSON text of the record."""
        return dump_text(msgspec.to_builtins(self))
