"""Functions that PyTorch decomposes into other results than eager has, replaced in the graph of Dynamo."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tatami.backends.torch_updates import replace_update


def as_eager(gm: fx.GraphModule) -> None:
    """Make the graph behave like eager, in place: functions whose decomposition loses their errors are replaced, and dropouts
    outside training, which return their own argument, are removed. Updates of optimisers are replaced as well."""
    for node in list(gm.graph.nodes):
        replace_update(node)
        if node.op != "call_function":
            continue
        if node.target in KEPT:
            node.target = KEPT[node.target]
        elif node.target in DROPOUTS and node.kwargs.get("training") is False and isinstance(node.args[0], fx.Node):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    gm.recompile()


def one_hot(classes: Any, num_classes: Any = -1) -> Any:
    """torch.nn.functional.one_hot as a scatter. PyTorch's own compares with all classes when it is traced, so that a class out
    of range is not an error; a scatter refuses it."""
    if isinstance(num_classes, int) and num_classes <= 0:
        return torch.nn.functional.one_hot(classes, num_classes)
    zeros = torch.zeros((*classes.shape, num_classes), dtype=torch.int64, device=classes.device)
    return zeros.scatter(-1, classes.unsqueeze(-1), 1)


KEPT = {torch._C._nn.one_hot: one_hot}
"""Function -> its replacement, which keeps the errors of eager."""
F = torch.nn.functional
DROPOUTS = frozenset({F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout})
"""Functions that return their own argument in eager outside training, so that a write to one shows in the other."""
