"""Branches, loops and sequences whose sizes data decide: one compilation serves every value, and every stage that computes
agrees with ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.module import Module
from tatami.execution.ir import Loop
from tatami.onnx import backend
from tatami.stages import runner

onnxruntime = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(11)
Feed = dict[str, np.ndarray]


def model(text: str, **constants: Any) -> onnx.ModelProto:
    """A model from ONNX's text; constants by name become initialisers."""
    made = parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
    for name, value in constants.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    return made


def i64(value: Any) -> np.ndarray:
    return np.array(value, np.int64)


def x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def oracle(made: onnx.ModelProto, feed: Feed) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(None, feed)
    return results


def agree(made: onnx.ModelProto, *feeds: Feed) -> tt.CompiledFunction:
    """The compiled program, after it and every stage that computes gave what ONNX Runtime gives."""
    compilation = prepare(made)
    compilation.stages["execution"]
    stages: list[tuple[str, Any]] = []
    for stage, module in compilation.values().items():
        run = runner(stage)
        if run is not None and isinstance(module, Module):
            stages.append(
                (stage, lambda feed, run=run, module=module, stage=stage: _run(run, module, compilation, stage, feed))
            )
    assert {"frontend", "tiny", "region"} <= {s for s, _ in stages}
    function = tt.compile(made, threads=1)
    ways = [("cpu", function), ("reference", tt.compile(made, target="reference")), *stages]
    for feed in feeds:
        for name, call in ways:
            got = call(feed)
            for port, wanted in zip(made.graph.output, oracle(made, feed), strict=True):
                array = np.asarray(got[port.name])
                assert array.dtype == wanted.dtype and array.shape == wanted.shape, (name, port.name, array.shape, wanted.shape)
                np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-5, err_msg=name)
    return function


def _run(run: Any, module: Any, compilation: Any, stage: str, feed: Feed) -> Any:
    if stage == "execution":
        return run(module, feed, regions=compilation.stages["realised"])
    return run(module, feed)


# -- branches ------------------------------------------------------------------------------------


def test_branches_of_other_sizes() -> None:
    made = model(
        """g (bool c, float[N, 3] x) => (float[M, 3] y, float[3] s) {
            y = If (c) <then_branch = t () => (float[K, 3] p) { p = Slice (x, zero, two, zero) },
                        else_branch = e () => (float[L, 3] q) { q = Concat <axis = 0> (x, x) }>
            s = ReduceSum <keepdims = 0> (y, zero)
        }""",
        zero=i64([0]),
        two=i64([2]),
    )
    function = agree(made, *({"c": np.array(c), "x": x(n, 3)} for c in (True, False) for n in (5, 1, 0)))
    assert "synchronisations: 1" in function.explain()


def test_two_results_of_one_branch_share_their_new_size() -> None:
    """y + z needs the sizes of both to be one."""
    made = model(
        """g (bool c, float[N] x) => (float[M] w) {
            y, z = If (c) <then_branch = t () => (float[K] p, float[K] q) { p = Slice (x, one, two, zero) q = Neg (p) },
                           else_branch = e () => (float[N] r, float[N] s) { r = Relu (x) s = Exp (x) }>
            w = Add (y, z)
        }""",
        zero=i64([0]),
        one=i64([1]),
        two=i64([3]),
    )
    agree(made, *({"c": np.array(c), "x": x(5)} for c in (True, False)))


def test_a_branch_counts_what_it_finds() -> None:
    made = model(
        """g (bool c, float[N] x, int64[1] k) => (int64[1, M] y, float[P] z) {
            y, z = If (c) <then_branch = t () => (int64[1, A] p, float[B] u) { p = NonZero (x) u = ConstantOfShape (k) },
                           else_branch = e () => (int64[1, C] q, float[D] v) {
                               big = Greater (x, half) q = NonZero (big) v = Slice (x, zero, k, zero) }>
        }""",
        zero=i64([0]),
        half=np.float32(0.5),
    )
    given = np.array([0, 1, 0.2, 2, 0], np.float32)
    agree(made, *({"c": np.array(c), "x": given, "k": i64([k])} for c in (True, False) for k in (3, 0)))


# -- loops ---------------------------------------------------------------------------------------

GROWS = """g (float[N] x, int64 trip) => (float[M] y) {{
    y = Loop ({trip}, "", x) <body = b (int64 i, bool go, float[L] s) => (bool again, float[K] t) {{
        again = Identity (go) last = ReduceSum <keepdims = 1> (s, zero) t = Concat <axis = 0> (s, last) }}>
}}"""


def test_a_state_that_grows() -> None:
    made = model(GROWS.format(trip="trip"), zero=i64([0]))
    function = agree(made, *({"x": x(n), "trip": i64(t)} for n, t in ((2, 5), (2, 0), (3, 12), (0, 2))))
    assert "synchronisations: 1" in function.explain()


def test_a_state_that_grows_a_hundred_times() -> None:
    made = model(
        """g (float[1, 4] x) => (float[M, 4] y) {
            y = Loop (trip, "", x) <body = b (int64 i, bool go, float[L, 4] s) => (bool again, float[K, 4] t) {
                again = Identity (go) h = ReduceMean <keepdims = 1> (s, zero) u = Tanh (h) t = Concat <axis = 0> (s, u) }>
        }""",
        zero=i64([0]),
        trip=i64(100),
    )
    agree(made, {"x": x(1, 4)})


def test_states_that_grow_together_are_one_size() -> None:
    """Keys and values of a decoder: their product needs one size for both, and the condition ends the loop."""
    made = model(
        """g (float[1, 4] q, float[P, 4] k0, float[P, 4] v0) => (float[1, 4] out, float[M, 4] k, float[M, 4] v, float[T, 1, 4] all) {
            out, k, v, all = Loop ("", yes, q, k0, v0) <body = b (int64 i, bool go, float[1, 4] h, float[L, 4] ks, float[L, 4] vs)
                => (bool again, float[1, 4] o, float[A, 4] kt, float[A, 4] vt, float[1, 4] row) {
                nk = Tanh (h) kt = Concat <axis = 0> (ks, nk)
                nv = Sin (h) vt = Concat <axis = 0> (vs, nv)
                tk = Transpose <perm = [1, 0]> (kt) s = MatMul (h, tk) p = Softmax <axis = -1> (s)
                o = MatMul (p, vt) row = Neg (o) again = Less (i, six) }>
        }""",
        yes=np.array(True),
        six=i64(6),
    )
    agree(made, *({"q": x(1, 4), "k0": x(n, 4), "v0": x(n, 4)} for n in (0, 3)))


def test_rows_of_a_size_that_a_turn_finds() -> None:
    """Scan outputs whose rows have one size in every turn, which only the first turn tells."""
    made = model(
        """g (float[N] x, int64 trip, int64[1] k) => (float[T, M] y) {
            y = Loop (trip, "") <body = b (int64 i, bool go) => (bool again, float[K] row) {
                again = Identity (go) c = Cast <to = 1> (i) z = Slice (x, zero, k, zero) row = Add (z, c) }>
        }""",
        zero=i64([0]),
    )
    agree(made, *({"x": x(5), "trip": i64(t), "k": i64([k])} for t, k in ((3, 2), (1, 0), (4, 5))))


def test_sizes_of_the_data_inside_a_body() -> None:
    made = model(
        """g (float[4, 6] x, int64[T] k, int64 trip) => (float y) {
            y = Loop (trip, "", start) <body = b (int64 i, bool go, float s) => (bool again, float t) {
                again = Identity (go)
                at = Unsqueeze (i, zero) n = Gather (k, i) n1 = Unsqueeze (n, zero)
                v, w = TopK <axis = 1> (x, n1)
                two = Concat <axis = 0> (n1, one) tiled = Tile (v, two)
                before = Concat <axis = 0> (n1, nought) pads = Concat <axis = 0> (before, before)
                p = Pad (tiled, pads)
                r = Range (from, n, by) f = Cast <to = 1> (r) m = ReduceSum <keepdims = 0> (f)
                e = Concat <axis = 0> (n1, n1) o = ConstantOfShape (e) os = ReduceSum <keepdims = 0> (o)
                flat = Reshape (v, e2) q = Expand (half, e) qs = ReduceSum <keepdims = 0> (q)
                ps = ReduceSum <keepdims = 0> (p) fs = ReduceMax <keepdims = 0> (flat)
                a = Add (ps, m) bb = Add (a, os) cc = Add (bb, qs) dd = Add (cc, fs) t = Add (s, dd) }>
        }""",
        zero=i64([0]),
        one=i64([1]),
        nought=i64([0]),
        start=np.float32(0),
        half=np.float32(0.5),
        e2=i64([-1, 2]),
        **{"from": i64(0), "by": i64(1)},
    )
    agree(made, {"x": x(4, 6), "k": i64([3, 1, 6]), "trip": i64(3)}, {"x": x(4, 6), "k": i64([2]), "trip": i64(0)})


def test_a_loop_inside_a_branch_inside_a_loop() -> None:
    made = model(
        """g (float[N] x, int64 trip) => (float[M] y) {
            y = Loop (trip, "", x) <body = b (int64 i, bool go, float[L] s) => (bool again, float[K] t) {
                again = Identity (go) odd = Mod (i, two) is_odd = Cast <to = 9> (odd)
                t = If (is_odd) <
                    then_branch = th () => (float[A] p) {
                        p = Loop (i, "", s) <body = inner (int64 j, bool g2, float[B] u) => (bool a2, float[C] v) {
                            a2 = Identity (g2) w = Slice (x, zero, one, zero) v = Concat <axis = 0> (u, w) }> },
                    else_branch = el () => (float[D] q) { n = Neg (s) q = Concat <axis = 0> (n, x) }> }>
        }""",
        zero=i64([0]),
        one=i64([1]),
        two=i64(2),
    )
    agree(made, *({"x": x(2), "trip": i64(t)} for t in (0, 1, 4)))


def test_the_limits_of_boxes_are_data() -> None:
    """NonMaxSuppression whose limit and thresholds are inputs, with the number of boxes used after it; and in a branch."""
    made = model(
        """g (float[1, N, 4] boxes, float[1, 2, N] scores, int64 most, float[1] iou, float floor, bool c)
            => (int64[M, 3] kept, float[M] picked, int64[K, 3] some) {
            kept = NonMaxSuppression (boxes, scores, most, iou, floor)
            which = Gather <axis = 1> (kept, two) cls = Gather <axis = 1> (kept, one)
            s = Squeeze (scores, nought) at = Concat <axis = 1> (cls, which) picked = GatherND (s, at)
            some = If (c) <then_branch = t () => (int64[A, 3] p) { p = NonMaxSuppression (boxes, scores, most, half) },
                           else_branch = e () => (int64[B, 3] q) { q = Neg (kept) }>
        }""",
        nought=i64([0]),
        one=i64([1]),
        two=i64([2]),
        half=np.array([0.5], np.float32),
    )
    corners = np.sort(RNG.random((1, 12, 2, 2)), 2).reshape(1, 12, 4).astype(np.float32)
    scores = RNG.random((1, 2, 12)).astype(np.float32)
    agree(
        made,
        *(
            {
                "boxes": corners,
                "scores": scores,
                "most": i64(m),
                "iou": np.array([t], np.float32),
                "floor": np.array(f, np.float32),
                "c": np.array(c),
            }
            for m, t, f, c in ((3, 0.5, 0.2, True), (12, 0.1, 0.6, False), (0, 0.5, 0.0, True))
        ),
    )


def test_what_a_body_finds_by_unique_and_compress() -> None:
    made = model(
        """g (int64[N] x, int64 trip) => (int64[M] y, int64[T, 1] counts) {
            y, counts = Loop (trip, "", x) <body = b (int64 i, bool go, int64[L] s) => (bool again, int64[K] t, int64[1] n) {
                again = Identity (go) u = Unique (s) big = Greater (u, i) v = Compress (u, big)
                n = Shape (v) t = Concat <axis = 0> (v, n) }>
        }"""
    )
    agree(made, *({"x": i64([5, 3, 5, 0, 2]), "trip": i64(t)} for t in (0, 1, 4)))


def test_an_equation_of_one_branch_is_asked_of_that_branch_alone() -> None:
    """x + z needs A = B: a call that takes the other branch does not."""
    made = model(
        """g (bool c, float[A, 2] x, float[B, 2] z) => (float[M, 2] y) {
            y = If (c) <then_branch = t () => (float[K, 2] p) { h = MatMul (z, w) q = Concat <axis = 1> (x, h) p = MatMul (q, v) },
                        else_branch = e () => (float[L, 2] r) { r = Relu (x) }>
        }""",
        w=x(2, 2),
        v=x(4, 2),
    )
    yes, no = np.array(True), np.array(False)
    function = agree(made, {"c": yes, "x": x(3, 2), "z": x(3, 2)}, {"c": no, "x": x(3, 2), "z": x(5, 2)})
    with pytest.raises(TatamiError) as error:
        function({"c": yes, "x": x(3, 2), "z": x(5, 2)})
    (found,) = error.value.diagnostics
    assert found.code == "E1304" and "A = 3" in found.why and "B = 5" in found.why, found


# -- sequences -----------------------------------------------------------------------------------


def test_an_element_at_a_position_of_the_data() -> None:
    made = model(
        """g (float[N, 3] x, int64 i, int64 j) => (float[1, 3] y, float[3] z, int64 n) {
            s = SplitToSequence <axis = 0> (x, one) y = SequenceAt (s, i) n = SequenceLength (s)
            t = SplitToSequence <axis = 0, keepdims = 0> (x) z = SequenceAt (t, j)
        }""",
        one=i64(1),
    )
    agree(made, *({"x": x(5, 3), "i": i64(i), "j": i64(j)} for i, j in ((0, 4), (-1, -5), (2, 1))))


def test_pieces_of_an_open_axis() -> None:
    made = model(
        """g (float[2, N] x, int64 i, int64[P] cut) => (float[2, A] y, float[2, B] z, int64 n, float[2, C] w) {
            s = SplitToSequence <axis = 1> (x, three) y = SequenceAt (s, i) n = SequenceLength (s)
            e = SequenceErase (s) f = SequenceInsert (e, x) z = ConcatFromSequence <axis = 1> (f)
            u = SplitToSequence <axis = 1> (x, cut) w = SequenceAt (u, i)
        }""",
        three=i64(3),
    )
    cuts = (i64([3, 4]), i64([2, 1, 4]))
    agree(made, *({"x": x(2, 7), "i": i64(i), "cut": c} for c in cuts for i in (0, 1, -1)))


def test_elements_put_and_taken_at_positions_of_the_data() -> None:
    """Elements of one size and of others, at the front, between and at the end."""
    made = model(
        """g (float[N, 3] x, float[1, 3] e, float[2, 3] f, int64 i) => (float[A, 3] y, float[B, 3] z, float[C, 3] w) {
            s = SplitToSequence <axis = 0> (x, one) t = SequenceInsert (s, e, i) y = ConcatFromSequence <axis = 0> (t)
            u = SequenceInsert (s, f, i) z = ConcatFromSequence <axis = 0> (u)
            v = SequenceErase (u, i) w = ConcatFromSequence <axis = 0> (v)
        }""",
        one=i64(1),
    )
    agree(made, *({"x": x(3, 3), "e": x(1, 3), "f": x(2, 3), "i": i64(i)} for i in (0, 2, -1)))


def test_a_loop_over_a_sequence_of_open_length() -> None:
    made = model(
        """g (float[N, 3] x) => (float[1, 3] y) {
            s = SplitToSequence <axis = 0> (x, one) n = SequenceLength (s)
            y = Loop (n, "", start) <body = b (int64 i, bool go, float[1, 3] h) => (bool again, float[1, 3] t) {
                again = Identity (go) e = SequenceAt (s, i) u = Tanh (h) t = Add (u, e) }>
        }""",
        one=i64(1),
        start=np.zeros((1, 3), np.float32),
    )
    agree(made, *({"x": x(n, 3)} for n in (4, 1, 0)))


@pytest.mark.parametrize("trip", ["of the data", 3, 100])
def test_a_loop_that_collects_a_sequence(trip: Any) -> None:
    """SequenceInsert each turn, then one tensor of all."""
    made = model(
        f"""g (float[2] x{", int64 trip" if trip == "of the data" else ""}) => (float[M, 2] y, float[K] z, int64 n) {{
            empty = SequenceEmpty ()
            last, s = Loop (trip, "", x, empty) <body = b (int64 i, bool go, float[2] h, seq(float[2]) q)
                => (bool again, float[2] t, seq(float[2]) r) {{
                again = Identity (go) t = Sin (h) r = SequenceInsert (q, t) }}>
            y = ConcatFromSequence <axis = 0, new_axis = 1> (s) z = ConcatFromSequence <axis = 0> (s) n = SequenceLength (s)
        }}""",
        **({} if trip == "of the data" else {"trip": i64(trip)}),
    )
    agree(made, *([{"x": x(2), "trip": i64(t)} for t in (4, 1)] if trip == "of the data" else [{"x": x(2)}]))


def test_a_loop_that_collects_elements_of_other_sizes() -> None:
    made = model(
        """g (float[N, 3] x, int64 trip, int64 at) => (float[M, 3] y, float[K, 3] z) {
            empty = SequenceEmpty ()
            s = Loop (trip, "", empty) <body = b (int64 i, bool go, seq(float[A, 3]) q) => (bool again, seq(float[B, 3]) r) {
                again = Identity (go) j = Add (i, one) k = Unsqueeze (j, zero) e = Slice (x, zero, k, zero)
                r = SequenceInsert (q, e) }>
            y = ConcatFromSequence <axis = 0> (s) z = SequenceAt (s, at)
        }""",
        zero=i64([0]),
        one=i64(1),
    )
    agree(made, *({"x": x(4, 3), "trip": i64(t), "at": i64(a)} for t, a in ((4, 2), (2, -1))))


def test_a_sequence_of_one_length_stays_one() -> None:
    """Two caches in a sequence, both renewed each turn."""
    made = model(
        """g (float[2] x, float[3] y, int64 trip) => (float[2] a, float[3] b) {
            s0 = SequenceConstruct (x, y)
            s = Loop (trip, "", s0) <body = b (int64 i, bool go, seq(float) q) => (bool again, seq(float) r) {
                again = Identity (go) u = SequenceAt (q, zero) v = SequenceAt (q, one)
                n = Neg (u) e = Tanh (v) r = SequenceConstruct (n, e) }>
            a = SequenceAt (s, zero) b = SequenceAt (s, one)
        }""",
        zero=i64(0),
        one=i64(1),
    )
    agree(made, *({"x": x(2), "y": x(3), "trip": i64(t)} for t in (3, 0)))


def test_a_branch_that_gives_a_sequence() -> None:
    made = model(
        """g (float[2] x, bool c) => (float[M] y, int64 n) {
            s = If (c) <then_branch = t () => (seq(float[2]) p) { a = Neg (x) p = SequenceConstruct (x, a) },
                        else_branch = e () => (seq(float[2]) q) { b = Exp (x) q = SequenceConstruct (b, x, b) }>
            y = ConcatFromSequence <axis = 0> (s) n = SequenceLength (s)
        }"""
    )
    agree(made, *({"x": x(2), "c": np.array(c)} for c in (True, False)))


def test_the_inside_of_a_body_is_compiled_once() -> None:
    """A loop of many turns whose state grows has no more kernels than one of few."""
    made = model(GROWS.format(trip="trip"), zero=i64([0]))
    function = tt.compile(made, threads=1)
    programs = set(function.compilation.stages["execution"].programs)
    for t in (3, 30):
        function(x=x(2), trip=i64(t))
    assert set(function.compilation.stages["execution"].programs) == programs and len(programs) <= 3


def test_a_sequence_of_open_length_goes_out() -> None:
    """The backend gives lists, whatever the length and the sizes of the elements."""
    made = model(
        """g (float[N, 3] x, int64[P] cut) => (float[N, 3] t, seq(float[3]) rows, seq(float[K, 3]) pieces) {
            t = Relu (x)
            rows = SplitToSequence <axis = 0, keepdims = 0> (t) pieces = SplitToSequence <axis = 0> (t, cut)
        }""",
    )
    prepared = backend.prepare(made)
    for given in ({"x": x(4, 3), "cut": i64([1, 3])}, {"x": x(2, 3), "cut": i64([2, 0])}):
        for got, wanted in zip(prepared.run(given), oracle(made, given), strict=True):
            assert isinstance(got, list) == isinstance(wanted, list) and len(got) == len(wanted)
            for a, b in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(a, b)
    assert len(prepared.programs) == 1


BOTH = """g (bool c, float[N, 3] x, int64 trip, int64[1] k) => (float[M, 3] y, float[P] z) {
    y = If (c) <then_branch = t () => (float[K, 3] p) { p = Slice (x, zero, k, zero) },
                else_branch = e () => (float[L, 3] q) { q = Concat <axis = 0> (x, x) }>
    start = ReduceSum <keepdims = 0> (x, zero)
    z = Loop (trip, "", start) <body = b (int64 i, bool go, float[L] s) => (bool again, float[K] t) {
        again = Identity (go) last = ReduceSum <keepdims = 1> (s, zero) t = Concat <axis = 0> (s, last) }>
}"""


@pytest.mark.parametrize("stage", ["frontend", "tiny", "region", ".harp", ".tatami"])
def test_new_sizes_of_calls_are_written_and_read_again(stage: str, tmp_path: Path) -> None:
    made = model(BOTH, zero=i64([0]))
    compilation = prepare(made)
    if stage == ".harp":
        module = compilation.stages["frontend"]
        again = tt.compile(tt.parse(tt.decompile(module)), threads=1)
    elif stage == ".tatami":
        tt.compile(made, threads=1).save(tmp_path / "both.tatami")
        again = tt.load(tmp_path / "both.tatami", trust=True)
    else:
        again = tt.compile(json.loads(tt.compile(made, threads=1).stages[stage].json), threads=1, trust=True)
    for c, trip in ((True, 3), (False, 0)):
        feed = {"c": np.array(c), "x": x(4, 3), "trip": i64(trip), "k": i64([2])}
        for port, wanted in zip(made.graph.output, oracle(made, feed), strict=True):
            np.testing.assert_allclose(np.asarray(again(feed)[port.name]), wanted, rtol=1e-5)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_count_of_a_loop_with_python_steps_may_be_a_line_of_one_element(rank: int) -> None:
    """The reshape to rank 0 is done in setup, whose results have their shape."""
    made = model(
        """g (float[4] x) => (float[4] y) {
            y = Loop (count, , x) <body = b (int64 i, bool go, float[4] s) => (bool again, float[4] next) {
                found = NonZero (s)
                sum = ReduceSum <keepdims = 0> (found)
                more = Cast <to = 1> (sum)
                next = Add (s, more)
                again = Less (more, limit)
            }>
        }""",
        count=np.full((1,) * rank, 7),
        limit=np.array(1e9, np.float32),
    )
    agree(made, {"x": np.array([0, 1, 0, 2], np.float32)})


def test_branches_of_two_ranks_have_the_one_that_both_declare() -> None:
    """Exporters add a number of rank 0 and a constant of shape [1] and call the sum a number: one program serves both branches."""
    made = model(
        """g (bool c, float s, float[N] v) => (float[N] y) {
            d = If (c) <
                then_branch = yes () => (float a) { two = Constant <value = float {2}> ()  a = Mul (s, two) },
                else_branch = no () => (float b) { one = Constant <value = float[1] {1}> ()  b = Add (s, one) }
            >
            y = Mul (v, d)
        }"""
    )
    f = agree(made, *({"c": np.array(c), "s": np.array(3, np.float32), "v": x(n)} for c in (True, False) for n in (1, 4)))
    assert len([i for i in f.execution.main.instructions if type(i.op).__name__ == "If"]) == 1


def test_a_state_keeps_the_rank_that_the_body_declares() -> None:
    """A counter of rank 0 to which the body adds a constant of shape [1], and which it declares a number before and after."""
    made = model(
        """g (int64 trip, float[N] v, float start) => (float[N] y, float last) {
            yes = Constant <value = bool {1}> ()
            last, y = Loop (trip, yes, start, v) <body = body (int64 i, bool go, float s, float[N] t)
                    => (bool again, float u, float[N] w) {
                one = Constant <value = float[1] {1}> ()
                more = Add (s, one)
                w = Add (t, more)
                u = Identity (more)
                again = Identity (go)
            }>
        }"""
    )
    f = tt.compile(made, threads=1)
    for trip, n in ((0, 3), (1, 1), (4, 5)):
        feed = {"trip": i64(trip), "v": x(n), "start": np.array(2, np.float32)}
        got = f(feed)
        for port, wanted in zip(made.graph.output, oracle(made, feed), strict=True):
            np.testing.assert_allclose(got[port.name].reshape(-1), np.reshape(wanted, -1), rtol=1e-5)
        assert got["last"].shape == ()


def with_a_state_that_is_not_read(unset: str, results: str) -> onnx.ModelProto:
    """A loop with a state of type `unset` that its body does not read and sets to a matrix."""
    return model(
        f"""g (int64 trip, float[N] v, {unset} unset) => ({results}) {{
            yes = Constant <value = bool {{1}}> ()
            ends, y = Loop (trip, yes, unset, v) <body = body (int64 i, bool go, {unset} s, float[N] t)
                    => (bool again, float[N, N] u, float[N] w) {{
                w = Add (t, v)
                one = Constant <value = int64[1] {{1}}> ()
                column = Unsqueeze (w, one)
                u = Add (column, w)
                again = Identity (go)
            }}>
        }}"""
    )


def test_states_that_nobody_reads_are_left_out() -> None:
    """A state that the body neither reads nor hands on, and whose end nothing reads, has no part in the program; its type may
    change as it likes."""
    made = with_a_state_that_is_not_read("bool", "float[N] y")
    f = tt.compile(made, threads=1)
    given = x(3)
    for trip in (0, 2):
        got = f({"trip": i64(trip), "v": given, "unset": np.array(False)})["y"]
        np.testing.assert_allclose(got, given * (trip + 1), rtol=1e-5)
    (loop,) = [i for i in f.execution.main.instructions if isinstance(i.op, Loop)]
    assert isinstance(loop.op, Loop) and loop.op.carried == 1


def test_a_placeholder_of_a_state_that_each_turn_sets_takes_its_shape() -> None:
    """The body does not read the state, which begins as a number and ends as a matrix."""
    made = with_a_state_that_is_not_read("float", "float[N, N] ends, float[N] y")
    f = tt.compile(made, threads=1)
    for trip, n in ((1, 3), (4, 2)):
        given = x(n)
        got = f({"trip": i64(trip), "v": given, "unset": np.array(0, np.float32)})
        last = given * (trip + 1)
        np.testing.assert_allclose(got["ends"], last[:, None] + last, rtol=1e-5)
        np.testing.assert_allclose(got["y"], last, rtol=1e-5)
