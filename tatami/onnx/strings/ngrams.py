"""Counts of n-grams, over numbers or words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.frontend.graph_api.slices import slice_bounds
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import choice
from tatami.onnx.strings.operators import words_of
from tatami.onnx.values import Value


def _tf_idf(m: Importer, n: OnnxNode) -> list[Value]:
    """TfIdfVectorizer: number of occurrences of each n-gram of the pool in a row, with words next to each other or up to
    `max_skip_count` apart; each count, or 1 for a positive one, in its column times its weight."""
    mode = choice(m, n, "mode", None, ("TF", "IDF", "TFIDF"))
    words = m.value(n.inputs[0])
    if words.is_text != bool(n.attr("pool_strings")):
        raise fail(
            "InvalidAttribute", m.site, "a pool of strings for numbers, or of numbers for strings", "give the other pool"
        )
    x = Num(m, words_of(m, words)[0] if words.is_text else m.data(words)).cast(DType.i64)
    is_row = len(x.shape) == 1
    rows = x.unsqueeze(0) if is_row else x
    columns = np.asarray(n.attr("ngram_indexes"), np.int64)
    weights = np.asarray(n.attr("weights") or np.ones(len(columns)), np.float32)
    grams = list(_grams(m, n))
    if len(weights) != len(columns) or len(columns) != sum(len(g) for g in grams) or columns.min(initial=0) < 0:
        why = f"{sum(len(g) for g in grams)} n-grams, {len(columns)} ngram_indexes and {len(weights)} weights"
        raise fail("InvalidAttribute", m.site, why, "give one index from 0 on, and one weight if any, for each n-gram")
    table = np.zeros((len(columns), int(columns.max(initial=-1)) + 1), np.float32)
    np.add.at(table, (np.arange(len(columns)), columns), weights if mode != "TF" else np.float32(1))
    apart = range(1, int(n.attr("max_skip_count")) + 2)
    wanted = range(int(n.attr("min_gram_length")), int(n.attr("max_gram_length")) + 1)
    counts: list[Num] = []
    kept: list[int] = []
    first = 0
    for length, pool in enumerate(grams, 1):
        if length in wanted and len(pool):
            counts.append(_counts(m, rows, pool, apart if length > 1 else (1,)))
            kept += range(first, first + len(pool))
        first += len(pool)
    if counts:
        found = Num(m, m.one("concat", [c.tensor for c in counts], {"axis": 1})) if len(counts) > 1 else counts[0]
        if mode == "IDF":
            found = found.fn("gt", 0).cast(DType.fp32)
        y = Num(m, m.one("matmul", [found.tensor, m.add_constant(table[kept])]))
    else:
        y = Num(m, m.number(0.0, DType.fp32)).fn("expand", shape=(rows.shape[0], table.shape[1]))
    return [m.result((y.fn("squeeze", axes=(0,)) if is_row else y).tensor)]


def _grams(m: Importer, n: OnnxNode) -> Iterator[np.ndarray]:
    """[n-grams, words] for one word, two words, …: `ngram_counts` gives the position in the pool at which each length
    begins."""
    words = n.attr("pool_strings")
    pool = m.coded(np.array(words, object)) if words else np.asarray(n.attr("pool_int64s", []), np.int64)
    begins = [*n.attr("ngram_counts"), len(pool)]
    for length, (begin, end) in enumerate(pairwise(begins), 1):
        if not 0 <= begin <= end <= len(pool) or (end - begin) % length:
            why = f"n-grams of {length} words from {begin} to {end} of a pool of {len(pool)}"
            raise fail("InvalidAttribute", m.site, why, "let ngram_counts rise, each part a multiple of its length")
        yield pool[begin:end].reshape(-1, length)


def _counts(m: Importer, rows: Num, pool: np.ndarray, apart: Sequence[int]) -> Num:
    """[row, n-gram]: number of positions at which all words agree, over all distances between the words."""
    width, length = rows.shape[1], pool.shape[1]
    total: Num | None = None
    for distance in apart:
        places = width - distance * (length - 1)
        known = places.as_int()
        if known is not None and known <= 0:
            continue
        hits: Num | None = None
        for word in range(length):
            low, high, _, _ = slice_bounds(slice(distance * word, places + distance * word), width, m.site)
            same = rows.part(1, low, high).unsqueeze(2).fn("eq", Num(m, m.add_constant(pool[:, word])))
            hits = same if hits is None else hits.fn("and", same)
        assert hits is not None
        found = hits.cast(DType.fp32).fn("reduce_sum", axes=(1,))
        total = found if total is None else total + found
    if total is None:
        return Num(m, m.number(0.0, DType.fp32)).fn("expand", shape=(rows.shape[0], len(pool)))
    return total


TEXT: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {"TfIdfVectorizer": _tf_idf}
"""Handlers of this file by operator."""
