"""Arrays of the caller that a program writes: `out=` and inputs that are updated in place.

Each element has to lie in the caller's own memory, apart from the others: what is written to a copy is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from tatami.core.diagnostic import fail


def check_written(value: object, array: np.ndarray, again: Callable[[], np.ndarray], at: str, what: str) -> None:
    """Raise InputMismatch unless writing `array` writes the caller's `value`, element by element. `again`: reads the value once
    more; `what`: the subject of the message."""
    if not array.flags.writeable:
        raise fail("InputMismatch", at, f"{what} is read-only", "pass a writable array")
    if is_copy(value, array, again):
        why = f"{what} can only be read as a copy ({type(value).__name__}): what is written there is lost"
        raise fail("InputMismatch", at, why, "pass a numpy array, or a tensor with memory of its own")
    if overlaps_itself(array):
        why = f"{what} has elements that share memory: its strides are {list(array.strides)} bytes"
        raise fail("InputMismatch", at, why, "pass an array whose elements lie apart, such as a copy")


def is_copy(value: object, array: np.ndarray, again: Callable[[], np.ndarray]) -> bool:
    """True if `array` has other memory than the `value` that it was read from."""
    if isinstance(value, np.ndarray):
        return False
    if isinstance(value, np.generic | bool | int | float | list | tuple):
        return True
    if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):
        return bool(value.is_neg() or value.is_conj())
    return array.size > 0 and not np.may_share_memory(array, again())


def overlaps_itself(array: np.ndarray) -> bool:
    """True if two elements share a byte."""
    if array.flags.c_contiguous or array.flags.f_contiguous or not array.size:
        return False
    axes = sorted((abs(step), n) for step, n in zip(array.strides, array.shape) if n > 1)
    if axes and axes[0][0] == 0:
        return True
    end = array.itemsize
    for step, n in axes:
        if step < end:
            break
        end += (n - 1) * step
    else:
        return False
    places = np.zeros(1, np.int64)
    for step, n in axes:
        places = (places[:, None] + step * np.arange(n)).reshape(-1)
    return bool((np.diff(np.sort(places)) < array.itemsize).any())


def count_write(value: object) -> None:
    """Tell PyTorch that a tensor was written, so that gradients that need its former values raise."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and not value.is_inference():
        torch.autograd.graph.increment_version(value)
