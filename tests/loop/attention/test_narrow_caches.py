"""Attention over caches of keys and values in 16 and 8 bits that a step updates in place: one kernel that widens in registers, with
the masks and the scores that decoders have."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.region.ir import Region
from tatami.region.views.kinds import kind_of

HEADS, KEY_HEADS, HEAD, ROOM = 4, 2, 16, 3
HELD = {"fp16": DType.fp16, "bf16": DType.bf16, "int8": DType.i8}


def written(g: Graph, name: str, dtype: DType, new: Tensor, place: Tensor) -> Tensor:
    """The cache `name` with `new` at its places, as it is read for T keys."""
    cache = g.input(name, ("B", KEY_HEADS, "T + R", new.shape[3]), dtype, role="state", mutability="mutable")
    made = cache.scatter(2, place.expand(new.shape), new)
    g.update(cache, made)
    return made[:, :, 0:"T"].cast(DType.fp32)


def attention(held: str, scores: str) -> Graph:
    """One step: new keys and values are written at `pos`, rows see keys up to their own."""
    g = Graph("step")
    q = g.input("q", ("B", HEADS, "S", HEAD), DType.fp32)
    pos = g.input("pos", ("B", "S"), DType.i64)
    g.input("span", ("T",), DType.u8)
    g.size("B", 1)
    g.size("T", 512)
    place, read = pos.reshape(("B", 1, "S", 1)), []
    for name in ("keys", "values"):
        new = g.input(f"new_{name}", ("B", KEY_HEADS, "S", HEAD), DType.fp32)
        if held == "int8":
            scale = (new.abs().max(3) * (1 / 127) + 1e-20).unsqueeze(3)
            codes = (new / scale.expand(new.shape)).round().cast(DType.i8)
            wide = written(g, name, DType.i8, codes, place)
            x = wide * written(g, f"{name}_scale", DType.fp32, scale, place).expand(wide.shape)
        else:
            x = written(g, name, HELD[held], new.cast(HELD[held]), place)
        wide = x.unsqueeze(2).expand(("B", KEY_HEADS, HEADS // KEY_HEADS, "T", HEAD))
        read.append(wide.reshape(("B", HEADS, "T", HEAD)))
    keys, values = read
    s = (q @ keys.transpose()) * (HEAD**-0.5)
    own, key = place.expand(s.shape), g.iota(s.shape, 3)
    if scores == "soft cap":
        s = (s * (1 / 3)).tanh() * 3
    if scores == "ALiBi":
        slopes = g.constant(np.geomspace(0.5, 0.05, HEADS).astype(np.float32).reshape(1, HEADS, 1, 1), "slopes")
        s = s + slopes.expand(s.shape) * (key - own).cast(DType.fp32)
    is_seen = key <= own
    if scores == "window":
        is_seen = is_seen & ((key > own - 20) | (key < 4))
    s = is_seen.where(s, -np.inf)
    if scores == "sink":
        greatest = s.max(3).unsqueeze(3)
        sink = g.input("sink", (HEADS,), DType.fp32).reshape((1, HEADS, 1, 1)).expand(greatest.shape)
        greatest = greatest.maximum(sink)
        e = (s - greatest.expand(s.shape)).exp()
        weights = e / (e.sum(3).unsqueeze(3) + (sink - greatest).exp()).expand(s.shape)
    else:
        weights = s.softmax(3)
    g.output("y", weights @ values)
    return g


def arrays(f: tt.Function, rows: int, keys: int) -> dict[str, np.ndarray]:
    rng, sizes = np.random.default_rng(0), {"B": 1, "S": rows, "T": keys, "T + R": keys + ROOM, "R + T": keys + ROOM}
    kinds = {DType.fp16: np.float16, DType.bf16: ml_dtypes.bfloat16, DType.i8: np.int8, DType.u8: np.uint8}
    made = {}
    for port in (p for p in f.signature.inputs if p.storage != "const_pool"):
        x = rng.standard_normal([sizes.get(str(n)) or int(str(n)) for n in port.shape])
        x = np.abs(x) / 50 if "scale" in port.tensor else x * 40 if port.dtype == DType.i8 else x
        made[port.tensor] = x.astype(kinds.get(port.dtype, np.float32))
    return made | {"pos": np.arange(keys - rows, keys)[None]}


@pytest.mark.parametrize(
    ("held", "scores"), [("fp16", ""), ("bf16", "ALiBi"), ("int8", "window"), ("fp16", "soft cap"), ("int8", "sink")]
)
def test_a_narrow_cache_is_read_by_the_kernel_of_attention(held: str, scores: str) -> None:
    g = attention(held, scores)
    f, reference = (tt.compile(g, target=t) for t in (None, "reference"))
    regions = [r for r in f.compilation.stages["region"].main.body if isinstance(r, Region)]
    kinds = [kind_of(r) for r in regions]
    assert kinds.count("streaming_pair") == 1 and kinds.count("map") == 0, "no copy of a cache is made"
    assert {p.memref.dtype for p in regions[kinds.index("streaming_pair")].inputs} >= {HELD[held]}
    for rows, keys in ((1, 70), (5, 37)):
        given = arrays(f, rows, keys)
        caches = [n for n in given if n.startswith(("keys", "values"))]
        both = [{n: x.copy() for n, x in given.items()} for _ in range(2)]
        found, want = f(**both[0])["y"], reference(**both[1])["y"]
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=2e-6)
        for n in caches:
            np.testing.assert_array_equal(both[0][n].astype("f4"), both[1][n].astype("f4"))
