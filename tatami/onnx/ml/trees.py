"""TreeEnsemble (5), TreeEnsembleClassifier and TreeEnsembleRegressor (1 to 5): one `tree_ensemble` each."""

from __future__ import annotations

from typing import Any

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.tensor import numpy_dtype
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.ml import forest as nodes
from tatami.onnx.ml.forest import Forest
from tatami.onnx.ml.scores import Labels, best, features, transform_of, transformed, two_columns
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import unsupported
from tatami.onnx.values import Value

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""Aggregate functions in the order of their numbers in TreeEnsemble 5."""


def ensemble(m: Importer, n: OnnxNode) -> list[Value]:
    """TreeEnsemble: aggregated leaf values, in the dtype of x, and their transform."""
    forest = _forest_5(m, n)
    outputs, how = int(n.attr("n_targets", 1)), n.attr("aggregate_function", 1)
    if not 0 <= how < len(AGGREGATES):
        raise fail("InvalidAttribute", m.site, f"aggregate_function {how}", "give 0, 1, 2 or 3")
    y = _sums(m, features(m, n, keep_double=True), forest, outputs, AGGREGATES[how])
    return [m.result(transformed(y, transform_of(m, n)).tensor)]


def regressor(m: Importer, n: OnnxNode) -> list[Value]:
    """TreeEnsembleRegressor: aggregated leaf values plus base values, transformed, as fp32."""
    forest = _forest_1(m, n, "target")
    outputs, how = int(n.attr("n_targets", 1)), n.attr("aggregate_function", "SUM")
    if how not in AGGREGATES:
        raise fail("InvalidAttribute", m.site, f"aggregate_function {how}", f"give one of {', '.join(AGGREGATES)}")
    y = _sums(m, features(m, n, keep_double=True), forest, outputs, how)
    base = _numbers(n, "base_values")
    if len(base) not in (0, 1, outputs):
        raise fail("InvalidAttribute", m.site, f"{len(base)} base_values for {outputs} targets", "give one for each target")
    if len(base):
        y = y + Num(m, m.add_constant(base.astype(numpy_dtype(y.dtype))))
    return [m.result(transformed(y, transform_of(m, n)).cast(DType.fp32).tensor)]


def classifier(m: Importer, n: OnnxNode) -> list[Value]:
    """TreeEnsembleClassifier: classes and scores. If all weights belong to one of two classes, the other's scores follow
    from them."""
    forest, labels = _forest_1(m, n, "class"), Labels(m, n, "classlabels_int64s")
    name, base, count = transform_of(m, n), _numbers(n, "base_values"), len(labels)
    scored = np.unique(forest.targets)
    if not count:
        raise fail(
            "InvalidAttribute", m.site, "a classifier without class labels", "give classlabels_int64s or classlabels_strings"
        )
    if len(base) not in (0, 1, count):
        raise fail("InvalidAttribute", m.site, f"{len(base)} base_values for {count} classes", "give one for each class")
    is_single = count == 2 and len(scored) == 1
    y = _sums(m, features(m, n, keep_double=True), forest, count, "SUM")
    if len(base) == count or (len(base) == 1 and not is_single):
        y = y + Num(m, m.add_constant(np.resize(base, count).astype(numpy_dtype(y.dtype))))
    elif len(base) == 1:
        y = y + float(base[0])
    if is_single:
        column = y.part(1, int(scored[0]), int(scored[0]) + 1)
        is_positive = bool((forest.weights >= 0).all())
        label = labels.of_sign(column.fn("squeeze", axes=(1,)).fn("gt", 0.5 if is_positive else 0.0))
        if scored[0] == 0 and len(base) < 2:
            z = two_columns(column, name, is_positive=is_positive)
        elif len(base) == 2:
            z = transformed(y, name)
        else:
            none = column.fn("mul", 0.0)
            z = transformed(Num(m, m.one("concat", [none.tensor, column.tensor], {"axis": 1})), name)
    else:
        may_win = np.isin(np.arange(count), scored) | (len(base) == count)
        label, z = labels.pick(best(y, may_win)), transformed(y, name)
    return [label, m.result(z.cast(DType.fp32).tensor)]


def _sums(m: Importer, x: Num, forest: Forest, outputs: int, how: str) -> Num:
    """[rows, outputs]: aggregated values of the leaves that a row reaches, in the dtype of x."""
    if len(forest.targets) and not 0 <= int(forest.targets.min()) <= int(forest.targets.max()) < outputs:
        raise fail(
            "InvalidAttribute", m.site, f"a leaf for output {int(forest.targets.max())} of {outputs}", "repair the target ids"
        )
    dtype = np.dtype(numpy_dtype(x.dtype))
    kind = how.lower() if how in ("MIN", "MAX") else "sum"
    table, roots = nodes.tables(forest, dtype)
    targets, values = nodes.leaf_tables(forest, outputs, dtype, kind)
    inner = forest.leaf_row < 0
    asked = int(forest.features[inner].max(initial=-1)) + 1
    constants = [m.add_constant(a) for a in (table, roots, targets, values)]
    if not len(roots):
        raise unsupported(m, "an ensemble without trees", "give it a tree")
    y = Num(m, m.one("tree_ensemble", [x.tensor, *constants], {"outputs": outputs, "features": asked, "how": kind}))
    if how == "AVERAGE":
        return y / float(len(roots))
    if kind != "sum" and not _always_scored(forest, outputs):
        return y.fn("eq", np.inf if kind == "min" else -np.inf).where(Num(m, m.number(0.0, y.dtype)), y)
    return y


def _always_scored(forest: Forest, outputs: int) -> bool:
    """True if each leaf has a value for every output; otherwise an output without a value counts as 0."""
    given = np.zeros((forest.leaves, outputs), bool)
    given[forest.entry_leaf, forest.targets] = True
    return bool(given.all())


def _numbers(n: OnnxNode, stem: str) -> np.ndarray:
    """An attribute of numbers, given as a list (fp32) or as a tensor."""
    tensor = n.attr(f"{stem}_as_tensor")
    return n.numbers(stem, np.float32) if tensor is None else np.asarray(tensor).reshape(-1)


def _integers(n: OnnxNode, name: str, dtype: Any = np.int64) -> np.ndarray:
    return n.numbers(name, dtype)


def _forest_1(m: Importer, n: OnnxNode, stem: str) -> Forest:
    """The nodes of the older operators, found by tree id and node id, leaves included."""
    tree, node = _integers(n, "nodes_treeids"), _integers(n, "nodes_nodeids")
    (kinds, which), missing = n.words("nodes_modes"), _integers(n, "nodes_missing_value_tracks_true", bool)
    features, splits = _integers(n, "nodes_featureids"), _numbers(n, "nodes_values")
    columns = {"nodes_nodeids": node, "nodes_modes": which, "nodes_featureids": features, "nodes_values": splits}
    columns |= {f"nodes_{side}nodeids": _integers(n, f"nodes_{side}nodeids") for side in ("true", "false")}
    wrong = next((f"{len(c)} {name}" for name, c in columns.items() if len(c) != len(tree)), "")
    if wrong or len(missing) not in (0, len(tree)):
        why = wrong or f"{len(missing)} nodes_missing_value_tracks_true"
        raise fail("InvalidAttribute", m.site, f"{why} for {len(tree)} nodes", "give one for each node")
    unknown = sorted({*kinds} - {*nodes.MODES, "LEAF"})
    if unknown:
        raise fail("InvalidAttribute", m.site, f"a node of mode {unknown[0]!r}", f"give one of {', '.join(nodes.MODES)}, LEAF")
    index = _Ids(m, tree, node)
    is_leaf = np.array([kind == "LEAF" for kind in kinds], bool)[which]
    modes = np.array([nodes.MODES.get(kind, nodes.LEQ) for kind in kinds], np.int64)[which]
    here = np.arange(len(tree))
    sides = {}
    for side in ("true", "false"):
        to = here.copy()
        to[~is_leaf] = index.of(tree[~is_leaf], columns[f"nodes_{side}nodeids"][~is_leaf])
        sides[side] = to
    is_root = np.ones(len(tree), bool)
    for to in sides.values():
        is_root[to[~is_leaf]] = False
    roots = here[is_root]
    if len(np.unique(tree[roots])) != len(roots) or len(roots) != len(np.unique(tree)):
        raise unsupported(
            m, f"{len(roots)} nodes that no other leads to, in {len(np.unique(tree))} trees", "repair the node ids"
        )
    leaf_row = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1)
    entry_tree, entry_node = (_integers(n, f"{stem}_{what}") for what in ("treeids", "nodeids"))
    targets, weights = _integers(n, f"{stem}_ids"), _numbers(n, f"{stem}_weights")
    if not len(entry_tree) == len(entry_node) == len(targets) == len(weights):
        raise fail(
            "InvalidAttribute", m.site, f"{len(weights)} weights for {len(targets)} ids", f"give one of each {stem}_… attribute"
        )
    entry = leaf_row[index.of(entry_tree, entry_node)]
    on_leaf = entry >= 0  # weights of an inner node have no effect
    is_missing = missing if len(missing) else np.zeros(len(tree), bool)
    forest = Forest(
        roots, features, modes, splits, sides["true"], sides["false"], is_missing, leaf_row,
        entry[on_leaf], targets[on_leaf], weights[on_leaf],
    )  # fmt: skip
    nodes.check(m, forest)
    return forest


class _Ids:
    """Positions of nodes by (tree id, node id)."""

    def __init__(self, m: Importer, tree: np.ndarray, node: np.ndarray) -> None:
        self.m = m
        self.base = int(node.max(initial=0)) + 2
        if len(node) and (node.min() < 0 or tree.min() < 0):
            raise unsupported(m, "a node or tree id below 0", "repair the node ids")
        keys = tree * self.base + node
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]
        if (self.keys[1:] == self.keys[:-1]).any():
            raise unsupported(m, "two nodes of one id in a tree", "repair the node ids")

    def of(self, tree: np.ndarray, node: np.ndarray) -> np.ndarray:
        """Positions of the given nodes. Raises UnsupportedModel for a node that does not exist."""
        wanted = tree * self.base + np.clip(node, -1, self.base - 1)
        at = np.searchsorted(self.keys, wanted)
        if len(wanted) and (not len(self.keys) or (self.keys[np.minimum(at, len(self.keys) - 1)] != wanted).any()):
            raise unsupported(self.m, "a tree that leads to a node that is not there", "repair the node ids")
        return self.order[at] if len(wanted) else at


def _forest_5(m: Importer, n: OnnxNode) -> Forest:
    """The nodes of TreeEnsemble 5: inner nodes and leaves have separate numbers. Each leaf is one entry."""
    modes = _integers(n, "nodes_modes")
    splits, weights = (np.asarray(n.attr(name, [])).reshape(-1) for name in ("nodes_splits", "leaf_weights"))
    inner, leaves = len(modes), len(weights)
    features, targets = _integers(n, "nodes_featureids"), _integers(n, "leaf_targetids")
    missing = _integers(n, "nodes_missing_value_tracks_true", bool)
    sides = {}
    for side in ("true", "false"):
        is_leaf, to = _integers(n, f"nodes_{side}leafs", bool), _integers(n, f"nodes_{side}nodeids")
        if not inner == len(is_leaf) == len(to):
            raise fail("InvalidAttribute", m.site, f"{len(to)} nodes_{side}nodeids for {inner} nodes", "give one for each node")
        bound = np.where(is_leaf, leaves, inner)
        if ((to < 0) | (to >= bound)).any():
            raise unsupported(m, "a tree that leads to a node that is not there", "repair the node ids")
        sides[side] = np.concatenate([to + np.where(is_leaf, inner, 0), np.arange(inner, inner + leaves)])
    if not inner == len(splits) == len(features) or len(targets) != leaves or len(missing) not in (0, inner):
        raise fail("InvalidAttribute", m.site, f"attributes of several lengths for {inner} nodes", "give one for each node")
    none = np.zeros(leaves, np.int64)
    forest = Forest(
        roots=_integers(n, "tree_roots"),
        features=np.concatenate([features, none]),
        modes=np.concatenate([modes, none]),
        splits=np.concatenate([splits, none.astype(splits.dtype)]),
        yes=sides["true"],
        no=sides["false"],
        is_missing_yes=np.concatenate([missing if len(missing) else np.zeros(inner, bool), none.astype(bool)]),
        leaf_row=np.concatenate([np.full(inner, -1), np.arange(leaves)]),
        entry_leaf=np.arange(leaves),
        targets=targets,
        weights=weights,
        members=_members(modes, np.asarray(n.attr("membership_values", np.zeros(0, np.float32))).reshape(-1)),
    )
    if ((modes < 0) | (modes > nodes.MEMBER)).any():
        raise fail("InvalidAttribute", m.site, f"a node of mode {int(modes.max())}", "give 0 to 6")
    if len(forest.members) != int((modes == nodes.MEMBER).sum()):
        raise fail("InvalidAttribute", m.site, "membership_values of too few sets", "end each node's set with NaN")
    nodes.check(m, forest)
    return forest


def _members(modes: np.ndarray, values: np.ndarray) -> dict[int, np.ndarray]:
    """The set of each membership node: its values up to the next NaN."""
    ends = np.nonzero(np.isnan(values))[0]
    parts = np.split(values, ends)
    sets = [p[~np.isnan(p)] for p in parts]
    return {int(node): part for node, part in zip(np.nonzero(modes == nodes.MEMBER)[0], sets, strict=False)}
