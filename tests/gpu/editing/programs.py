"""The programs whose gpu documents are edited: sizes with partial tiles, a few blocks of k, and the plan fields that change a
kernel's protocol."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

import tatami as tt
from tatami.api import prepare
from tatami.compilation import Compilation
from tatami.core.codec import to_builtins
from tatami.core.document import InputRef, content_sha256
from tatami.decisions import Decisions
from tatami.storage.dump import to_document


def _graph(f: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = tt.fp16) -> tt.Graph:
    g = tt.Graph("edited")
    g.output("y", f(*(g.input(f"x{i}", shape, dtype) for i, shape in enumerate(shapes))))
    return g


def product(m: int, n: int, k: int, dtype: Any = tt.fp16) -> tt.Graph:
    """relu(x @ w + bias), of m by n results."""
    return _graph(lambda x, w, b: (x @ w + b.expand((m, n))).relu(), (m, k), (k, n), (n,), dtype=dtype)


def linear(m: int, n: int, k: int) -> tt.Graph:
    """x @ w.T, both contiguous along k."""
    return _graph(lambda x, w: x.linear(w), (m, k), (n, k))


def attention(rows: int, keys: int) -> tt.Graph:
    """Causal attention of two heads of width 32."""
    shapes = ((1, 2, rows, 32), (1, 2, keys, 32), (1, 2, keys, 32))
    return _graph(lambda q, k, v: q.attention(k, v, causal=True), *shapes)


def convolution() -> tt.Graph:
    """3x3 filters over an image of 16 channels."""
    return _graph(lambda x, w: x.conv(w, None, padding=1).relu(), (1, 16, 9, 9), (24, 16, 3, 3))


ProgramSpec = tuple[str, Callable[[], tt.Graph], Mapping[str, Any]]
PROGRAMS: dict[str, ProgramSpec] = {
    "gemm80": ("sm80", lambda: product(72, 40, 88), {"tile": [64, 32, 32], "warp_tile": "32x32", "stages": 3}),
    "conv80": ("sm80", convolution, {}),
    "attention80": ("sm80", lambda: attention(40, 72), {}),
    "sync80": ("sm80", lambda: product(20, 24, 36, tt.fp64), {}),
    "split80": ("sm80", lambda: product(24, 40, 320), {"split_k": 2}),
    "softmax80": ("sm80", lambda: _graph(lambda x: x.softmax(1), (5, 70), dtype=tt.fp32), {}),
    "sort80": ("sm80", lambda: _graph(lambda x: x.sort(1)[0], (3, 50), dtype=tt.fp32), {}),
    "gemm90": ("sm90", lambda: product(136, 72, 200), {}),
    "conv90": ("sm90", convolution, {}),
    "attention90": ("sm90", lambda: attention(72, 136), {}),
    "cluster90": ("sm90", lambda: linear(264, 136, 136), {"cluster": [1, 2], "multicast": "a"}),
    "stream_k90": ("sm90", lambda: linear(264, 136, 392), {"stream_k": {"rows": 1, "units": 5}, "swap_ab": False}),
}
"""Target, graph, and the fields of the planner's plan that are replaced."""


def decided_plans(free: Compilation, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of the last Region with fields replaced, by its key."""
    found = free.stages["plan"].main.regions[-1]
    plan = msgspec.to_builtins(to_builtins(found.choices[-1].plan)) | fields
    if "tile" in fields or "stages" in fields:
        plan["async"] = plan["async"] | {"prefetch_depth": plan["stages"]}
        plan["k_steps"] = plan["tile"][2] // 16
        plan["predicate_tail"] = ["m", "n", "k"]
    return {found.key: plan}


@functools.cache
def document_of(name: str) -> dict[str, Any]:
    """The gpu document of a program, with the documents that it was made from embedded."""
    target, make, fields = PROGRAMS[name]
    first = prepare(make(), target=f"emulated-{target}", check=False)
    if fields:
        plans = decided_plans(first, fields)
        first = prepare(make(), target=f"emulated-{target}", decisions=Decisions(plans=plans), check=False)
    refs: dict[str, InputRef] = {}
    document: dict[str, Any] = {}
    for stage, needs in (("region", ()), ("plan", ("region",)), ("gpu", ("region", "plan"))):
        made = to_document(stage, first.stages[stage], first.target, inputs={n: refs[n] for n in needs})
        document = msgspec.to_builtins(to_builtins(made))
        refs[stage] = InputRef(sha256=content_sha256(made), document=document)
    return json.loads(json.dumps(document))


def arguments(f: Any, seed: int) -> dict[str, np.ndarray]:
    """Arrays for a call, of values that fp16 sums without rounding to another."""
    rng = np.random.default_rng(seed)
    return {
        x.tensor: (rng.integers(-8, 9, tuple(int(str(s)) for s in x.shape)) / 8).astype(
            np.dtype(x.dtype.name.replace("fp", "float"))
        )
        for x in f.arguments
    }
