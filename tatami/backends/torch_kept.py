"""The cut between a forward and a backward graph, for a share of the memory that lies between them."""

from __future__ import annotations

import torch._functorch.config as functorch_config
from functorch.compile import min_cut_rematerialization_partition
from torch import Tensor, fx


class Kept:
    """The partition function of AOTAutograd. `budget`: the share of memory, between what must be kept and what saves most time, as
    `torch._functorch.config.activation_memory_budget` means it, which counts if there is no share. `bytes`: those of tensors that the last forward graph made
    for its backward graph alone."""

    def __init__(self, budget: float | None) -> None:
        self.budget = budget
        self.bytes = 0

    def __call__(
        self, joint: fx.GraphModule, inputs: object, *, num_fwd_outputs: int, **given: object
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        changes = {} if self.budget is None else {"activation_memory_budget": self.budget}
        with functorch_config.patch(changes):
            forward, backward = min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **given)
        self.bytes = kept_bytes(forward, num_fwd_outputs)
        return forward, backward


def kept_bytes(forward: fx.GraphModule, results: int) -> int:
    """Bytes of what a forward graph returns after its `results`, each memory once, without its arguments and results."""
    output = next(n for n in forward.graph.nodes if n.op == "output")
    values = [v for v in output.args[0] if isinstance(v, fx.Node)]
    own = {n for n in output.args[0][:results] if isinstance(n, fx.Node)}
    total, seen = 0, set()
    for node in values:
        value = node.meta.get("val")
        if node in own or node.op == "placeholder" or not isinstance(value, Tensor):
            continue
        storage = value.untyped_storage()
        if storage._cdata not in seen:
            seen.add(storage._cdata)
            total += int(value.numel()) * value.element_size()
    return total
