"""Functional collectives of torch.distributed: exchanges that the execution plan begins, and waits for at the first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch.distributed as dist

from tatami.core.numbers.collectives import REDUCTIONS
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer
from tatami.torch.refusal import Refusal

_OPS = {"sum": "sum", "avg": "sum", "product": "prod", "max": "max", "min": "min"}
"""Reduction of PyTorch -> ours; an average is a sum, divided."""


def all_reduce(m: Importer, x: Tensor, op: str, group: str) -> Tensor:
    """all_reduce: the tensors of all processes combined."""
    return _combined(m, x, op, group, lambda x, how, ranks: x.all_reduce(ranks, how, group))


def reduce_scatter(m: Importer, x: Tensor, op: str, ranks: int, group: str) -> Tensor:
    """reduce_scatter_tensor: this process's part of axis 0 of the tensors of all processes combined."""
    return _combined(m, x, op, group, lambda x, how, ranks: x.reduce_scatter(ranks, how, group))


def all_gather(m: Importer, x: Tensor, ranks: int, group: str) -> Tensor:
    """all_gather_into_tensor: the tensors of all processes along axis 0."""
    return _begun(m, x.all_gather(_ranks(m, group), group))


def all_to_all(m: Importer, x: Tensor, received: Sequence[object], sent: Sequence[object], group: str) -> Tensor:
    """all_to_all_single: part k of axis 0 to process k."""
    return _begun(m, x.all_to_all(_ranks(m, group), _rows(sent), _rows(received), group))


def broadcast(m: Importer, x: Tensor, root: int, group: str) -> Tensor:
    """broadcast: the tensor of the process `root` of the group."""
    return _begun(m, x.broadcast(_ranks(m, group), root, group))


def wait(m: Importer, x: Tensor) -> Tensor:
    """wait_tensor: the tensor itself, since a program waits where it first uses the result of an exchange."""
    if x.name not in m.begun:
        raise Refusal("it waits for an exchange that PyTorch began")
    return x


def _combined(m: Importer, x: Tensor, op: str, group: str, exchange: Callable[[Tensor, str, int], Tensor]) -> Tensor:
    how, ranks = _OPS.get(op), _ranks(m, group)
    if how not in REDUCTIONS:
        raise Refusal(f"the reduction {op} among processes")
    if op != "avg":
        return _begun(m, exchange(x, how, ranks))
    if not x.dtype.is_float:
        raise Refusal("an average of integers among processes")
    return _begun(m, exchange(x, how, ranks) / float(ranks))


def _rows(splits: Sequence[object]) -> tuple[int, ...]:
    numbers = [getattr(s, "as_int", lambda s=s: s)() for s in splits]
    if not all(isinstance(n, int) for n in numbers):
        raise Refusal("an all_to_all whose parts are open sizes")
    return tuple(n for n in numbers if isinstance(n, int))


def _ranks(m: Importer, group: str) -> int:
    """The number of processes of a group. Raises Refusal for tensors on a GPU, which PyTorch exchanges without the host."""
    if any(r.device.type != "cpu" for r in m.results if hasattr(r, "device")):
        raise Refusal("an exchange of tensors on a GPU")
    return int(dist.distributed_c10d._get_group_size_by_name(group))


def _begun(m: Importer, x: Tensor) -> Tensor:
    m.begun.add(x.name)
    return x


def _each(of: Handler) -> Handler:
    """The handler of a list of tensors, each exchanged by itself."""

    def several(m: Importer, tensors: Sequence[Tensor], *rest: object) -> list[object]:
        return [of(m, x, *rest) for x in tensors]

    return several


COLLECTIVE: dict[str, Handler] = {
    "_c10d_functional.all_reduce.default": all_reduce,
    "_c10d_functional.all_reduce_coalesced.default": _each(all_reduce),
    "_c10d_functional.all_gather_into_tensor.default": all_gather,
    "_c10d_functional.all_gather_into_tensor_coalesced.default": _each(all_gather),
    "_c10d_functional.reduce_scatter_tensor.default": reduce_scatter,
    "_c10d_functional.reduce_scatter_tensor_coalesced.default": _each(reduce_scatter),
    "_c10d_functional.all_to_all_single.default": all_to_all,
    "_c10d_functional.broadcast.default": broadcast,
    "_c10d_functional.wait_tensor.default": wait,
}
"""Handlers of this file by overload."""
