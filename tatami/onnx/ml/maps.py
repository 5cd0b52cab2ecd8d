"""ZipMap, DictVectorizer and CastMap: maps as inputs and outputs of a model."""

from __future__ import annotations

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.strings.operators import number_of_words, words_of
from tatami.onnx.values import Value

CASTS = {"TO_FLOAT": DType.fp32, "TO_INT64": DType.i64}
"""Dtype of each value of the attribute `cast_to`, except strings."""


def zip_map(m: Importer, n: OnnxNode) -> list[Value]:
    """ZipMap: a map for each row, made from the matrix after the program has run."""
    x = Num(m, m.operand(n, 0)).cast(DType.fp32)
    x = x.unsqueeze(0) if len(x.shape) == 1 else x
    words, numbers = n.attr("classlabels_strings"), n.attr("classlabels_int64s")
    keys = tuple(str(w) for w in words) if words else tuple(int(v) for v in numbers or ())
    if len(keys) != (x.shape[1].as_int() or len(keys)):
        raise fail("InvalidAttribute", m.site, f"{len(keys)} labels for {x.shape[1]} columns", "give one for each")
    value = m.result(m.one("identity", [x.tensor]))
    value.keys = keys
    return [value]


def _pairs(m: Importer, n: OnnxNode) -> tuple[Value, Value]:
    value = m.value(n.inputs[0])
    if value.pairs is None:
        raise unsupported(
            m, f"{n.op} of a value that is not a map among the inputs of the model", "give it an input that is a map"
        )
    return value.pairs


def dict_vectorizer(m: Importer, n: OnnxNode) -> list[Value]:
    """DictVectorizer: one row with the map's value for each key of the vocabulary, 0 (or an empty string) for absent keys."""
    keys, values = _pairs(m, n)
    words, numbers = n.attr("string_vocabulary"), n.attr("int64_vocabulary")
    if keys.is_text != bool(words):
        raise fail("InvalidAttribute", m.site, "a vocabulary of another type than the map's keys", "give the other vocabulary")
    vocabulary = m.coded(np.array(words, object)) if words else np.array(numbers or [], np.int64)
    same = Num(m, m.data(keys)).unsqueeze(1).fn("eq", Num(m, m.add_constant(vocabulary)))
    held = Num(m, m.data(values)).unsqueeze(1)
    if values.is_text:
        best = same.where(held, -1).fn("reduce_max", axes=(0,))
        empty = Num(m, m.add_constant(m.coded(np.array("", object))))
        row = best.fn("lt", 0).where(empty, best)
        return [m.words(row.unsqueeze(0).tensor, words_of(m, values)[1] | {""})]
    none = Num(m, m.number(0, held.dtype))
    return [m.result(same.where(held, none).fn("reduce_sum", axes=(0,)).unsqueeze(0).tensor)]


def cast_map(m: Importer, n: OnnxNode) -> list[Value]:
    """CastMap: one row of the map's values in the order of its keys, or each at the position given by its key."""
    keys, values = _pairs(m, n)
    to, form = n.attr("cast_to", "TO_FLOAT"), n.attr("map_form", "DENSE")
    if to == "TO_STRING":
        if not values.is_text or form != "DENSE":
            raise unsupported(m, "CastMap of numbers to strings, or to strings by place", "cast to numbers")
        row = m.one("unsqueeze", [words_of(m, values)[0]], {"axes": (0,)})
        return [m.words(row, words_of(m, values)[1])]
    if to not in CASTS:
        raise fail("InvalidAttribute", m.site, f"cast_to {to}", "give TO_FLOAT, TO_INT64 or TO_STRING")
    dtype = CASTS[to]
    held = Num(m, number_of_words(m, values, dtype) if values.is_text else m.data(values)).cast(dtype)
    if form == "SPARSE":
        width = int(n.attr("max_map", 1))
        places = Num(m, m.add_constant(np.arange(width)))
        same = Num(m, m.data(keys)).unsqueeze(1).fn("eq", places)
        held = same.where(held.unsqueeze(1), 0).fn("reduce_sum", axes=(0,))
    return [m.result(held.unsqueeze(0).tensor)]
