"""The record of estimates and measurements: a row for each kernel of each model."""

from __future__ import annotations

import json

import msgspec


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
        """JSON text of the record, a line for each kernel."""
        head = msgspec.to_builtins(self)
        models = []
        for m in head.pop("models"):
            kernels = ",\n".join(f"  {json.dumps(k)}" for k in m.pop("kernels"))
            models.append(f' {json.dumps(m)[:-1]}, "kernels": [\n{kernels}\n ]}}')
        return f'{json.dumps(head)[:-1]}, "models": [\n' + ",\n".join(models) + "\n]}\n"
