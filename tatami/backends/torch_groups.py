"""Exchanges of programs by torch.distributed: each group is the process group of that name, with its back end and timeout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from tatami.core.numbers.collectives import (
    Array,
    Collective,
    CommunicationError,
    communicator_in_use,
    row_bytes,
    use_communicator,
)

_REDUCE = (
    {
        "sum": dist.ReduceOp.SUM,
        "prod": dist.ReduceOp.PRODUCT,
        "max": dist.ReduceOp.MAX,
        "min": dist.ReduceOp.MIN,
    }
    if dist.is_available()
    else {}
)


def use_torch_groups() -> None:
    """Let programs of this process exchange arrays by torch.distributed; a group named "world" is the default group."""
    use_communicator(TorchGroups())


def use_torch_groups_by_default() -> None:
    """`use_torch_groups`, unless this process has a communicator: one that the user has chosen stays."""
    if communicator_in_use() is None:
        use_torch_groups()


@dataclass(frozen=True)
class Work:
    """An exchange of torch.distributed that has begun. `operand` is kept until it has ended."""

    work: dist.Work
    operand: torch.Tensor
    result: torch.Tensor
    like: Array
    shape: tuple[int, ...]

    def wait(self) -> Array:
        """The result. Raises CommunicationError, after the group's timeout at the latest."""
        try:
            self.work.wait()
        except RuntimeError as error:
            raise CommunicationError(_reason(error)) from error
        held = self.result.view(torch.int16) if self.result.dtype == torch.bfloat16 else self.result
        return held.numpy().reshape(-1).view(self.like.dtype).reshape(self.shape)


class TorchGroups:
    """The process groups of torch.distributed as a communicator."""

    def begin(self, what: Collective, x: Array) -> Work:
        """Begin an exchange. Raises CommunicationError."""
        try:
            return self._begin(what, x, _group(what))
        except (RuntimeError, TypeError, ValueError) as error:  # DistBackendError and the like; a dtype that PyTorch lacks
            raise CommunicationError(_reason(error)) from error

    def _begin(self, what: Collective, x: Array, group: dist.ProcessGroup) -> Work:
        ranks, options = what.ranks, {"group": group, "async_op": True}
        rows = x.shape[0] if x.ndim else 1
        rest = x.shape[1:]
        match what.name:
            case "all_reduce":
                values = _tensor(x)
                return Work(dist.all_reduce(values, _REDUCE[what.op], **options), values, values, x, x.shape)
            case "reduce_scatter":
                values = _tensor(x)
                made = values.new_empty((rows // ranks, *rest))
                work = dist.reduce_scatter_tensor(made, values, _REDUCE[what.op], **options)
                return Work(work, values, made, x, (rows // ranks, *rest))
            case "all_gather":
                moved = _bytes(x)
                made = moved.new_empty((rows * ranks, *moved.shape[1:]))
                work = dist.all_gather_into_tensor(made, moved, **options)
                return Work(work, moved, made, x, (rows * ranks, *rest))
            case "all_to_all":
                moved = _bytes(x)
                count = sum(what.received) if what.received else rows
                made = moved.new_empty((count, *moved.shape[1:]))
                work = dist.all_to_all_single(made, moved, _parts(what.received), _parts(what.sent), **options)
                return Work(work, moved, made, x, (count, *rest))
            case _:
                moved = _bytes(x)
                work = dist.broadcast(moved, group_src=what.root, **options)
                return Work(work, moved, moved, x, x.shape)


def _group(what: Collective) -> dist.ProcessGroup:
    """The process group of a collective. Raises CommunicationError."""
    if not (dist.is_available() and dist.is_initialized()):
        raise CommunicationError("torch.distributed has no process group; call init_process_group first")
    try:
        found = dist.group.WORLD if what.group == "world" else dist.distributed_c10d._resolve_process_group(what.group)
    except (RuntimeError, ValueError) as error:
        raise CommunicationError(f"this process has no group of that name ({_reason(error)})") from error
    assert found is not None
    if found.size() != what.ranks:
        raise CommunicationError(f"the group has {found.size()} processes now")
    return found


def _parts(rows: Sequence[int]) -> list[int] | None:
    return list(rows) or None


def _tensor(x: Array) -> torch.Tensor:
    """The array as a tensor in the same memory; numpy's bfloat16 is PyTorch's."""
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def _bytes(x: Array) -> torch.Tensor:
    """The array as rows of bytes, for exchanges that move and do not compute. An array without rows tells the size of one."""
    return torch.from_numpy(x.reshape(-1).view(np.uint8).reshape(x.shape[0] if x.ndim else 1, row_bytes(x)))


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
