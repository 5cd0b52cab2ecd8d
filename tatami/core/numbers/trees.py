"""Ensembles of decision trees as tables, and their meaning in numpy.

Every node tests whether the feature, or its negative, is at most the split; NaN never is. (`onnx/ml/forest.py` expresses the
other comparisons by this one.) A row of `nodes` is

    fp32:  the split's bits | 2 * feature, and 1 more for its negative | next of "no" | next of "yes"
    fp64:  the split's bits (two columns) | the same three | unused

all i32, so that a step reads one place. A leaf leads to itself both ways; its first column is its row of `values`, which is
added to the outputs from `targets[row]` on. Trees lie one after another; `roots` rises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tatami.core.dtype import DType

if TYPE_CHECKING:
    import numpy as np

ROWS = 256
"""Rows of x per call of the kernel (c/runtime_text/trees.c): enough to use a block of trees again and again."""
COLUMNS = {DType.fp32: 4, DType.fp64: 6}
"""Type of x -> number of columns of `nodes`."""
HOW = ("sum", "min", "max")
"""Ways in which the leaves of a row are combined; the code of each is its index."""


def node_table(
    splits: np.ndarray, features: np.ndarray, is_nan_yes: np.ndarray, no: np.ndarray, yes: np.ndarray, leaf_row: np.ndarray
) -> np.ndarray:
    """The table of nodes that test `feature <= split`. `splits` has the dtype of x; `leaf_row` is -1 for inner nodes.

    A node that sends NaN the way of "yes" tests `x > split`, as the negative against the negated next number after the
    split, with its branches exchanged.
    """
    import numpy as np  # the table of operations, which names this file, is read without it

    after = np.nextafter(splits, splits.dtype.type(np.inf))
    negated = np.where(np.isnan(splits), np.inf, np.where(splits == np.inf, np.nan, -after)).astype(splits.dtype)
    splits = np.where(is_nan_yes, negated, splits)
    no, yes = np.where(is_nan_yes, yes, no), np.where(is_nan_yes, no, yes)
    words = splits.dtype.itemsize // 4
    table = np.zeros((len(splits), 4 if words == 1 else 6), np.int32)
    table[:, :words] = np.ascontiguousarray(splits).view(np.int32).reshape(-1, words)
    table[leaf_row >= 0, :words] = 0
    table[:, 0] = np.where(leaf_row >= 0, leaf_row, table[:, 0])
    table[:, words] = 2 * features + is_nan_yes
    table[:, words + 1], table[:, words + 2] = no, yes
    return table


class TreeTables(NamedTuple):
    """The tables of an ensemble: nodes (`node_table`), the root of each tree, the first output that each leaf adds to, and the
    values of each leaf."""

    nodes: np.ndarray
    roots: np.ndarray
    targets: np.ndarray
    values: np.ndarray


MOST_LEVELS = 1 << 12
"""Maximum number of levels of a tree; a deeper one is taken for a circle."""


def tables_fault(tables: TreeTables, features: int, outputs: int) -> str:
    """Why a walk through the tables could leave them or never end; empty if it cannot."""
    import numpy as np

    nodes, roots, targets, values = tables
    words = 1 if nodes.shape[1] == 4 else 2
    own = np.arange(len(nodes))
    word, no, yes = (nodes[:, words + i].astype(np.int64) for i in range(3))
    if any(((t < 0) | (t >= len(nodes))).any() for t in (no, yes, roots)):
        return "a node or a root leads outside the table"
    if ((word < 0) | (word >= 2 * features)).any():
        return f"a node asks for a feature beyond {features}"
    is_leaf = (no == own) & (yes == own)
    if ((no == own) ^ (yes == own)).any():
        return "a node leads to itself one way only"
    rows = nodes[is_leaf, 0]
    if ((rows < 0) | (rows >= len(values))).any():
        return "a leaf has no row of values"
    if ((targets < 0) | (targets > outputs - values.shape[1])).any():
        return "a leaf adds to outputs that there are not"
    if (np.diff(roots) < 0).any():
        return "the roots do not rise"
    at = np.unique(roots)
    for _ in range(MOST_LEVELS):
        at = at[~is_leaf[at]]
        if not len(at):
            return ""
        at = np.unique(np.concatenate([no[at], yes[at]]))
    return f"more than {MOST_LEVELS} levels, or a circle"


def walk_trees(x: np.ndarray, tables: TreeTables, outputs: int, how: str) -> np.ndarray:
    """[rows, outputs]: sum, minimum or maximum of the values of each row's leaves. An output that no leaf adds to is 0, inf or
    -inf. The number of columns of `nodes` says how wide the splits are, whatever the dtype of x."""
    import numpy as np

    nodes, roots, targets, values = tables
    words = 1 if nodes.shape[1] == 4 else 2
    splits = np.ascontiguousarray(nodes[:, :words]).view(np.float32 if words == 1 else np.float64).reshape(-1)
    word, no, yes = (nodes[:, words + i].astype(np.int64) for i in range(3))
    start = {"sum": 0.0, "min": np.inf, "max": -np.inf}[how]
    y = np.full((len(x), outputs), start, values.dtype)
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[how]
    rows = np.arange(len(x))
    span = np.arange(values.shape[1])
    for root in roots if len(x) else ():
        at = np.full(len(x), root, np.int64)
        while True:
            v = x[rows, word[at] // 2]
            to = np.where(np.where(word[at] % 2, -v, v) <= splits[at], yes[at], no[at])
            if (to == at).all():
                break
            at = to
        leaf = nodes[at, 0].astype(np.int64)
        place = (rows[:, None], targets[leaf].astype(np.int64)[:, None] + span)
        y[place] = combine(y[place], values[leaf])
    return y
