"""Functions that PyTorch takes apart otherwise than eager computes them, replaced in the graph of Dynamo."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


def as_eager(gm: fx.GraphModule) -> None:
    """Replace them in place: those that forget their errors, and those that are their own argument and become a copy."""
    for node in list(gm.graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in KEPT:
            node.target = KEPT[node.target]
        elif node.target in DROPOUTS and node.kwargs.get("training") is False and isinstance(node.args[0], fx.Node):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    gm.recompile()


def one_hot(classes: Any, num_classes: Any = -1) -> Any:
    """torch.nn.functional.one_hot, which compares with all classes while PyTorch traces it, so that a class that is none of
    them is no error; this one writes at its place."""
    if isinstance(num_classes, int) and num_classes <= 0:
        return torch.nn.functional.one_hot(classes, num_classes)
    zeros = torch.zeros((*classes.shape, num_classes), dtype=torch.int64, device=classes.device)
    return zeros.scatter(-1, classes.unsqueeze(-1), 1)


KEPT = {torch._C._nn.one_hot: one_hot}
F = torch.nn.functional
DROPOUTS = frozenset({F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout})
"""In eager a module's own argument where it is not in training: what is written into one shows in the other."""
