"""The cut between a forward and a backward graph, for a share of the memory that lies between them."""

from __future__ import annotations

import torch._functorch.config as functorch_config
from functorch.compile import min_cut_rematerialization_partition
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import optimization_hint

KEPT = "tatami_kept"
"""Key in the metadata of a forward graph's output; its value is the bytes that are kept."""


class Kept:
    """The partition function of AOTAutograd. `budget`: the share of memory, between what must be kept and what saves most time, as
    `torch._functorch.config.activation_memory_budget` means it, which counts if there is no share."""

    def __init__(self, budget: float | None) -> None:
        self.budget = budget

    def __call__(
        self, joint: fx.GraphModule, inputs: object, *, num_fwd_outputs: int, **given: object
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        changes = {} if self.budget is None else {"activation_memory_budget": self.budget}
        with functorch_config.patch(changes):
            forward, backward = min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **given)
        forward.graph.find_nodes(op="output")[0].meta[KEPT] = _bytes_after(forward, num_fwd_outputs)
        return forward, backward


def kept_bytes(graph: fx.GraphModule) -> int:
    """Bytes that a forward graph makes for its backward graph alone; 0 for other graphs."""
    return int(graph.graph.find_nodes(op="output")[0].meta.get(KEPT, 0))


def _bytes_after(forward: fx.GraphModule, results: int) -> int:
    """Bytes of what a forward graph returns after its `results`, each memory once and whole, without its arguments and results. Sizes that are
    not constants count as in the example: asking for their numbers would make each size a graph of its own."""
    returned = forward.graph.find_nodes(op="output")[0].args[0]
    seen = {_memory(n) for n in (*forward.graph.find_nodes(op="placeholder"), *returned[:results])}
    total = 0
    for node in returned[results:]:
        memory = _memory(node)
        if memory is not None and memory not in seen:
            seen.add(memory)
            total += optimization_hint(node.meta["val"].untyped_storage().nbytes(), fallback=0)
    return total


def _memory(node: object) -> int | None:
    """The identity of the memory of a node's tensor; None if it has none."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return int(value.untyped_storage()._cdata) if isinstance(value, Tensor) else None
