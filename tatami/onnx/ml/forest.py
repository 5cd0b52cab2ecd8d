"""The nodes of an ensemble, rewritten to one comparison, `x <= split`, and one table (core/numbers/trees.py).

    x <  s    x <= the number before s
    x >  s    x <= s with its branches exchanged; x >= s likewise
    x == s    x <= s, and then x <= the number before s: the false branch
    x in S    a search tree over the numbers of S; each interval between them leads to the false branch

Each node also decides where NaN goes: "<=" and the like are false for NaN, "!=" is true, and the flags for missing values
are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tatami.core.numbers.trees import node_table
from tatami.onnx.importer import Importer
from tatami.onnx.operands import unsupported

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
"""Modes of a node, by the numbers of TreeEnsemble 5."""
MODES = {"BRANCH_LEQ": LEQ, "BRANCH_LT": LT, "BRANCH_GTE": GTE, "BRANCH_GT": GT, "BRANCH_EQ": EQ, "BRANCH_NEQ": NEQ}
"""Mode by its name in the older operators."""
MAX_DEPTH = 4096
"""Maximum number of levels of a tree, more than any trained tree has; a cycle exceeds it."""


@dataclass
class Forest:
    """Nodes numbered over all trees, each tree's nodes together, leaves included (`leaf_row` >= 0). `yes`, `no`: the next
    node of each branch. `targets`, `weights`: output and value of each leaf entry, `entry_leaf` its leaf's row."""

    roots: np.ndarray
    features: np.ndarray
    modes: np.ndarray
    splits: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    is_missing_yes: np.ndarray
    leaf_row: np.ndarray
    entry_leaf: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    members: dict[int, np.ndarray] = field(default_factory=dict)
    """The set of each node of mode MEMBER, by node."""

    @property
    def leaves(self) -> int:
        """Number of leaves of all trees."""
        return int(self.leaf_row.max(initial=-1)) + 1


def check(m: Importer, forest: Forest) -> None:
    """Raise UnsupportedModel unless every path from a root ends at a leaf."""
    count = len(forest.features)
    for name, where in (("roots", forest.roots), ("true", forest.yes), ("false", forest.no)):
        if len(where) and not (int(where.min()) >= 0 and int(where.max()) < count):
            raise unsupported(m, f"a tree that leads to a node that is not there ({name})", "repair the node ids")
    if len(forest.features) and int(forest.features.min()) < 0:
        raise unsupported(m, "a node that asks for a feature below 0", "repair nodes_featureids")
    level = forest.roots
    for _ in range(MAX_DEPTH):
        level = level[forest.leaf_row[level] < 0]
        if not len(level):
            return
        is_next = np.zeros(count, bool)
        is_next[forest.yes[level]] = is_next[forest.no[level]] = True
        level = np.nonzero(is_next)[0]
    raise unsupported(m, f"a tree more than {MAX_DEPTH} deep, or one without an end", "repair the node ids")


def tables(forest: Forest, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """(nodes, roots) of core/numbers/trees.py for x of the dtype."""
    splits = forest.splits.astype(dtype)
    yes, no, nan = forest.yes.copy(), forest.no.copy(), forest.is_missing_yes.copy()
    below = np.isin(forest.modes, (LT, GTE))
    splits[below] = np.nextafter(splits[below], dtype.type(-np.inf))
    splits[below & (forest.splits.astype(dtype) == -np.inf)] = np.nan
    flipped = np.isin(forest.modes, (GT, GTE)) & ~np.isnan(forest.splits)
    yes[flipped], no[flipped], nan[flipped] = no[flipped], yes[flipped], ~nan[flipped]
    more = _More(len(splits))
    for i in np.nonzero(np.isin(forest.modes, (EQ, NEQ, MEMBER)) & (forest.leaf_row < 0))[0].tolist():
        inside, outside = int(yes[i]), int(no[i])
        given = forest.members[i] if forest.modes[i] == MEMBER else forest.splits[i : i + 1]
        if forest.modes[i] == NEQ:
            inside, outside, is_nan_inside = outside, inside, False
        else:
            is_nan_inside = bool(nan[i])
        numbers = np.unique(given.astype(dtype)[~np.isnan(given.astype(dtype))])
        if not len(numbers):
            splits[i], yes[i], no[i], nan[i] = np.nan, inside, outside, is_nan_inside
            continue
        splits[i], yes[i], no[i], nan[i] = more.search(int(forest.features[i]), numbers, inside, outside, is_nan_inside)
    grown = len(more.splits)
    features = np.concatenate([forest.features, np.array(more.features, np.int64)])
    splits = np.concatenate([splits, np.array(more.splits, dtype)])
    nan = np.concatenate([nan, np.array(more.nan, bool)])
    yes, no = np.concatenate([yes, np.array(more.yes, np.int64)]), np.concatenate([no, np.array(more.no, np.int64)])
    leaf_row = np.concatenate([forest.leaf_row, np.full(grown, -1)])
    is_leaf = leaf_row >= 0
    here = np.arange(len(splits))
    nodes = node_table(
        splits,
        np.where(is_leaf, 0, features),
        nan & ~is_leaf,
        np.where(is_leaf, here, no),
        np.where(is_leaf, here, yes),
        leaf_row,
    )
    return nodes, forest.roots.astype(np.int32)


class _More:
    """Nodes that are appended to those of the model."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.features: list[int] = []
        self.splits: list[float] = []
        self.yes: list[int] = []
        self.no: list[int] = []
        self.nan: list[bool] = []

    def search(
        self, feature: int, numbers: np.ndarray, inside: int, outside: int, is_nan_inside: bool
    ) -> tuple[float, int, int, bool]:
        """Add a binary search tree that tests if x is one of `numbers` (ascending), over the borders of intervals; NaN goes
        to an interval with the right result. Returns (split, yes, no, NaN goes to yes) of the first node, which replaces
        the model's own."""
        borders: list[tuple[float, int]] = []  # (last number of an interval, the node it leads to)
        for v in numbers:
            before = np.nextafter(v, v.dtype.type(-np.inf)) if v != -np.inf else v.dtype.type(np.nan)
            borders += [(before, outside), (v, inside)]
        i = self._halves(feature, borders, outside, inside if is_nan_inside else outside) - self.first
        return self.splits[i], self.yes[i], self.no[i], self.nan[i]

    def _halves(self, feature: int, borders: Sequence[tuple[float, int]], last: int, nan: int) -> int:
        if not borders:
            return last
        middle = len(borders) // 2
        low, high = borders[:middle], borders[middle + 1 :]
        place = len(self.splits)
        self.features.append(feature)
        self.splits.append(borders[middle][0])
        self.yes.append(0)
        self.no.append(0)
        self.nan.append(False)
        yes = self._halves(feature, low, borders[middle][1], nan)
        no = self._halves(feature, high, last, nan)
        self.yes[place], self.no[place] = yes, no
        self.nan[place] = self._leads(yes, nan)
        return self.first + place

    def _leads(self, node: int, to: int) -> bool:
        """True if NaN reaches node `to` from `node`."""
        while node >= self.first:
            i = node - self.first
            node = self.yes[i] if self.nan[i] else self.no[i]
        return node == to


def leaf_tables(forest: Forest, outputs: int, dtype: np.dtype, how: str) -> tuple[np.ndarray, np.ndarray]:
    """(targets, values) of core/numbers/trees.py: the values of each leaf, from its first output to its last."""
    start = {"sum": 0.0, "min": np.inf, "max": -np.inf}[how]
    rows = forest.leaves
    first, last = np.full(rows, outputs - 1), np.zeros(rows, np.int64)
    np.minimum.at(first, forest.entry_leaf, forest.targets)
    np.maximum.at(last, forest.entry_leaf, forest.targets)
    width = int((last - first).max(initial=0)) + 1
    first = np.minimum(first, outputs - width)
    values = np.full((rows, width), start, dtype)
    place = forest.entry_leaf, forest.targets - first[forest.entry_leaf]
    {"sum": np.add, "min": np.minimum, "max": np.maximum}[how].at(values, place, forest.weights.astype(dtype))
    return first.astype(np.int32), values
