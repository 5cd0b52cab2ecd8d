"""The class of a row of scores, the transforms of scores, and ONNX Runtime's way of making two columns from one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.values import Value

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""Transforms in the order of their numbers in TreeEnsemble 5."""


def transform_of(m: Importer, n: OnnxNode) -> str:
    """The node's post_transform by name. Raises InvalidAttribute."""
    given = n.attr("post_transform", "NONE")
    name = TRANSFORMS[given] if isinstance(given, int) and 0 <= given < len(TRANSFORMS) else str(given)
    if name not in TRANSFORMS:
        raise fail("InvalidAttribute", m.site, f"post_transform {name}", f"give one of {', '.join(TRANSFORMS)}")
    return name


def transformed(y: Num, name: str) -> Num:
    """Scores [rows, columns] after the transform `name`."""
    match name:
        case "LOGISTIC":
            return y.fn("sigmoid")
        case "SOFTMAX":
            return y.fn("softmax", axis=1)
        case "SOFTMAX_ZERO":
            return _softmax_zero(y)
        case "PROBIT":
            return _probit(y)
        case _:
            return y


def _softmax_zero(y: Num) -> Num:
    """Softmax over the scores that are not 0, which stay 0 (magnitudes up to 1e-7 count as 0, as in ONNX Runtime)."""
    largest = y.fn("reduce_max", axes=(1,), keepdims=True)
    is_zero = y.fn("abs").fn("le", 1e-7)
    powers = (y - largest).fn("exp")
    kept = is_zero.where(y * largest.fn("neg").fn("exp"), powers)
    return kept / is_zero.where(Num(y.m, y.m.number(0.0, y.dtype)), powers).fn("reduce_sum", axes=(1,), keepdims=True)


def _probit(y: Num) -> Num:
    """sqrt(2) erfinv(2 y - 1), by Winitzki's formula with a = 0.147, as in ONNX Runtime."""
    x = y * 2.0 - 1.0
    log = ((x * -1.0 + 1.0) * (x + 1.0)).fn("log")
    v = log * 0.5 + 2 / (3.14159 * 0.147)
    root = ((v * v - log * (1 / 0.147)).fn("sqrt") - v).fn("sqrt")
    return x.fn("lt", 0.0).where(root * -1.0, root) * 1.41421356


class Labels:
    """The classes of a classifier: integers or words."""

    def __init__(self, m: Importer, n: OnnxNode, integers: str) -> None:
        words = n.attr("classlabels_strings") or []
        self.names: list[Any] = [str(w) for w in words] or [int(v) for v in n.attr(integers) or []]
        self.m, self.are_words = m, bool(words)

    def __len__(self) -> int:
        return len(self.names)

    def pick(self, index: Num, names: list[Any] | None = None) -> Value:
        """The label of each row at position `index`."""
        listed = self.names if names is None else names
        array = np.array(listed, object if self.are_words else np.int64)
        made = self.m.one("take", [self.m.add_constant(self.m.coded(array)), index.tensor], {"axis": 0})
        return self.m.words(made) if self.are_words else self.m.result(made)

    def of_sign(self, is_second: Num) -> Value:
        """The second label if `is_second` is true, else the first; 1 and 0 if there are not two labels."""
        names = self.names if len(self) == 2 else (["0", "1"] if self.are_words else [0, 1])
        return self.pick(is_second.cast(DType.i64), names)


def best(y: Num, allowed: np.ndarray | None = None) -> Num:
    """Position of the first of the largest scores of each row. `allowed`: mask of the columns that may win."""
    if allowed is not None and not allowed.all():
        y = Num(y.m, y.m.add_constant(allowed)).where(y, -np.inf)
    return y.fn("argmax", axis=1)


def two_columns(y: Num, name: str, *, is_positive: bool) -> Num:
    """[rows, 1] scores of the second class as two columns: the first class's are the complement of probabilities, else the
    negative."""
    if name == "PROBIT":
        raise fail(
            "UnsupportedModel", y.m.site, "PROBIT of one column of scores for two classes", "give a column for each class"
        )  # fmt: skip
    if name == "LOGISTIC":
        first, second = (y * -1.0).fn("sigmoid"), y.fn("sigmoid")
    else:
        first, second = (y * -1.0 + 1.0 if is_positive else y * -1.0), y
    return Num(y.m, y.m.one("concat", [first.tensor, second.tensor], {"axis": 1}))


def features(m: Importer, n: OnnxNode, *, keep_double: bool = False) -> Num:
    """The rows of X as fp32, or with `keep_double` as fp64 if they are fp64; rank 1 is one row."""
    x = Num(m, m.operand(n, 0))
    x = x.unsqueeze(0) if len(x.shape) == 1 else x
    return x if keep_double and x.dtype == DType.fp64 else x.cast(DType.fp32)
