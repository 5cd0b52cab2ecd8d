"""A decoder as a graph: one step for rows of tokens, whose keys and values go into caches in place.

    tokens, positions  [B, S] i64      B sequences, S tokens of each; `positions` counts from 0
    span               u8[T]           T keys are looked at: one more than the largest position; the content is not read
    keys.i, values.i   [B, heads, T + R, head]   the caches of layer i, updated in place: each token is written at its position
    logits             [B, V]          of the last token of each sequence

A row sees keys up to its own position, so that sequences of different lengths share a step, and an unused sequence may hold
anything. R is the room for later tokens. S, T, B and R stay open: one program serves prompts and single tokens, whatever
the context.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from math import sqrt

import numpy as np

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.gguf.architectures import Sizes
from tatami.gguf.blocks import Matrix, StoredMatrix, split_blocks
from tatami.gguf.file import GgufFile

USUAL_KEYS = 512
"""Number of keys for which plans are chosen."""


def decoder(file: GgufFile, sizes: Sizes) -> Graph:
    """The graph of a model. Raises ParseError for missing tensors and wrong shapes, UnsupportedModel for tensors that nothing
    reads."""
    return _Decoder(file, sizes).built()


class _Decoder:
    def __init__(self, file: GgufFile, sizes: Sizes) -> None:
        self.file, self.sizes = file, sizes
        self.g = Graph("decoder")
        self.left = set(file.tensors)

    # -- weights -----------------------------------------------------------------------------------
    def stored(self, name: str, shape: tuple[int, ...]) -> None:
        """Note that the tensor is read. Raises ParseError unless it is there with this shape."""
        if name not in self.file.tensors:
            raise self.broken(f"it has no tensor {name}")
        found = self.file.tensors[name].shape
        if found != shape:
            raise self.broken(f"{name} has the shape {list(found)}; {list(shape)} is needed")
        self.left.discard(name)

    def broken(self, why: str) -> TatamiError:
        return fail("ParseError", self.file.path.name, f"not a model: {why}", "convert the model again")

    def matrix(self, name: str, rows: int, columns: int) -> Matrix:
        """A weight [rows, columns] in its blocks."""
        self.stored(f"{name}.weight", (rows, columns))
        form = self.file.tensors[f"{name}.weight"].format
        return Matrix(self.g, name, StoredMatrix(form, rows, columns, partial(self.file.read_rows, f"{name}.weight")))

    def numbers(self, name: str, size: int) -> np.ndarray:
        """A vector of plain numbers, in fp32."""
        self.stored(name, (size,))
        blocks = split_blocks(self.file.read_rows(name, 0, 1), self.file.tensors[name].format, size)
        if blocks.scale is not None:
            raise self.broken(f"{name} is quantised")
        return blocks.codes()[0].astype(np.float32)

    def vector(self, name: str, size: int) -> Tensor:
        return self.g.constant(self.numbers(name, size), name, role="param")

    def linear(self, x: Tensor, name: str, rows: int) -> Tensor:
        """x [.., K] times the transposed weight [rows, K], plus its bias if the file has one."""
        columns = int(str(x.shape[-1]))
        y = self.matrix(name, rows, columns).product(x)
        if f"{name}.bias" in self.file.tensors:
            y = y + self.vector(f"{name}.bias", rows).expand(y.shape)
        return y

    def norm(self, x: Tensor, name: str) -> Tensor:
        scale = self.vector(f"{name}.weight", int(str(x.shape[-1])))
        return x.rms_norm(scale, axis=-1, eps=self.sizes.eps)

    # -- the graph ---------------------------------------------------------------------------------
    def built(self) -> Graph:
        g, s = self.g, self.sizes
        tokens = g.input("tokens", ("B", "S"), DType.i64)
        self.positions = g.input("positions", ("B", "S"), DType.i64)
        g.input("span", ("T",), DType.u8)
        g.size("B", 1)
        g.size("T", USUAL_KEYS)
        vocabulary = self.vocabulary()
        embedding = self.matrix("token_embd", vocabulary, s.width)
        x = embedding.rows(tokens)
        if s.architecture.scales_embedding:
            x = x * sqrt(s.width)
        self.cos, self.sin = self.rotation()
        for i in range(s.layers):
            x = x + self.attention(self.norm(x, f"blk.{i}.attn_norm"), i)
            x = x + self.feed_forward(self.norm(x, f"blk.{i}.ffn_norm"), f"blk.{i}")
        last = self.norm(x[:, -1], "output_norm")
        is_tied = "output.weight" not in self.file.tensors
        head = embedding if is_tied else self.matrix("output", vocabulary, s.width)
        logits = head.product(last)
        if "output.bias" in self.file.tensors:
            logits = logits + self.vector("output.bias", vocabulary).expand(logits.shape)
        g.output("logits", logits)
        if self.left:
            names = ", ".join(ascii(n)[:40] for n in sorted(self.left)[:4])
            more = f" and {len(self.left) - 4} more" if len(self.left) > 4 else ""
            why = f"{s.name} has no use for the tensors {names}{more}"
            raise fail("UnsupportedModel", self.file.path.name, why, "convert another model: this one is a variant")
        return g

    def vocabulary(self) -> int:
        stored = self.file.tensors.get("token_embd.weight")
        if stored is None or len(stored.shape) != 2:
            raise self.broken("it has no matrix token_embd.weight")
        return stored.shape[0]

    def rotation(self) -> tuple[Tensor, Tensor]:
        """Cosines and sines [B, 1, S, rotated / 2] of the angles at each position."""
        s = self.sizes
        half = s.rotated // 2
        frequencies = s.base ** -(np.arange(half, dtype=np.float64) / half) / s.divisor
        self.left -= {"rope_factors_long.weight", "rope_factors_short.weight"}
        for name in ("rope_freqs.weight", "rope_factors_short.weight"):
            if name in self.file.tensors:
                frequencies = frequencies / self.numbers(name, half)
        constant = self.g.constant(frequencies.astype(np.float32), "rope.frequencies")
        position = self.positions.cast(DType.fp32).unsqueeze(2).expand(("B", "S", half))
        angle = (position * constant.expand(("B", "S", half))).unsqueeze(1)
        both = angle.cos(), angle.sin()
        return both if s.magnitude == 1 else (both[0] * s.magnitude, both[1] * s.magnitude)

    def heads(self, x: Tensor, count: int) -> Tensor:
        """[B, S, count * head] as [B, count, S, head]."""
        return x.reshape(("B", "S", count, self.sizes.head)).permute(0, 2, 1, 3)

    def rotated(self, x: Tensor) -> Tensor:
        s = self.sizes
        width = 0 if s.rotated == s.head else s.rotated
        return x.rotary_embedding(self.cos, self.sin, interleaved=s.architecture.interleaved, width=width)

    def projections(self, x: Tensor, block: str) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [B, heads, S, head]."""
        s = self.sizes
        counts = (s.heads, s.key_heads, s.key_heads)
        if s.architecture.fused:
            rows = [n * s.head for n in counts]
            joined = self.linear(x, f"{block}.attn_qkv", sum(rows))
            ends = np.cumsum([0, *rows]).tolist()
            parts = [joined[:, :, first:end] for first, end in pairwise(ends)]
        else:
            parts = [self.linear(x, f"{block}.attn_{p}", n * s.head) for p, n in zip("qkv", counts)]
        q, k, v = (self.heads(p, n) for p, n in zip(parts, counts))
        if s.name == "qwen3":
            q, k = self.norm(q, f"{block}.attn_q_norm"), self.norm(k, f"{block}.attn_k_norm")
        return self.rotated(q), self.rotated(k), v

    def attention(self, x: Tensor, layer: int) -> Tensor:
        """Attention of the new rows over the cache, which has their keys and values by then."""
        g, s, block = self.g, self.sizes, f"blk.{layer}"
        q, k, v = self.projections(x, block)
        place = self.positions.reshape(("B", 1, "S", 1)).expand(k.shape)
        seen: list[Tensor] = []
        for name, new in (("keys", k), ("values", v)):
            shape = ("B", s.key_heads, "T + R", s.head)
            cache = g.input(f"{name}.{layer}", shape, DType.fp32, role="state", mutability="mutable")
            written = cache.scatter(2, place, new)
            g.update(cache, written)
            seen.append(self.shared(written[:, :, 0:"T"]))
        keys, values = seen
        scores = (q @ keys.transpose()) * (1 / sqrt(s.head))
        own = self.positions.reshape(("B", 1, "S", 1)).expand(scores.shape)
        key = g.iota(scores.shape, 3)
        is_seen = key <= own
        if s.window:
            is_seen = is_seen & (key > own - s.window)
        weights = is_seen.where(scores, -np.inf).softmax(3)
        joined = (weights @ values).permute(0, 2, 1, 3).reshape(("B", "S", s.heads * s.head))
        return self.linear(joined, f"{block}.attn_output", s.width)

    def shared(self, cache: Tensor) -> Tensor:
        """The keys or values of each query head: neighbouring heads share them."""
        s = self.sizes
        if s.heads == s.key_heads:
            return cache
        group = s.heads // s.key_heads
        wide = cache.unsqueeze(2).expand(("B", s.key_heads, group, "T", s.head))
        return wide.reshape(("B", s.heads, "T", s.head))

    def feed_forward(self, x: Tensor, block: str) -> Tensor:
        s = self.sizes
        if s.architecture.fused:
            joined = self.linear(x, f"{block}.ffn_up", 2 * (inner := self.inner(block)))
            gate, up = joined[:, :, :inner], joined[:, :, inner:]
        else:
            inner = self.inner(block)
            gate, up = (self.linear(x, f"{block}.ffn_{p}", inner) for p in ("gate", "up"))
        active = gate.silu() if s.architecture.activation == "silu" else gate.gelu("tanh")
        return self.linear(active * up, f"{block}.ffn_down", s.width)

    def inner(self, block: str) -> int:
        """The width between the two products, which the second tells."""
        stored = self.file.tensors.get(f"{block}.ffn_down.weight")
        if stored is None or len(stored.shape) != 2:
            raise self.broken(f"it has no matrix {block}.ffn_down.weight")
        return stored.shape[1]
