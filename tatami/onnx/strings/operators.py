"""Operators that read the letters of words: tables over the words of a call, made before the program runs (words.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from tatami.core.dtype import DType
from tatami.core.expr import Expr, product, var
from tatami.core.signature import Input
from tatami.core.tensor import numpy_dtype
from tatami.frontend.ir import TensorType
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import MODEL_WORDS, Importer, element_dtype
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.strings.words import Joined, Table
from tatami.onnx.values import Value, is_text_array


def words_of(m: Importer, value: Value) -> tuple[str, frozenset[str]]:
    """(tensor of codes of a text, sources of its words). Raises UnsupportedModel for printed numbers."""
    if value.printed:
        raise unsupported(m, "numbers as words, whose characters are looked at or that meet other words", "keep them numbers")
    tensor = m.data(value)
    assert value.text is not None
    return tensor, value.text


def _port(m: Importer, name: str, dtype: DType, shape: tuple[Expr, ...]) -> str:
    """A new input of the program that the words of a call decide."""
    while name in m.tensors:
        name += "_"
    m.tensors[name] = TensorType(dtype, shape)
    m.inputs.append(Input(name, dtype, shape))
    return name


def _tables(
    m: Importer, value: Value, function: str, attrs: tuple[Any, ...], columns: tuple[tuple[DType, bool], ...]
) -> list[Value]:
    """Results of a function of single words: one value per column (dtype, True if each word has a row of several). An i64
    column holds words unless it is a count."""
    codes, sources = words_of(m, value)
    m.refuse_words_inside()
    number = len(m.word_steps)
    count = var(f"WORDS{number}")
    ports = [
        _port(m, f"words{number}.{i}", dtype, (count, var(f"WIDTH{number}")) if is_wide else (count,))
        for i, (dtype, is_wide) in enumerate(columns)
    ]
    m.word_steps.append(Table(tuple(ports), function, attrs, sources))
    return [m.result(m.one("take", [p, codes], {"axis": 0})) for p in ports]


def _as_words(m: Importer, value: Value) -> Value:
    """Result of the last table as text."""
    step = m.word_steps[-1]
    assert isinstance(step, Table)
    value.text = frozenset([step.ports[0]])
    return value


def cast_text(m: Importer, n: OnnxNode) -> list[Value] | None:
    """Cast from or to strings; None for another cast."""
    value = m.value(n.inputs[0])
    if n.op == "CastLike":
        like = m.value(n.inputs[1])
        to = None if like.is_text else m.type_of(like).dtype
    else:
        to = None if n.attr("to") == onnx.TensorProto.STRING else element_dtype(n.attr("to"), m.site)
    if to is None:
        if value.is_text:
            return [value]
        out = m.result(m.one("identity", [m.data(value)]))
        if out.type is not None and (out.type.dtype == DType.bool or out.type.dtype.is_small):
            raise unsupported(m, f"numbers of {out.type.dtype} as words", "cast them to fp32 or i64 first")
        out.printed = True
        return [out]
    if value.printed:
        return [m.result(m.cast(m.data(value), to))]
    if not value.is_text:
        return None
    return [m.result(number_of_words(m, value, to))]


def number_of_words(m: Importer, value: Value, to: DType) -> str:
    """The numbers that the words of a text spell, in dtype `to`. Raises InputMismatch at run time for others."""
    if to == DType.bool or to.is_small or to in (DType.fp16, DType.bf16):
        return m.cast(number_of_words(m, value, DType.fp32), to)
    return _tables(m, value, "as_number", (numpy_dtype(to).name,), ((to, False),))[0].tensor


def _normalizer(m: Importer, n: OnnxNode) -> list[Value]:
    """StringNormalizer: changes case and removes stop words; one empty word if none is left."""
    value = m.value(n.inputs[0])
    change, stops = n.attr("case_change_action", "NONE"), [str(w) for w in n.attr("stopwords", [])]
    is_exact = bool(n.attr("is_case_sensitive", 0))
    if stops:
        value = _without(m, value, stops, is_exact)
    if change in ("LOWER", "UPPER"):
        value = _as_words(m, _tables(m, value, "with_case", (change,), ((DType.i64, False),))[0])
    return [value]


def _without(m: Importer, value: Value, stops: list[str], is_exact: bool) -> Value:
    codes, sources = words_of(m, value)
    compared = codes
    if not is_exact:
        stops = [w.lower() for w in stops]
        compared = _tables(m, value, "with_case", ("LOWER",), ((DType.i64, False),))[0].tensor
    shape = m.shape(codes)
    flat = Num(m, compared).reshape(product(shape))
    row = Num(m, m.add_constant(m.coded(np.array(stops, object))))
    stays = flat.unsqueeze(1).fn("eq", row).fn("reduce_or", axes=(1,)).fn("not")
    none = stays.fn("reduce_or", axes=(0,)).fn("not").reshape(1)
    empty = m.add_constant(m.coded(np.array([""], object)))
    every = m.one("concat", [m.one("reshape", [codes], {"shape": (product(shape),)}), empty], {"axis": 0})
    keep = m.one("concat", [stays.tensor, none.tensor], {"axis": 0})
    kept = m.one("compress", [every, keep], {"size": m.fresh_size("K"), "axis": 0})
    if len(shape) == 2:
        kept = m.one("unsqueeze", [kept], {"axes": (0,)})
    return m.words(kept, sources | MODEL_WORDS)


def _full_match(m: Importer, n: OnnxNode) -> list[Value]:
    return _tables(m, m.value(n.inputs[0]), "matches", (n.attr("pattern"),), ((DType.bool, False),))


def _split(m: Importer, n: OnnxNode) -> list[Value]:
    most = n.attr("maxsplit")
    columns = ((DType.i64, True), (DType.i64, False))
    parts, counts = _tables(m, m.value(n.inputs[0]), "parts", (n.attr("delimiter", "") or "", most), columns)
    return [_as_words(m, parts), counts]


def _concat_words(m: Importer, n: OnnxNode) -> list[Value]:
    """StringConcat: each word followed by that of the other text: a table if one is a constant word, else made from the
    caller's arrays."""
    left, right = (m.value(i) for i in n.inputs)
    for value, other, function in ((left, right, "followed_by"), (right, left, "preceded_by")):
        if is_text_array(other.array) and other.array is not None and other.array.size == 1 and other.array.ndim == 0:
            return [_as_words(m, _tables(m, value, function, (str(other.array.item()),), ((DType.i64, False),))[0])]
    given: list[str] = []
    constant = None
    for value in (left, right):
        if is_text_array(value.array):
            constant = value.array
            given.append("")
        elif value.text is not None and value.text == frozenset([value.tensor]):
            given.append(value.tensor)
        else:
            raise unsupported(m, "StringConcat of words that the program computes", "join words that are inputs of the model")
    m.refuse_words_inside()
    shapes = [m.shape(t) for t in m.broadcast([m.data(left), m.data(right)])]
    port = _port(m, f"joined{len(m.word_steps)}", DType.i64, shapes[0] or shapes[1])
    m.word_steps.append(Joined(port, given[0], given[1], constant))
    return [m.words(port, frozenset([port]))]


def tokenizer(m: Importer, n: OnnxNode) -> list[Value]:
    """Tokenizer: the tokens of each text along a new last axis, as long as the largest number of tokens in the call."""
    separators = tuple(str(s) for s in n.attr("separators", []))
    attrs = (
        bool(n.attr("mark", 0)),
        n.attr("pad_value", ""),
        separators,
        n.attr("tokenexp", "") or "",
        int(n.attr("mincharnum", 1)),
    )
    return [_as_words(m, _tables(m, m.value(n.inputs[0]), "tokens", attrs, ((DType.i64, True),))[0])]


STRINGS: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "StringNormalizer": _normalizer,
    "RegexFullMatch": _full_match,
    "StringSplit": _split,
    "StringConcat": _concat_words,
}
"""Handlers of this file by operator."""
