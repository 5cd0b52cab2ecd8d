"""Questions about the nodes of an fx graph of ATen operators."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from tatami.torch.refusal import Refusal
from tatami.torch.sizes import memory_order, shape_of, strides_of

ASSERTIONS = frozenset(
    {"aten._assert_scalar.default", "aten._assert_tensor_metadata.default", "aten.sym_constrain_range_for_size.default",
     "aten.sym_constrain_range.default", "aten._assert_async.msg", "aten._assert_async.default"}
)  # fmt: skip
"""Operators without a result; their checks of sizes are repeated when sizes are bound."""


ITEMS = frozenset({"aten._local_scalar_dense.default", "aten.item.default"})
"""Operators that return the only element of a tensor as a Python number."""


def is_size_of(node: fx.Node) -> bool:
    """True if the node is computed from sizes."""
    return str(node.target).startswith("aten.sym_")


def is_update(node: fx.Node) -> bool:
    """True if the node writes into an argument of the graph."""
    return (
        node.op == "call_function"
        and str(node.target) == "aten.copy_.default"
        and isinstance(node.args[0], fx.Node)
        and node.args[0].op == "placeholder"
    )


def place_of(node: fx.Node) -> str:
    """The line of the model from which the node comes, else its name in the fx graph."""
    trace = node.meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    if not lines:
        return node.name
    parts = lines[-1].split(",")
    file = parts[0].removeprefix("File ").strip('"').replace("\\", "/").rsplit("/", 1)[-1]
    return f"{node.name} ({file}:{parts[1].removeprefix(' line ').strip()})"


def to_numpy(value: torch.Tensor) -> np.ndarray:
    """The content of a tensor, bfloat16 included; works also while PyTorch traces with tensors without content."""
    with unset_fake_temporarily():
        data = value.detach().cpu().contiguous()
        if data.dtype == torch.bfloat16:
            return data.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return data.numpy()


def check_own_storage(node: fx.Node) -> None:
    """Raises Refusal if an `as_strided` reads a tensor that does not fill its storage row by row."""
    source = node.args[0]
    value = source.meta.get("val") if isinstance(source, fx.Node) else None
    order = memory_order(shape_of(value), strides_of(value)) if isinstance(value, torch.Tensor) else None
    if order is None or not is_row_major(order):
        raise Refusal("as_strided of a tensor that does not lie row by row")
    offset = value.storage_offset() if isinstance(value, torch.Tensor) else 0
    if not isinstance(offset, int) or offset:
        raise Refusal("as_strided of a part of a storage")


def is_row_major(order: Sequence[int]) -> bool:
    """True if axes lie in memory in their own order."""
    return list(order) == list(range(len(order)))
