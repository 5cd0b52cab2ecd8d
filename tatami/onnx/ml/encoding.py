"""LabelEncoder, CategoryMapper, OneHotEncoder and ArrayFeatureExtractor: look-ups by key and by position."""

from __future__ import annotations

from typing import Any

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import product
from tatami.core.tensor import numpy_dtype
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.strings.operators import words_of
from tatami.onnx.strings.text_rules import is_printed_as
from tatami.onnx.values import Value, is_text_array

DENSE = 4096
"""Integer keys are looked up in a table if their span is at most this plus four times their number; otherwise elements are
compared with every key."""


def feature_extractor(m: Importer, n: OnnxNode) -> list[Value]:
    """ArrayFeatureExtractor: elements of the last axis, by an index of any rank; a result of rank 1 becomes one row."""
    x, index = m.operands(n)
    if len(m.shape(x)) == 1:
        x = m.one("unsqueeze", [x], {"axes": (0,)})
    index = m.one("reshape", [index], {"shape": (product(m.shape(index)),)})
    return [m.result(m.one("take", [x, index], {"axis": len(m.shape(x)) - 1}))]


def label_encoder(m: Importer, n: OnnxNode) -> list[Value]:
    """LabelEncoder: the value of the key that equals the element, or the default. Version 1 maps words to positions, or
    back."""
    classes = n.attr("classes_strings")
    if classes is not None:
        return _mapped(m, n, np.array(classes, object), np.arange(len(classes)))
    keys, values = _column(n, "keys"), _column(n, "values")
    if len(keys) != len(values):
        raise fail("InvalidAttribute", m.site, f"{len(keys)} keys for {len(values)} values", "give one value for each key")
    default = n.attr("default_tensor")
    if default is None:
        default = _default(n, values)
    return [_looked_up(m, m.value(n.inputs[0]), keys, values, np.asarray(default).reshape(-1)[0])]


def category_mapper(m: Importer, n: OnnxNode) -> list[Value]:
    """CategoryMapper: words to numbers, or numbers to words, by the dtype of the input. Raises InvalidAttribute."""
    words, numbers = n.attr("cats_strings") or [], n.attr("cats_int64s") or []
    if len(words) != len(numbers):
        raise fail("InvalidAttribute", m.site, f"{len(words)} cats_strings for {len(numbers)} cats_int64s", "give one for each")
    return _mapped(m, n, np.array(words, object), np.array(numbers, np.int64))


def _mapped(m: Importer, n: OnnxNode, words: np.ndarray, numbers: np.ndarray) -> list[Value]:
    """Words as numbers, or numbers as words, by the dtype of the input."""
    x = m.value(n.inputs[0])
    if x.is_text:
        return [_looked_up(m, x, words, numbers, n.attr("default_int64", -1))]
    return [_looked_up(m, x, numbers, words, n.attr("default_string", "_Unused"))]


def _column(n: OnnxNode, stem: str) -> np.ndarray:
    for suffix, dtype in (("tensor", None), ("int64s", np.int64), ("floats", np.float32), ("strings", object)):
        given: Any = n.attr(f"{stem}_{suffix}")
        if given is not None:
            return np.asarray(given, dtype).reshape(-1)
    return np.zeros(0, np.int64)


def _default(n: OnnxNode, values: np.ndarray) -> Any:
    if is_text_array(values):
        return n.attr("default_string", "_Unused")
    return n.attr("default_int64", -1) if values.dtype.kind in "iu" else n.attr("default_float", -0.0)


def _looked_up(m: Importer, x: Value, keys: np.ndarray, values: np.ndarray, default: Any) -> Value:
    """values[k] where x equals the first key k, else the default."""
    first = sorted({(k if k == k else "NaN"): i for i, k in reversed(list(enumerate(keys.tolist())))}.values())
    keys, values = keys[first], values[first]
    if x.is_text != is_text_array(keys):
        raise fail(
            "InvalidAttribute",
            m.site,
            "keys of strings for numbers, or of numbers for strings",
            "give keys of the input's type",
        )
    row = np.empty(len(values) + 1, values.dtype if len(values) else np.asarray(default).dtype)
    row[0], row[1:] = default, values
    found = _place(m, x, keys)
    made = m.one("take", [m.add_constant(m.coded(row)), found.tensor], {"axis": 0})
    return m.words(made) if is_text_array(row) else m.result(made)


def _place(m: Importer, x: Value, keys: np.ndarray) -> Num:
    """1 + the position of the key that each element equals; 0 if none does. All keys differ."""
    if x.printed:
        numbers = Num(m, m.data(x))
        return _found(is_printed_as(numbers.unsqueeze(len(numbers.shape)), keys), len(keys))
    if x.is_text:
        return _by_table(m, Num(m, words_of(m, x)[0]), m.coded(keys))
    element = Num(m, m.data(x))
    keys = keys.astype(numpy_dtype(element.dtype))
    if element.dtype.is_int and len(keys) and int(keys.max()) - int(keys.min()) <= 4 * len(keys) + DENSE:
        return _by_table(m, element.cast(DType.i64), keys)
    same = element.unsqueeze(len(element.shape)).fn("eq", Num(m, m.add_constant(keys)))
    if element.dtype.is_float and np.isnan(keys).any():
        is_nan = Num(m, m.add_constant(np.isnan(keys)))
        same = same.fn("or", element.fn("isnan").unsqueeze(len(element.shape)).fn("and", is_nan))
    return _found(same, len(keys))


def _found(same: Num, count: int) -> Num:
    axis = len(same.shape) - 1
    places = Num(same.m, same.m.add_constant(np.arange(1, count + 1)))
    return (same.cast(DType.i64) * places).fn("reduce_max", axes=(axis,)).fn("max", 0)


def _by_table(m: Importer, x: Num, keys: np.ndarray) -> Num:
    """Positions of keys by a table over their span; one entry before and one after it stand for all elements outside."""
    low = int(keys.min(initial=0))
    table = np.zeros(int(keys.max(initial=0)) - low + 3, np.int64)
    table[keys.astype(np.int64) - low + 1] = np.arange(1, len(keys) + 1)
    inside = x.fn("max", low - 1).fn("min", low + len(table) - 2) - (low - 1)
    return Num(m, m.one("take", [m.add_constant(table), inside.tensor], {"axis": 0}))


def one_hot_encoder(m: Importer, n: OnnxNode) -> list[Value]:
    """OneHotEncoder: a new last axis with 1 at the element's category. An unknown one has no 1, also if `zeros` is 0."""
    x = m.value(n.inputs[0])
    words, numbers = n.attr("cats_strings"), n.attr("cats_int64s")
    if (words is None) == (numbers is None) or (words is not None) != x.is_text:
        raise fail(
            "InvalidAttribute", m.site, "categories of another type than the input's", "give cats_strings or cats_int64s"
        )
    if words is None:
        element = Num(m, m.data(x)).cast(DType.i64)
        same = element.unsqueeze(len(element.shape)).fn("eq", Num(m, m.add_constant(np.array(numbers, np.int64))))
    elif x.printed:
        element = Num(m, m.data(x))
        same = is_printed_as(element.unsqueeze(len(element.shape)), np.array(words, object))
    else:
        element = Num(m, words_of(m, x)[0])
        row = Num(m, m.add_constant(m.coded(np.array(words, object))))
        same = element.unsqueeze(len(element.shape)).fn("eq", row)
    return [m.result(same.cast(DType.fp32).tensor)]
