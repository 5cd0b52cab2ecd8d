"""Products, attention, normalisations, recurrent layers against PyTorch in double precision."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F

import tatami as tt
from tests.frontend.oracles.oracle import Oracle, oracle
from tests.frontend.oracles.reduction import drawn
from tests.frontend.oracles.windows import p


@oracle
def products(o: Oracle) -> None:
    """Every pair of ranks; batches repeat; tails, 1 and 0; every dtype."""
    for a_shape, b_shape in (
        ((5,), (5,)), ((5,), (5, 7)), ((3, 5), (5,)), ((3, 5), (5, 7)), ((1, 1), (1, 1)), ((17, 33), (33, 19)), ((2, 3, 5), (5, 7)),
        ((3, 5), (2, 5, 7)), ((2, 3, 5), (2, 5, 7)), ((4, 1, 3, 5), (2, 5, 7)), ((2, 3, 5), (5,)), ((5,), (2, 5, 7)),
        ((1, 4, 3, 5), (2, 1, 5, 6)), ((3, 0), (0, 4)), ((0, 5), (5, 4)), ((2, 0, 5), (5, 3)), ((2, 2, 2, 2, 3), (3, 4)),
    ):  # fmt: skip
        a, b = drawn(a_shape), drawn(b_shape, seed=1)
        want = a.astype(np.float64) @ b.astype(np.float64)
        o.same(f"{a_shape} @ {b_shape}", o.given(a) @ o.given(b), want)
        k = f"K{len(o.inputs)}"
        open_a = (*a_shape[:-1], k)
        open_b = (*b_shape[:-2], k, b_shape[-1]) if len(b_shape) > 1 else (k,)
        o.same(f"open {a_shape} @ {b_shape}", o.given(a, open_a) @ o.given(b, open_b), want)
    for dtype in (np.int8, np.uint8, np.int32, np.int64, np.float16, ml_dtypes.bfloat16, np.float64):
        a, b = drawn((6, 40), np.int64).astype(dtype), drawn((40, 5), np.int64, 1).astype(dtype)
        exact = a.astype(np.int64) @ b.astype(np.int64)
        want = exact.astype(dtype)
        o.same(
            f"of {np.dtype(dtype).name}",
            o.given(a) @ o.given(b),
            want.astype(np.float64) if want.dtype.name == "bfloat16" else want,
        )
    a, b = drawn((6, 40), np.int8), drawn((40, 5), np.int8, 1)
    o.same(
        "i8 in i32", o.given(a).matmul(o.given(b), acc_dtype=tt.i32, out_dtype=tt.i32), a.astype(np.int32) @ b.astype(np.int32)
    )
    a, b, c = drawn((4, 6)), drawn((6, 5), seed=1), drawn((5,), seed=2)
    o.same("gemm", o.given(a).gemm(o.given(b), o.given(c), alpha=0.5, beta=2.0), 0.5 * (a @ b) + 2 * c)
    o.same("gemm turned", o.given(a.T.copy()).gemm(o.given(b.T.copy()), trans_a=True, trans_b=True), a @ b)
    o.same("linear", o.given(a).linear(o.given(b.T.copy()), o.given(c)), a @ b + c)
    rows, matrices = drawn((7, 6)), drawn((3, 6, 5), seed=1)
    grouped = o.given(rows).grouped_matmul(o.given(matrices), o.given(np.array([2, 2, 6])))
    want = np.concatenate([rows[:2] @ matrices[0], rows[2:6] @ matrices[2], np.zeros((1, 5), np.float32)])
    o.same("groups, one of no rows, and a row behind the last", grouped, want)


EINSUMS = [
    ("ij,jk->ik", (3, 4), (4, 5)), ("ij,kj", (3, 4), (5, 4)), ("i,i", (6,), (6,)), ("i,j->ij", (3,), (4,)), ("ij->ji", (3, 4)),
    ("ij->", (3, 4)), ("ij->j", (3, 4)), ("ii->i", (4, 4)), ("ii", (4, 4)), ("iij->ij", (3, 3, 4)), ("iji->j", (3, 4, 3)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)), ("...ij,jk->...ik", (2, 2, 3, 4), (4, 5)),
    ("...ij,...jk->...ik", (3, 1, 2, 4), (2, 4, 3)), ("i...->...", (3, 4, 5)), ("...i->...", (3, 4, 5)), ("...,...", (3, 4), (3, 4)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)), ("abc,abd->acd", (2, 3, 4), (2, 3, 5)), ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("ij,ij->ij", (3, 4), (3, 4)), ("ijk,jil->kl", (2, 3, 4), (3, 2, 5)), ("ii,ij->j", (3, 3), (3, 4)), ("a...b,b...->a...", (2, 3, 4), (4, 3)),
    ("aBc->cBa", (2, 3, 4)), (" i j , j k -> k i ", (3, 4), (4, 5)), ("i->", (0,)), ("ij,jk->ik", (3, 0), (0, 5)), ("xyz,y->xz", (2, 3, 4), (3,)),
]  # fmt: skip


@oracle
def sums_by_letters(o: Oracle) -> None:
    for equation, *shapes in EINSUMS:
        assert isinstance(equation, str)
        arrays = [drawn(shape, seed=i) for i, shape in enumerate(shapes) if not isinstance(shape, str)]
        want = np.einsum(equation, *(a.astype(np.float64) for a in arrays))
        o.same(f"{equation} {shapes}", o.g.einsum(equation, *map(o.given, arrays)), want)


@oracle
def attentions(o: Oracle) -> None:
    def heads(*shape: int, seed: int = 0) -> np.ndarray:
        return drawn(shape, seed=seed) / 4

    for label, shape in (("fixed", None), ("open", ("B", 4, "M", 8))):
        q, k, v = heads(2, 4, 5, 8), heads(2, 4, 7, 8, seed=1), heads(2, 4, 7, 6, seed=2)
        tq, tk, tv = o.given(q, shape), o.given(k, shape and ("B", 4, "N", 8)), o.given(v, shape and ("B", 4, "N", 6))
        pq, pk, pv = p(q), p(k), p(v)
        sdpa = F.scaled_dot_product_attention
        o.same(f"plain {label}", tq.attention(tk, tv), sdpa(pq, pk, pv), 32.0)
        o.same(f"scale {label}", tq.attention(tk, tv, scale=0.25), sdpa(pq, pk, pv, scale=0.25), 32.0)
        o.same(f"causal {label}", tq.attention(tk, tv, causal=True), sdpa(pq, pk, pv, is_causal=True), 32.0)
        added = drawn((5, 7), seed=5)
        names = (None, None) if shape is None else (("M", "N"), ("B", 1, "M", "N"))
        o.same(f"mask {label}", tq.attention(tk, tv, o.given(added, names[0])), sdpa(pq, pk, pv, p(added)), 32.0)
        keep = np.random.default_rng(3).random((2, 1, 5, 7)) < 0.7
        keep[..., 0] = True
        o.same(
            f"bool mask {label}", tq.attention(tk, tv, o.given(keep, names[1])), sdpa(pq, pk, pv, torch.from_numpy(keep)), 32.0
        )
        near = np.tri(5, 7, 2, dtype=bool)
        o.same(
            f"causal from the end {label}",
            tq.attention(tk, tv, causal=True, causal_offset=2),
            sdpa(pq, pk, pv, torch.from_numpy(near)),
            32.0,
        )
        band = near & ~np.tri(5, 7, -1, dtype=bool)
        got = tq.attention(tk, tv, causal=True, causal_offset=2, window=3)
        o.same(f"window {label}", got, sdpa(pq, pk, pv, torch.from_numpy(band)), 32.0)
    q, k, v = heads(2, 6, 5, 4), heads(2, 2, 7, 4, seed=1), heads(2, 2, 7, 3, seed=2)
    grouped = F.scaled_dot_product_attention(p(q), p(k), p(v), enable_gqa=True)
    o.same("grouped heads", o.given(q).attention(o.given(k), o.given(v)), grouped, 32.0)
    q, k, v = heads(5, 4), heads(7, 4, seed=1), heads(7, 3, seed=2)
    o.same("no heads", o.given(q).attention(o.given(k), o.given(v)), F.scaled_dot_product_attention(p(q), p(k), p(v)), 32.0)


@oracle
def normalisations(o: Oracle) -> None:
    for label, dtype, to, ulps in (
        ("fp32", np.float32, torch.float32, 32.0),
        ("fp16", np.float16, torch.float16, 4.0),
        ("fp64", np.float64, torch.float64, 64.0),
    ):
        x = drawn((2, 6, 5, 7), dtype)
        s, b = drawn((6,), dtype, 1), drawn((6,), dtype, 2)
        m, v = drawn((6,), dtype, 3), np.abs(drawn((6,), dtype, 4)) + dtype(0.5)
        rest, bias = drawn((5, 7), dtype, 5), drawn((5, 7), dtype, 6)
        pairs = (("fixed", None), ("open", ("N", 6, "H", "W"))) if label == "fp32" else (("fixed", None),)
        for kind, shape in pairs:
            t = o.given(x, shape)
            what = f"{label} {kind}"
            ts, tb, tm, tv = (o.given(a) for a in (s, b, m, v))
            tr, tbias = (o.given(a, shape and shape[2:]) for a in (rest, bias))
            o.same(f"layer {what}", t.layer_norm(tr, tbias, axis=2), F.layer_norm(p(x), (5, 7), p(rest), p(bias)).to(to), ulps)
            o.same(f"layer bare {what}", t.layer_norm(axis=-1, eps=1e-3), F.layer_norm(p(x), (7,), eps=1e-3).to(to), ulps)
            o.same(f"layer of all {what}", t.layer_norm(axis=0), F.layer_norm(p(x), x.shape).to(to), ulps)
            o.same(f"rms {what}", t.rms_norm(tr, axis=-2), F.rms_norm(p(x), (5, 7), p(rest), 1e-5).to(to), ulps)
            o.same(f"group {what}", t.group_norm(3, ts, tb), F.group_norm(p(x), 3, p(s), p(b)).to(to), ulps)
            o.same(f"group bare {what}", t.group_norm(1), F.group_norm(p(x), 1).to(to), ulps)
            o.same(f"instance {what}", t.instance_norm(ts, tb), F.instance_norm(p(x), weight=p(s), bias=p(b)).to(to), ulps)
            o.same(f"batch {what}", t.batch_norm(ts, tb, tm, tv), F.batch_norm(p(x), p(m), p(v), p(s), p(b)).to(to), ulps)
            for exponent in (1, 2, 3):
                o.same(
                    f"lp {exponent} {what}",
                    t.lp_normalize(1, exponent, 1e-6),
                    F.normalize(p(x), exponent, 1, 1e-6).to(to),
                    ulps,
                )
            o.same(f"lrn {what}", t.lrn(5, 0.1, 0.5, 2.0), F.local_response_norm(p(x), 5, 0.1, 0.5, 2.0).to(to), ulps)
            for axis in (0, 1, -2, -1):
                o.same(f"softmax {axis} {what}", t.softmax(axis), p(x).softmax(axis).to(to), ulps)
    large = np.array([[1e4, 1e4, -1e4], [-1e30, 0, 1e30], [88, 89, 90]], np.float32)
    o.same("softmax of large numbers", o.given(large).softmax(), p(large).softmax(-1), 16.0)
    o.same("log_softmax of large numbers", o.given(large).log_softmax(), p(large).log_softmax(-1), 16.0)


@oracle
def turned_pairs(o: Oracle) -> None:
    x, angle = drawn((2, 3, 5, 8)), drawn((5, 4), seed=1)
    cos, sin = np.cos(angle), np.sin(angle)
    halves = np.concatenate([x[..., :4] * cos - x[..., 4:] * sin, x[..., :4] * sin + x[..., 4:] * cos], -1)
    o.same("rotary", o.given(x, ("B", 3, "T", 8)).rotary_embedding(o.given(cos, ("T", 4)), o.given(sin, ("T", 4))), halves)
    both = np.stack([x[..., ::2] * cos - x[..., 1::2] * sin, x[..., ::2] * sin + x[..., 1::2] * cos], -1).reshape(x.shape)
    o.same("rotary of neighbours", o.given(x).rotary_embedding(o.given(cos), o.given(sin), interleaved=True), both)


@oracle
def recurrent_layers(o: Oracle) -> None:
    steps, batch, inputs, hidden = 5, 3, 4, 6
    x = drawn((steps, batch, inputs)) / 4
    kinds: dict[str, tuple[Any, int, tuple[int, ...]]] = {
        "lstm": (torch.nn.LSTM, 4, (0, 2, 3, 1)), "gru": (torch.nn.GRU, 3, (1, 0, 2)), "rnn": (torch.nn.RNN, 1, (0,)),
    }  # fmt: skip
    for kind, (layer, gates, order) in kinds.items():
        count: int = 1 if kind == "rnn" else 2
        for directions in (count,):
            w, r = (
                drawn((directions, gates * hidden, inputs), seed=1) / 4,
                drawn((directions, gates * hidden, hidden), seed=2) / 4,
            )
            b = drawn((directions, 2 * gates * hidden), seed=3) / 4
            net = layer(inputs, hidden, bidirectional=directions == 2).double()
            rows = np.concatenate([np.arange(hidden) + hidden * k for k in order])
            with torch.no_grad():
                for d, suffix in zip(range(directions), ("", "_reverse")):
                    half = gates * hidden
                    for name, array in (
                        ("weight_ih", w[d]),
                        ("weight_hh", r[d]),
                        ("bias_ih", b[d, :half]),
                        ("bias_hh", b[d, half:]),
                    ):
                        getattr(net, f"{name}_l0{suffix}").copy_(p(array[rows]))
                y, last = net(p(x))
            states = last if kind == "lstm" else (last,)
            want = (y.reshape(steps, batch, directions, hidden).permute(0, 2, 1, 3), *states)
            extra = {"linear_before_reset": True} if kind == "gru" else {}
            t = o.given(x, ("T", "B", inputs))
            way = "bidirectional" if directions == 2 else "forward"
            o.same(f"{kind} {directions}", t.op(kind, o.given(w), o.given(r), o.given(b), direction=way, **extra), want, 32.0)
