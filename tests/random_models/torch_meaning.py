"""Graphs of operations that PyTorch has too, run by it in double precision: a second opinion on the numpy meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch

from tatami.core.algebra.visit import evaluate
from tatami.core.dtype import DType
from tatami.frontend.operation import attributes
from tatami.frontend.ops import operation
from tests.random_models.model_maker import Model

T: TypeAlias = torch.Tensor
Meaning = Callable[..., T]
WHOLE = {DType.i8: torch.int8, DType.u8: torch.uint8, DType.i16: torch.int16, DType.i32: torch.int32, DType.i64: torch.int64}
DTYPES = {**WHOLE, DType.bool: torch.bool, **dict.fromkeys((DType.fp16, DType.bf16, DType.fp32, DType.fp64), torch.float64)}


def axes(a: Any, x: T) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if a.axes is None else tuple(a.axes)


def padded(a: Any, to: Callable[[Any], int], x: T) -> T:
    widths = [to(w) for pair in reversed(a.pads) for w in pair]
    return torch.nn.functional.pad(x, widths, value=a.value)


def sliced(a: Any, to: Callable[[Any], int], x: T) -> T:
    steps = a.steps or (1,) * x.ndim
    return x[tuple(slice(to(lo), to(hi), step) for lo, hi, step in zip(a.starts, a.stops, steps))]


SAME_NAME = (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "abs",
    "floor",
    "ceil",
    "round",
    "trunc",
    "square",
    "sigmoid",
    "neg",
)
"""Operations of one operand that PyTorch calls by our name and that mean the same."""

FUNCTIONS: dict[str, Meaning] = {
    name: getattr(torch, name)
    for name in [
        *SAME_NAME,
        "add",
        "sub",
        "mul",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "where",
        "isnan",
        "isinf",
        "isfinite",
        "atan2",
    ]
}
FUNCTIONS |= {
    **{
        n: getattr(torch.nn.functional, n)
        for n in ("relu", "silu", "softsign", "elu", "selu", "leaky_relu", "gelu", "softplus")
    },
    "identity": lambda x: x,
    "contiguous": lambda x: x,
    "max": torch.maximum,
    "min": torch.minimum,
    "div": torch.div,
    "not": torch.logical_not,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "xor": torch.logical_xor,
    "matmul": torch.matmul,
    "recip": torch.reciprocal,
}
"""Of operands alone."""

RULES: dict[str, Meaning] = {
    "clamp": lambda a, to, shape, x: torch.clamp(x, a.lo, a.hi),
    "reshape": lambda a, to, shape, x: x.reshape(shape),
    "unsqueeze": lambda a, to, shape, x: x.reshape(shape),
    "squeeze": lambda a, to, shape, x: x.reshape(shape),
    "flatten": lambda a, to, shape, x: x.reshape(shape),
    "permute": lambda a, to, shape, x: x.permute(a.perm),
    "flip": lambda a, to, shape, x: x.flip(a.axes),
    "tile": lambda a, to, shape, x: x.tile([to(r) for r in a.repeats]),
    "slice": lambda a, to, shape, x: sliced(a, to, x),
    "roll": lambda a, to, shape, x: x.roll(a.shifts, a.axes),
    "concat": lambda a, to, shape, *xs: torch.cat(xs, a.axis),
    "stack": lambda a, to, shape, *xs: torch.stack(xs, a.axis),
    "reduce_sum": lambda a, to, shape, x: x.sum(axes(a, x)).reshape(shape),
    "reduce_mean": lambda a, to, shape, x: x.mean(axes(a, x)).reshape(shape),
    "reduce_max": lambda a, to, shape, x: x.amax(axes(a, x)).reshape(shape),
    "reduce_min": lambda a, to, shape, x: x.amin(axes(a, x)).reshape(shape),
    "variance": lambda a, to, shape, x: x.var(axes(a, x), correction=a.correction).reshape(shape),
    "reduce_log_sum_exp": lambda a, to, shape, x: x.logsumexp(axes(a, x)).reshape(shape),
    "softmax": lambda a, to, shape, x: x.softmax(a.axis),
    "log_softmax": lambda a, to, shape, x: x.log_softmax(a.axis),
    "full": lambda a, to, shape: torch.full(shape, float(a.value), dtype=torch.float64),
    "constant": lambda a, to, shape: torch.tensor(a.value),
    "linear": lambda a, to, shape, *xs: torch.nn.functional.linear(*xs),
    "einsum": lambda a, to, shape, *xs: torch.einsum(a.equation, *xs),
}
"""Operation → a function of attributes, the value of a size, the result's shape, and operands."""


def run_in_torch(model: Model) -> dict[str, np.ndarray] | None:
    """The outputs; None where an operation or dtype is missing here."""
    main = model.module.main
    known = FUNCTIONS.keys() | RULES.keys() | {"pad", "expand"}
    if len(model.module.programs) > 1 or any(node.op not in known for node in main.graph):
        return None
    if any(type.dtype not in DTYPES for type in main.tensors.values()):
        return None
    values: dict[str, T] = {}

    def size(e: Any) -> int:
        return int(evaluate(e, model.sizes))

    for port in main.signature.inputs:
        array = model.inputs[port.tensor] if port.tensor in model.inputs else model.module.constants[port.tensor].array
        values[port.tensor] = torch.from_numpy(np.array(array, np.float64 if port.dtype.is_float else array.dtype))
    for node in main.graph:
        if len(node.outputs) > 1:
            return None
        type, attrs = main.tensors[node.outputs[0]], attributes(operation(node), node)
        if not type.dtype.is_float and node.op in ("div", "reduce_mean", "floor"):
            return None
        args = [values[i] for i in node.inputs if i]
        shape = tuple(size(s) for s in type.shape)
        if node.op == "pad":
            if attrs.mode != "constant":
                return None
            out = padded(attrs, size, *args)
        elif node.op == "expand":
            dims = attrs.dims if attrs.dims is not None else range(len(shape) - args[0].ndim, len(shape))
            placed = [1] * len(shape)
            for n, d in zip(args[0].shape, dims):
                placed[d] = n
            out = args[0].reshape(placed).expand(shape)
        else:
            out = FUNCTIONS[node.op](*args) if node.op in FUNCTIONS else RULES[node.op](attrs, size, shape, *args)
        values[node.outputs[0]] = out.to(DTYPES[type.dtype])
    return {o.tensor: values[o.tensor].numpy() for o in main.signature.outputs}
