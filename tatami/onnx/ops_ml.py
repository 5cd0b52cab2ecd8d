"""Operators of `ai.onnx.ml` on numbers: look-ups, thresholds, trees walked level by level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.core.tensor import numpy_dtype
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.values import Value

MAX_TREE_DEPTH = 64


def _binarizer(m: Importer, n: OnnxNode) -> list[Value]:
    x = Num(m, m.operand(n, 0))
    return [m.result(x.fn("gt", float(n.attr("threshold", 0.0))).cast(x.dtype).tensor)]


def _feature_extractor(m: Importer, n: OnnxNode) -> list[Value]:
    """Chosen elements of the last axis; rank 1 becomes one row."""
    x, index = m.operands(n)
    if len(m.shape(x)) == 1:
        x = m.one("unsqueeze", [x], {"axes": (0,)})
    (count,) = m.shape(index)[-1:] or (expr(1),)
    index = m.one("reshape", [index], {"shape": (count,)})
    return [m.result(m.one("take", [x, index], {"axis": len(m.shape(x)) - 1}))]


def _label_encoder(m: Importer, n: OnnxNode) -> list[Value]:
    """The value of the last key that equals the element, or the default."""
    x = Num(m, m.operand(n, 0))
    keys, values = _column(n, "keys"), _column(n, "values")
    if keys.dtype.kind not in "biuf" or values.dtype.kind not in "biuf":
        raise unsupported(m, "LabelEncoder of strings", "map numbers to numbers")
    fallback = n.attr("default_tensor")
    if fallback is None:
        fallback = n.attr("default_int64", -1) if values.dtype.kind in "iu" else n.attr("default_float", -0.0)
    default = np.asarray(fallback).reshape(-1)[:1].astype(values.dtype)
    if len(keys) != len(values):
        raise unsupported(m, f"{len(keys)} keys for {len(values)} values", "give one value for each key")
    table = m.add_constant(np.concatenate([default, values]))
    row = Num(m, m.add_constant(keys.astype(numpy_dtype(x.dtype))))
    same = x.unsqueeze(len(x.shape)).fn("eq", row)
    if x.dtype.is_float and np.isnan(keys).any():
        is_nan = Num(m, m.add_constant(np.isnan(keys)))
        same = same.fn("or", x.fn("isnan").unsqueeze(len(x.shape)).fn("and", is_nan))
    places = Num(m, m.add_constant(np.arange(1, len(keys) + 1)))
    found = (same.cast(DType.i64) * places).fn("reduce_max", axes=(len(x.shape),)).fn("max", 0)
    return [m.result(m.one("take", [table, found.tensor], {"axis": 0}))]


def _column(n: OnnxNode, stem: str) -> np.ndarray:
    for suffix, dtype in (("tensor", None), ("int64s", np.int64), ("floats", np.float32), ("strings", object)):
        given = n.attr(f"{stem}_{suffix}")
        if given is not None:
            return np.asarray(given, dtype).reshape(-1)
    return np.zeros(0, np.int64)


def _tree_ensemble(m: Importer, n: OnnxNode) -> list[Value]:
    """All rows walk all trees at once: position [N, T], moved once per level; leaves stay where they are."""
    x = Num(m, m.operand(n, 0))
    forest = _Forest(m, n)
    rows, trees = x.shape[0], len(forest.roots)
    at = Num(m, m.add_constant(forest.roots)).unsqueeze(0).fn("expand", shape=(rows, expr(trees)))
    for _ in range(forest.depth):
        feature = forest.look_up(forest.features, at)
        value = Num(m, m.one("gather", [x.tensor, feature.tensor], {"axis": 1}))
        taken = forest.taken(at, value)
        at = taken.where(forest.look_up(forest.then, at), forest.look_up(forest.otherwise, at))
    leaf = at - forest.inner
    weights = Num(m, m.one("take", [m.add_constant(forest.weights), leaf.tensor], {"axis": 0})).cast(x.dtype)
    targets = Num(m, m.one("take", [m.add_constant(forest.targets), leaf.tensor], {"axis": 0}))
    count = int(n.attr("n_targets"))
    mine = targets.unsqueeze(2).fn("eq", Num(m, m.add_constant(np.arange(count))))
    spread = weights.unsqueeze(2).fn("expand", shape=(rows, expr(trees), expr(count)))
    match n.attr("aggregate_function", 1):
        case 0 | 1 as how:
            y = mine.where(spread, 0.0).fn("reduce_sum", axes=(1,))
            y = y / float(trees) if how == 0 else y
        case 2:
            y = mine.where(spread, float(np.finfo(numpy_dtype(x.dtype)).max)).fn("reduce_min", axes=(1,))
        case _:
            y = mine.where(spread, float(np.finfo(numpy_dtype(x.dtype)).min)).fn("reduce_max", axes=(1,))
    match n.attr("post_transform", 0):
        case 0:
            pass
        case 1:
            y = y.fn("softmax", axis=1)
        case 2:
            y = y.fn("sigmoid")
        case other:
            raise unsupported(m, f"TreeEnsemble with post_transform {other}", "use NONE, SOFTMAX or LOGISTIC")
    return [m.result(y.tensor)]


class _Forest:
    """The tables of an ensemble: inner nodes first, then leaves, which lead to themselves."""

    def __init__(self, m: Importer, n: OnnxNode) -> None:
        self.m = m

        def ints(name: str) -> np.ndarray:
            return np.asarray(n.attr(name, []), np.int64).reshape(-1)

        self.roots = ints("tree_roots")
        self.modes = np.asarray(n.attr("nodes_modes"), np.int64).reshape(-1)
        self.inner = len(self.modes)
        self.weights, self.targets = np.asarray(n.attr("leaf_weights")).reshape(-1), ints("leaf_targetids")
        leaves = np.arange(self.inner, self.inner + len(self.weights))
        none = np.zeros(len(leaves), np.int64)

        def branch(side: str) -> np.ndarray:
            to = ints(f"nodes_{side}nodeids") + np.where(ints(f"nodes_{side}leafs") != 0, self.inner, 0)
            return np.concatenate([to, leaves])

        self.then, self.otherwise = branch("true"), branch("false")
        self.features = np.concatenate([ints("nodes_featureids"), none])
        splits = np.asarray(n.attr("nodes_splits")).reshape(-1)
        self.splits = np.concatenate([splits, np.zeros(len(leaves), splits.dtype)])
        missing = ints("nodes_missing_value_tracks_true")
        self.missing = np.concatenate([missing if len(missing) else np.zeros(self.inner, np.int64), none]) != 0
        self.members = _members(self.modes, np.asarray(n.attr("membership_values", np.zeros(0, np.float32))).reshape(-1))
        self.depth = self._depth()

    def _depth(self) -> int:
        """Levels of the deepest tree. Raises UnsupportedModel for trees that are none."""
        level, seen = set(self.roots.tolist()), 0
        if any(not 0 <= i < len(self.then) for i in (*level, *self.then.tolist(), *self.otherwise.tolist())):
            raise unsupported(self.m, "a tree that leads to a node that is not there", "repair the node ids")
        while any(i < self.inner for i in level):
            if seen == MAX_TREE_DEPTH:
                raise unsupported(self.m, f"trees more than {MAX_TREE_DEPTH} deep", "use shallower trees")
            level = {int(side[i]) for i in level if i < self.inner for side in (self.then, self.otherwise)}
            seen += 1
        return seen

    def look_up(self, table: np.ndarray, at: Num) -> Num:
        return Num(self.m, self.m.one("take", [self.m.add_constant(table), at.tensor], {"axis": 0}))

    def taken(self, at: Num, value: Num) -> Num:
        """Whether each position goes to its true branch."""
        split = self.look_up(self.splits, at).cast(value.dtype)
        modes = np.concatenate([self.modes, np.zeros(len(self.then) - self.inner, np.int64)])
        result: Num | None = None
        for mode in sorted(set(self.modes.tolist())):
            holds = value.fn(_COMPARISONS[mode], split) if mode in _COMPARISONS else self._is_member(at, value)
            chosen = self.look_up(modes == mode, at).fn("and", holds)
            result = chosen if result is None else result.fn("or", chosen)
        assert result is not None
        if self.missing.any():
            result = result.fn("or", value.fn("isnan").fn("and", self.look_up(self.missing, at)))
        return result

    def _is_member(self, at: Num, value: Num) -> Num:
        width = max((len(v) for v in self.members.values()), default=1) or 1
        table = np.full((len(self.then), width), np.nan, numpy_dtype(value.dtype))
        for node, values in self.members.items():
            table[node, : len(values)] = values
        return value.unsqueeze(2).fn("eq", self.look_up(table, at)).fn("reduce_or", axes=(2,))


_COMPARISONS = {0: "le", 1: "lt", 2: "ge", 3: "gt", 4: "eq", 5: "ne"}


def _members(modes: np.ndarray, values: np.ndarray) -> dict[int, np.ndarray]:
    """The set of each membership node: the values up to the next NaN."""
    parts: list[list[Any]] = [[]]
    for v in values:
        if np.isnan(v):
            parts.append([])
        else:
            parts[-1].append(v)
    nodes = np.nonzero(modes == 6)[0]
    return {int(node): np.array(part) for node, part in zip(nodes, parts, strict=False)}


ML: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "Binarizer": _binarizer,
    "ArrayFeatureExtractor": _feature_extractor,
    "LabelEncoder": _label_encoder,
    "TreeEnsemble": _tree_ensemble,
}
