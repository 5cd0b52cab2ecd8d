"""Custom kernels that are formulas: elementwise UOps, then the rule of the reduction or scan.

input0 * 2 + ridx1   ->   MUL(x, CONST 2), ADD(that, CAST(IOTA axis 1))
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, assert_never

from tatami.core.custom.formula import Apply, Convert, Number, Placeholder
from tatami.core.custom.verbatim import KernelCode
from tatami.core.expr import Shape
from tatami.core.scalar import Scalar
from tatami.frontend.operations.kernel import Kernel, KernelReduce, KernelScan, formula_terms
from tatami.frontend.operations.kernel_body import KernelBody
from tatami.tiny.build import Value
from tatami.tiny.ir import CallOp, Elementwise, ResultType
from tatami.tiny.lowering.reduction import REDUCTION
from tatami.tiny.lowering.rule import Rule, Use


def _value(use: Use[Any]) -> Value:
    """The formula's value at every point of its index space."""
    b, operands = use.builder, use.present
    shape: Shape = use.attrs.shape or next((v.shape for v in operands if v.rank), ())
    made: list[Value] = []
    for t in formula_terms(use.attrs, tuple(v.dtype for v in operands), len(shape), b.at):
        match t.term:
            case Number(value=value):
                made.append(b.const(value, t.dtype))
            case Placeholder(kind="input", index=k):
                made.append(operands[k])
            case Placeholder(kind="ridx", index=k):
                made.append(b.iota(shape, k))
            case Placeholder(index=k):
                made.append(b.size(shape[k]))
            case Convert():
                made.append(made[t.args[0]].cast(t.dtype))
            case Apply(fn=fn):
                made.append(b.add(Elementwise(fn), [made[a] for a in t.args]))
            case _:
                assert_never(t.term)
    return made[-1].expand(shape)


def kernel(use: Use[Kernel]) -> Value:
    """A custom kernel that is one formula."""
    return _value(use)


def kernel_reduce(use: Use[KernelReduce]) -> Value:
    """A custom kernel that reduces a formula."""
    return _then(f"reduce_{use.attrs.op}", use, use.attrs.reduction)


def kernel_scan(use: Use[KernelScan]) -> Value:
    """A custom kernel that scans a formula."""
    return _then(f"cum{use.attrs.op}", use, use.attrs.scan)


def _then(operation: str, use: Use[Any], attrs: Any) -> Value:
    """The value of the rule of `operation`, applied to the formula's values."""
    out = REDUCTION[operation](replace(use, attrs=attrs, operands=[_value(use)]))
    assert isinstance(out, Value)
    return out


def kernel_body(use: Use[KernelBody]) -> tuple[Value, ...]:
    """A custom kernel with a function body: CALL of routine "custom" with the node's own text."""
    a = use.attrs
    attrs: dict[str, Scalar | list[Scalar]] = {"meaning": a.meaning, "results": len(use.types)}
    code = KernelCode(a.c, a.cuda, a.preamble, a.cuda_preamble)
    results = tuple(ResultType(t.dtype, t.shape) for t in use.types)
    return use.builder.call(CallOp("routine", ("custom",), results, attrs=attrs, code=code), use.present)


KERNEL: dict[str, Rule] = {
    "kernel": kernel,
    "kernel_reduce": kernel_reduce,
    "kernel_scan": kernel_scan,
    "kernel_body": kernel_body,
}
"""Rules of this family by operation."""
