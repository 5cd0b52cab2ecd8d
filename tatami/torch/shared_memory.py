"""Results of an fx graph that share memory with an argument or with each other, so that a write to one shows in all.

The metadata of a view has the storage of its base, which is compared; the operators do not matter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import fx

from tatami.core.expr import Expr, Shape
from tatami.torch.sizes import shape_of, size_expr, strides_of


def storage_of(value: object) -> int | None:
    """Identity of a tensor's storage, equal for a tensor and its views; None if it has none."""
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) and value.layout == torch.strided else None


def place_in(value: torch.Tensor, whole: torch.Tensor) -> tuple[Shape, Shape, Expr] | None:
    """(shape, strides, offset in elements) of a tensor within one whose storage it shares; None if it reads the bits
    differently."""
    if value.dtype != whole.dtype or value.is_conj() or value.is_neg() or whole.is_conj() or whole.is_neg():
        return None
    return shape_of(value), strides_of(value), size_expr(value.storage_offset()) - size_expr(whole.storage_offset())


def owners(gm: fx.GraphModule, given: Sequence[object], arguments: Collection[fx.Node]) -> dict[int | None, fx.Node]:
    """The node that made each storage which several of the results `given` share, and no argument does."""
    of_arguments = {storage_of(n.meta.get("val")) for n in arguments}
    found = [storage_of(n.meta.get("val")) for n in given if isinstance(n, fx.Node)]
    shared = {s for s in found if s is not None and found.count(s) > 1 and s not in of_arguments}
    made: dict[int | None, fx.Node] = {}
    for node in gm.graph.nodes if shared else ():
        storage = storage_of(node.meta.get("val"))
        if storage in shared and node.op == "call_function":
            made.setdefault(storage, node)
    return made
