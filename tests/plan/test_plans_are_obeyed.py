"""A plan is obeyed or refused: whatever field of it changes, the generated text changes or a diagnostic says why not.

Each field of each record is changed by itself: a flag is turned over, a number halved or doubled, a word becomes another of its
kind or none at all, a list is shortened, turned around or gets an entry. Comments and names made of hashes do not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import msgspec.inspect as types
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.decisions import Decisions
from tatami.pipeline import compile_stages
from tatami.region.ir import Region
from tatami.region.walk import all_axes
from tatami.stages import show

Variant = tuple[tuple[str | int, ...], Any]


def one(f: Callable[..., Any], *shapes: tuple[int | str, ...], dtype: Any = tt.fp32) -> tt.Graph:
    g = tt.Graph("one")
    g.output("y", f(*(g.input(f"x{i}", shape, dtype) for i, shape in enumerate(shapes))))
    return g


def convolution(channels: int, filters: int, size: int, kernel: int, groups: int = 1, **attrs: Any) -> tt.Graph:
    g = tt.Graph("convolution")
    w = g.constant(np.zeros((filters, channels // groups, kernel, kernel), np.float32))
    x = g.input("x", (1, channels, size, size), tt.fp32)
    g.output("y", x.conv(w, None, padding=kernel // 2, groups=groups, **attrs).relu())
    return g


def product(m: int, n: int, k: int, dtype: Any = tt.fp32) -> tt.Graph:
    return one(lambda x, w, b: (x @ w + b.expand((m, n))).relu(), (m, k), (k, n), (n,), dtype=dtype)


def layer(m: int, n: int, k: int, images: int = 0) -> tt.Graph:
    """A product with weights that `setup` packs."""
    g = tt.Graph("layer")
    x = g.input("x", (images, m, k) if images else (m, k), tt.fp32)
    g.output("y", (x @ g.constant(np.zeros((k, n), np.float32))).relu())
    return g


def attention(dtype: Any = tt.fp32) -> tt.Graph:
    return one(lambda q, k, v: q.attention(k, v, causal=True), *[(1, 2, 128, 64)] * 3, dtype=dtype)


CASES: dict[str, tuple[str, str, Callable[[], tt.Graph]]] = {
    "softmax": ("cpu:avx512", "cpu_rows", lambda: one(lambda x: x.softmax(1), ("R", "C"))),
    "columns": ("cpu:avx2", "cpu_rows", lambda: one(lambda x: x.sum((0,)), (768, 96))),
    "scan": ("cpu:neon", "cpu_rows", lambda: one(lambda x: x.cumsum(0), (20000, 3))),
    "position": ("cpu:avx512", "cpu_rows", lambda: one(lambda x: x.argmax(1), ("R", 300))),
    "pools": ("cpu:avx512", "cpu_rows", lambda: one(lambda x: x.max_pool((3, 3)).max_pool((3, 3)), (2, 5, 60, 60))),
    "plain": ("cpu:generic", "scalar", lambda: one(lambda x: x.sum((1,)), (3, 2))),
    "turn": ("cpu:avx512", "cpu_turn", lambda: one(lambda x: x.permute(1, 0), (768, 512))),
    "window": ("cpu:avx512", "cpu_window", lambda: convolution(64, 64, 112, 3, 64)),
    "streaming": ("cpu:avx512", "cpu_streaming", attention),
    "streaming neon": ("cpu:neon", "cpu_streaming", attention),
    "split": ("cpu:avx512", "cpu_split", lambda: one(lambda q, k, v: q.attention(k, v), (2, 64, 256), *[(2, 16, 256)] * 2)),
    "winograd": ("cpu:avx512", "cpu_winograd", lambda: convolution(512, 64, 14, 3)),
    "planes": ("cpu:avx512", "cpu_planes", lambda: convolution(64, 64, 56, 5)),
    "rows by columns": ("cpu:avx2", "cpu_contraction", lambda: product(1100, 1024, 512)),
    "columns by rows": ("cpu:avx2", "cpu_contraction", lambda: product(96, 1024, 512)),
    "packed columns": ("cpu:avx2", "cpu_contraction", lambda: layer(96, 1024, 512)),
    "packed columns of one panel": ("cpu:avx2", "cpu_contraction", lambda: layer(4, 1024, 512)),
    "long rows": ("cpu:avx2", "cpu_contraction", lambda: product(4, 1024, 512)),
    "parts of k": ("cpu:avx2", "cpu_contraction", lambda: product(640, 64, 65536)),
    "batch": ("cpu:avx2", "cpu_contraction", lambda: one(lambda x, y: x @ y, (64, 2048, 96), (64, 96, 64))),
    "sm80 product": ("sm80", "sm80_mma", lambda: product(256, 256, 512, tt.fp16)),
    "sm90 product": ("sm90", "sm90_mma", lambda: product(256, 256, 512, tt.fp16)),
    "sm80 pair": ("sm80", "sm80_pair", lambda: attention(tt.fp16)),
    "sm90 pair": ("sm90", "sm90_pair", lambda: attention(tt.fp16)),
    "sync": ("sm80", "gpu_sync", lambda: product(64, 64, 64, tt.fp64)),
    "stream": ("sm80", "gpu_stream", lambda: one(lambda x: x.softmax(1), ("R", "C"))),
}
"""A target, the kind of plan that it is to choose, and the program."""


WORDS_OF_TEMPLATES = {"A_swizzle", "B_swizzle", "C_stride", "matmul", "attention"}
"""Entries of layout_hints and algo_choice: one that is absent says what the template does."""


class Case:
    """The plan of one Region of a program, and the text by any plan for it."""

    def __init__(self, target: str, kind: str, graph: tt.Graph) -> None:
        first = prepare(graph, target=target, check=False)
        self.target = first.target
        self.given = {name: first.stages[name] for name in ("region", "poly_core")}
        found = [(r, c.plan) for r in first.stages["plan"].main.regions for c in r.choices]
        made = [(r, plan) for r, plan in found if type(plan).__struct_config__.tag == kind]
        assert made, f"{target} chooses {[type(plan).__name__ for _, plan in found]}"
        chosen, self.plan = made[-1]
        self.key = chosen.key
        self.region = next(r for r in self.given["region"].main.body if isinstance(r, Region) and r.name == chosen.region)
        self.names = [*all_axes(self.region), *(let.name for let in self.region.lets)]
        self.names += [p.name for p in self.region.inputs] + [p.name for p in self.region.outputs]

    def text(self, document: Any) -> str | None:
        """The generated text; None if the plan is refused."""
        try:
            decisions = Decisions(plans={self.key: document})
            stages = compile_stages(self.given, self.target, decisions, lambda _, make: make())
            code = "c" if self.target.kind == "cpu" else "cu"
            return plain(show(code, stages[code])) + show("execution", stages["execution"])
        except TatamiError as error:
            assert all(d.why for d in error.diagnostics)
            return None


def plain(text: str) -> str:
    """The text without comments, with kernels not named by their contents."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    return re.sub(r"tatami_[0-9a-f]{20}", "kernel", text)


def whole(value: Any) -> Any:
    """A document with every field, those of default values as well."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        out: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field else {}
        return out | {f.encode_name: whole(getattr(value, f.name)) for f in msgspec.structs.fields(value)}
    if isinstance(value, tuple):
        return [whole(v) for v in value]
    return {k: whole(v) for k, v in value.items()} if isinstance(value, dict) else value


def variants(value: Any, kind: types.Type, names: list[str]) -> Iterator[Variant]:
    """Documents with one change, each with the place of the change."""
    match kind:
        case types.Metadata(type=inner):
            yield from variants(value, inner, names)
        case types.UnionType(types=kinds):
            inner = next(t for t in kinds if not isinstance(t, types.NoneType))
            if value is None:
                yield (), {f.encode_name: names[0] if f.encode_name == "axis" else 16 for f in inner.fields}  # type: ignore[attr-defined]
                return
            yield (), None
            yield from variants(value, inner, names)
        case types.StructType(fields=fields):
            for f in fields:
                for place, new in variants(value[f.encode_name], f.type, names):
                    yield (f.encode_name, *place), {**value, f.encode_name: new}
        case types.BoolType():
            yield (), not value
        case types.IntType():
            yield from (((), n) for n in {2 * value or 1, value // 2} - {value})
        case types.LiteralType(values=words):
            yield from (((), w) for w in words if w != value)
        case types.StrType():
            yield from (((), n) for n in other_names(value, names))
        case types.VarTupleType(item_type=inner):
            yield from changed_lists(value, inner, names)
        case types.TupleType(item_types=kinds):
            for i, (v, inner) in enumerate(zip(value, kinds, strict=True)):
                for place, new in variants(v, inner, names):
                    yield (i, *place), [*value[:i], new, *value[i + 1 :]]
        case types.DictType(value_type=inner):
            for key in value:
                if key not in WORDS_OF_TEMPLATES:
                    yield (key,), {k: v for k, v in value.items() if k != key}
                for place, new in variants(value[key], inner, names):
                    yield (key, *place), {**value, key: new}
        case _:
            raise NotImplementedError(type(kind).__name__)


def changed_lists(value: list[Any], inner: types.Type, names: list[str]) -> Iterator[Variant]:
    kind = inner.type if isinstance(inner, types.Metadata) else inner
    if not value:
        words: list[Any] = list(getattr(kind, "values", ()))
        if isinstance(kind, types.StrType | types.IntType):
            words = list(names) if isinstance(kind, types.StrType) else [2]
        yield from (((), [w]) for w in words)
        return
    yield from (((), new) for new in (value[:-1], value[1:], value[::-1]) if new != value)
    for i, v in enumerate(value):
        for place, new in variants(v, inner, names):
            yield (i, *place), [*value[:i], new, *value[i + 1 :]]


def other_names(value: str, names: list[str]) -> list[str]:
    """Names that the Region has, those of a kind first, and one that it lacks."""
    alike = [n for n in names if n != value and value and n[0] == value[0]]
    return [*(alike or [n for n in names if n != value])[:2], "no_name"]


@pytest.mark.parametrize("name", CASES)
def test_a_field_that_changes_changes_the_text_or_is_refused(name: str) -> None:
    target, kind, make = CASES[name]
    case = Case(target, kind, make())
    document = whole(case.plan)
    text = case.text(document)
    assert text is not None
    count = 0
    neither: set[str] = set()
    for place, new in variants(document, types.type_info(type(case.plan)), case.names):
        count += 1
        if case.text(new) == text:
            neither.add(".".join(map(str, place)))
    assert neither == set() and count > 5
