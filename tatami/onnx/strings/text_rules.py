"""Strings as operands of operators of numbers: moving words is moving their codes, and equal words have equal codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tatami.core.dtype import DType
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.strings.operators import cast_text
from tatami.onnx.strings.words import number_text
from tatami.onnx.values import Value, is_text_array

Handler: TypeAlias = Callable[[Importer, OnnxNode], "list[Value] | None"]

MOVES = frozenset([
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Gather", "GatherElements", "GatherND", "Slice",
    "Split", "Expand", "Tile", "Where", "Scatter", "ScatterElements", "ScatterND", "Compress", "ReverseSequence", "DepthToSpace",
    "SpaceToDepth", "ArrayFeatureExtractor", "SplitToSequence", "ConcatFromSequence",
])  # fmt: skip
"""Operators whose results are words if their operands are."""
COUNTS = frozenset(["Shape", "Size"])
"""Operators that read only the shape of their operand."""
KNOWS = frozenset(
    ["StringNormalizer", "RegexFullMatch", "StringSplit", "StringConcat", "TfIdfVectorizer", "Tokenizer", "Constant"]
)
"""Operators of words, and those that distinguish words from numbers themselves."""
HOLDS = frozenset([
    "SequenceConstruct", "SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength", "Optional", "OptionalGetElement",
    "OptionalHasElement",
])  # fmt: skip
"""Operators of sequences and optional values that do not read the elements."""


def text_results(m: Importer, n: OnnxNode, handler: Handler) -> list[Value] | None:
    """The results of a node that takes or makes strings; None for any other. Raises UnsupportedModel."""
    if n.domain in ("", "ai.onnx") and n.op in ("Cast", "CastLike"):
        return cast_text(m, n)
    values = [m.value(i) for i in n.inputs if i]
    texts = [v for v in values if v.is_text]
    if not texts:
        if any(v.keys is not None for v in values) and n.op != "Identity":
            raise unsupported(m, f"{n.op} of a sequence of maps", "take ZipMap out of the model")
        return [m.value(n.inputs[0])] if n.op == "Identity" and values and values[0].keys is not None else None
    if n.op in KNOWS or (n.domain == "ai.onnx.ml" and n.op != "ArrayFeatureExtractor"):
        return handler(m, n)
    if n.op in HOLDS or n.op in COUNTS:
        return handler(m, n)
    if n.op == "Equal":
        return [_equal(m, *values)]
    if n.op not in MOVES:
        raise unsupported(m, f"{n.op} of strings", "do it before the model and give it numbers")
    return _moved(m, n, handler, texts)


def _moved(m: Importer, n: OnnxNode, handler: Handler, texts: list[Value]) -> list[Value]:
    parts = [p for v in texts for p in (v.items or (v,))]
    is_printed = any(v.printed for v in parts)
    if is_printed and not all(v.printed for v in parts):
        raise unsupported(m, f"{n.op} of words and of numbers as words", "give the numbers as words, or keep them numbers")
    if n.op == "Identity":
        return [texts[0]]
    saved = {i: m.values[i] for i in n.inputs if i and i in m.values}
    sources = frozenset[str]().union(*(_sources(m, v) for v in texts))
    m.values.update({i: _codes(v) for i, v in saved.items() if v.is_text})
    try:
        results = handler(m, n)
    finally:
        m.values.update(saved)
    assert results is not None
    for value in results:
        if value.strung is not None and value.items is None:
            why = "a sequence of strings whose length only a run tells"
            raise unsupported(m, why, "give the model numbers, or the axis a size that is a number")
        value.strung = None
    for value in (r for result in results for r in (result.items or (result,))):
        value.printed = is_printed
        value.text = None if is_printed else sources
    return results


def _sources(m: Importer, value: Value) -> frozenset[str]:
    """Sources of the words of a text, or of a sequence of texts; its constants become tensors of codes."""
    if value.items is not None:
        return frozenset[str]().union(*(_sources(m, v) for v in value.items))
    m.data(value)
    return value.text or frozenset()


def _codes(value: Value) -> Value:
    """The text as its numbers: codes, or printed numbers."""
    if value.items is not None:
        return Value(items=tuple(_codes(v) for v in value.items))
    return Value(tensor=value.tensor, type=value.type)


def _equal(m: Importer, left: Value, right: Value) -> Value:
    if left.printed and right.printed:
        return m.result(m.joined("eq", m.data(left), m.data(right)))
    for value, other in ((left, right), (right, left)):
        if value.printed and is_text_array(other.array):
            assert other.array is not None
            return m.result(is_printed_as(Num(m, m.data(value)), np.asarray(other.array)).tensor)
    if left.printed or right.printed:
        raise unsupported(m, "words compared with numbers as words", "compare them as numbers, or as words")
    return m.result(m.joined("eq", m.data(left), m.data(right)))


def is_printed_as(numbers: Num, words: np.ndarray) -> Num:
    """True where a number is printed as the word: it lies between the smallest and the largest number printed so."""
    dtype = np.dtype("float64" if numbers.dtype == DType.fp64 else "float32" if numbers.dtype.is_float else "int64")
    low, high = (np.empty(words.shape, dtype) for _ in range(2))
    nan = np.zeros(words.shape, bool)
    for place, word in np.ndenumerate(words):
        low[place], high[place], nan[place] = _range_of(str(word), dtype)
    m = numbers.m
    x = numbers if numbers.dtype.is_float else numbers.cast(DType.i64)
    x = x if dtype != np.dtype("float32") else x.cast(DType.fp32)
    inside = x.fn("ge", Num(m, m.add_constant(low))).fn("and", x.fn("le", Num(m, m.add_constant(high))))
    if not x.dtype.is_float or not nan.any():
        return inside
    return inside.fn("or", x.fn("isnan").fn("and", Num(m, m.add_constant(nan))))


def _range_of(word: str, dtype: np.dtype) -> tuple[float, float, bool]:
    """(smallest, largest number printed as the word, True if NaN is). 1 and 0 if there is no number."""
    if word == "NaN" and dtype.kind == "f":
        return 1, 0, True
    try:
        value = dtype.type({"INF": "inf", "-INF": "-inf"}.get(word, word) if dtype.kind == "f" else int(word))
    except (ValueError, OverflowError):
        return 1, 0, False
    if number_text(value) != word:
        return 1, 0, False
    if dtype.kind != "f" or not np.isfinite(value):
        return value, value, False
    reach = max(abs(float(value)) * 1e-6, 1e-300)
    return _last_printed_as(value, -reach, word), _last_printed_as(value, reach, word), False


def _last_printed_as(value: Any, reach: float, word: str) -> Any:
    """The number farthest from `value` that is printed as the word, found by bisection; the number `reach` away is not."""
    inside, outside = value, type(value)(value + reach)
    while True:
        middle = type(value)(inside + (outside - inside) / 2)
        if middle in (inside, outside):
            return inside
        if number_text(middle) == word:
            inside = middle
        else:
            outside = middle
