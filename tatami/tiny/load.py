"""The spec's own tiny documents, shorthands included, to `tiny@imported` (D2.2, D2.4; spec 2 §5, spec 3 §3.5).

    {"uops": [{"uop": "MUL", "src": ["x", 0.5], "out": "y"}], "tensors": {"x": {"dtype": "fp32", "shape": ["N"]}}}

Accepted and normalised: `out` for `id`, tensor names in src, immediates, nested expressions (``{"gt": "C1,0"}``, ``{"uop":
"CAST", "src": ["x"], "arg": {"to": "fp32"}}``), missing dtype and shape, CONTRACT, POOL, LOAD, STORE, size symbols as reduce
axes, both readings of broadcast_dimensions. A `signature` or `tensors` next to `uops` supplies types that the nodes leave
open; an assumption ``{"lhs": "Oy", "rhs": …}`` with a bare symbol defines it.

Every fault is reported, with a patch if there is one: after a fault with an obvious repair, loading continues as if it had
been repaired.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tatami.core.module import Module
from tatami.tiny.ir import Program
from tatami.tiny.loading.loader import Loader
from tatami.tiny.loading.uops import UOPS


def load(document: Mapping[str, Any]) -> Module[Program]:
    """The module of one document. Raises TatamiError with every fault found."""
    return Loader(document, UOPS).module()
