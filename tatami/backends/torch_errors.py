"""Functions that forget their errors where PyTorch takes them apart, as such that do not."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


def keep_errors(gm: fx.GraphModule) -> None:
    """Replace them in a graph of Dynamo, in place."""
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target in KEPT:
            node.target = KEPT[node.target]
    gm.recompile()


def one_hot(classes: Any, num_classes: Any = -1) -> Any:
    """torch.nn.functional.one_hot, which compares with all classes while PyTorch traces it, so that a class that is none of
    them is no error; this one writes at its place."""
    if isinstance(num_classes, int) and num_classes <= 0:
        return torch.nn.functional.one_hot(classes, num_classes)
    zeros = torch.zeros((*classes.shape, num_classes), dtype=torch.int64, device=classes.device)
    return zeros.scatter(-1, classes.unsqueeze(-1), 1)


KEPT = {torch._C._nn.one_hot: one_hot}
