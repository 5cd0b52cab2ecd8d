"""Random trees as attributes of the operators, with every mode of node and ties on the splits."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper, numpy_helper

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def rows(rng: np.random.Generator, count: int, features: int, dtype: Any) -> np.ndarray:
    """Halves, so that many stand exactly on a split, some of them not there, and some infinite."""
    x = rng.integers(-6, 7, (count, features)) / 2
    if np.dtype(dtype).kind == "f":
        x[rng.random(x.shape) < 0.1] = np.nan
        x[rng.random(x.shape) < 0.03] = np.inf
        x[rng.random(x.shape) < 0.03] = -np.inf
    return x.astype(dtype)


def older(
    rng: np.random.Generator, stem: str, trees: int, depth: int, features: int, ids: tuple[int, ...], *,
    modes: tuple[str, ...] = MODES, every: bool = False, positive: bool = False, as_double: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Attributes of TreeEnsembleClassifier (`class`) and TreeEnsembleRegressor (`target`); `every`: a leaf gives all ids."""
    columns: dict[str, list[Any]] = {
        k: []
        for k in (
            "treeids",
            "nodeids",
            "featureids",
            "values",
            "modes",
            "truenodeids",
            "falsenodeids",
            "missing_value_tracks_true",
        )
    }
    entries: dict[str, list[Any]] = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        free = [1]

        def grow(level: int, me: int, tree: int = tree, free: list[int] = free) -> None:
            is_leaf = level == 0 or (level < depth and rng.random() < 0.2)
            kids = (0, 0)
            if not is_leaf:
                kids = (free[0], free[0] + 1)
                free[0] += 2
            mode = "LEAF" if is_leaf else modes[rng.integers(len(modes))]
            row = (tree, me, int(rng.integers(features)), float(rng.integers(-5, 6) / 2), mode, *kids, int(rng.integers(2)))
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
            for i in (ids if every else (ids[rng.integers(len(ids))],)) if is_leaf else ():
                weight = float(rng.random() if positive else rng.standard_normal()) / trees
                for column, value in zip(entries.values(), (tree, me, i, weight), strict=True):
                    column.append(value)
            for kid in kids if not is_leaf else ():
                grow(level - 1, kid)

        grow(depth, 0)
    attrs: dict[str, Any] = {f"nodes_{k}": v for k, v in columns.items()} | {f"{stem}_{k}": v for k, v in entries.items()}
    for name in ("nodes_values", f"{stem}_weights") if as_double else ():
        attrs[f"{name}_as_tensor"] = numpy_helper.from_array(np.array(attrs.pop(name)) + 1e-9)
    return attrs


def newer(
    rng: np.random.Generator,
    trees: int,
    depth: int,
    features: int,
    targets: int,
    dtype: Any,
    modes: tuple[int, ...],
    step: int = 1,
) -> dict[str, Any]:
    """Attributes of TreeEnsemble 5; the members of a set are whole numbers over `step`."""
    roots: list[int] = []
    inner: list[list[Any]] = []  # feature, mode, split, true, is leaf, false, is leaf, missing
    leaves: list[tuple[int, float]] = []
    members: list[float] = []

    def grow(level: int) -> tuple[int, int]:
        if level == 0 or (level < depth and rng.random() < 0.2):
            leaves.append((int(rng.integers(targets)), float(rng.standard_normal())))
            return len(leaves) - 1, 1
        me = len(inner)
        inner.append([])
        mode = int(modes[rng.integers(len(modes))])
        if mode == 6:
            members.extend([*(rng.choice(np.arange(1, 7), int(rng.integers(1, 6)), replace=False) / step), np.nan])
        (yes, is_yes), (no, is_no) = grow(level - 1), grow(level - 1)
        split = float(rng.integers(-5, 6) / 2)
        inner[me] = [int(rng.integers(features)), mode, split, yes, is_yes, no, is_no, int(rng.integers(2))]
        return me, 0

    for _ in range(trees):
        roots.append(grow(depth)[0])
    f, mode, split, yes, is_yes, no, is_no, missing = (list(c) for c in zip(*inner, strict=True))
    # membership_values lie in the order of nodes, which is the order in which they were drawn: both are by depth first
    return {
        "tree_roots": roots, "n_targets": targets, "nodes_featureids": f, "nodes_truenodeids": yes, "nodes_trueleafs": is_yes,
        "nodes_falsenodeids": no, "nodes_falseleafs": is_no, "nodes_missing_value_tracks_true": missing,
        "nodes_modes": helper.make_tensor("modes", 2, [len(mode)], mode),
        "nodes_splits": numpy_helper.from_array(np.array(split, dtype)),
        "leaf_targetids": [t for t, _ in leaves], "leaf_weights": numpy_helper.from_array(np.array([w for _, w in leaves], dtype)),
        **({"membership_values": numpy_helper.from_array(np.array(members, dtype))} if members else {}),
    }  # fmt: skip
