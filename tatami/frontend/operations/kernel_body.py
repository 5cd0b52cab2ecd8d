"""Custom kernels that are a whole function body, and their meaning (spec 1 "Kernel"; decision 0006).

A body is code: in a document it needs trust (D2.20). Its meaning is a Python function over numpy arrays, which no document can
hold; the node keeps its key. Without it, or in a process that does not know it, the kernel runs but nothing can check it,
which is reported."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tatami.core.codec import dump_text
from tatami.core.custom.kernel_body import Ranks, bound_text
from tatami.core.custom.verbatim import NO_CODE, VerbatimCode
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import Operands, Operation, Site, need, want

if TYPE_CHECKING:
    from tatami.core.numbers.numerics import Array

Meaning: TypeAlias = "Callable[..., Array | tuple[Array, ...]]"
_MEANINGS: dict[str, Meaning] = {}


class KernelBody(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `kernel_body`. `c`, `cuda`: the function's body for each kind of target. The preambles are text before it
    (includes, functions)."""

    outputs: tuple[TensorType, ...]
    c: VerbatimCode | None = None
    cuda: VerbatimCode | None = None
    preamble: VerbatimCode = NO_CODE
    cuda_preamble: VerbatimCode = NO_CODE
    meaning: str = ""
    """The key of its numpy meaning; empty: declared to have none."""


def remember_meaning(attrs: KernelBody, function: Meaning) -> str:
    """Keep the numpy meaning of a body in this process; its key, a hash of the body: equal bodies mean the same."""
    parts = [attrs.c, attrs.cuda, attrs.preamble, attrs.cuda_preamble, [str(o.dtype) for o in attrs.outputs]]
    key = hashlib.sha256(dump_text(parts).encode()).hexdigest()[:16]
    _MEANINGS[key] = function
    return key


def apply_meaning(attrs: Mapping[str, object], args: Sequence[Array], count: int, at: str) -> list[Array]:
    """The results of a body's numpy meaning. Raises MeaningMissing; HostFault if the function fails."""
    key = str(attrs.get("meaning", ""))
    function = _MEANINGS.get(key)
    if function is None:
        why = "its numpy meaning is declared absent" if not key else "its numpy meaning is not known to this process"
        hint = (
            "give g.kernel_body(…, meaning=function over arrays) and compile in the same process; run without checks otherwise"
        )
        raise fail("MeaningMissing", at, f"this custom kernel cannot be checked: {why}", hint)
    try:
        made = function(*args)
    except TatamiError:
        raise
    except Exception as error:
        why = f"the numpy meaning failed: {type(error).__name__}: {error}"[:300]
        raise fail("HostFault", at, why, "mend the function given as `meaning`") from error
    results = list(made) if isinstance(made, tuple) else [made]
    if len(results) != count:
        why = f"the numpy meaning gave {len(results)} results, the kernel has {count}"
        raise fail("HostFault", at, why, "return one array per result, several as a tuple")
    return results


def _kernel_body(attrs: KernelBody, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    want(bool(attrs.outputs), "a kernel without results", "declare outputs=[(dtype, shape)]", site)
    for t in (*types, *attrs.outputs):
        want(t.dtype != DType.unknown, "a dtype was never decided", "give it one: g.number(v, dtype)", site, "UnknownDType")
    ranks = Ranks(tuple(len(t.shape) for t in types), tuple(len(o.shape) for o in attrs.outputs))
    for body in (attrs.c, attrs.cuda):
        if body is not None:
            bound_text(body, ranks, site.at)
    return attrs.outputs


KERNEL_BODY: tuple[Operation, ...] = (
    Operation("kernel_body", KernelBody, 0, -1, _kernel_body, "a whole C or CUDA function body; code, so documents need trust"),
)
"""Rows of the table: custom kernels as function bodies."""
