"""Programs of the language run: numbers, control flow, mutable inputs, sizes, indices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.tensor import numpy_dtype
from tatami.harp.elaboration.values import dtype_name
from tatami.harp.load import load_file

X = np.arange(4, dtype=np.float32) - 1
STEP = "graph step(i: i64[], go: bool[], x: f32[4]) -> (keep: bool[], y: f32[4]) { return x.sum() < 10.0, x * 2.0 }"
PARTS = "graph plus(x: f32[4]) -> f32[4] { return x + 1.0 } graph minus(x: f32[4]) -> f32[4] { return -x }"


def run(text: str, **inputs: Any) -> dict[str, Any]:
    out = tt.compile(tt.parse(text))({k: np.array(v) for k, v in inputs.items()})
    return {k: v.tolist() for k, v in out.items()}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("x / 2.0 + 1", X / 2 + 1),
        ("(1 + 2 * 3) % 4 - x", 3 - X),
        ("x * (-7 / 2)", X * -3),
        ("x * (7 / 2.0)", X * 3.5),
        ("-x ** 2", -(X**2)),
        ("2.0 ** x", 2**X),
        ("where(x > 0.0 & x < 2.0, x, -inf)", np.where((X > 0) & (X < 2), X, -np.inf)),
        ("where(!(x == 1.0), x, .5)", np.where(X != 1, X, 0.5)),
        ("x[::-1]", X[::-1]),
        ("x[-1:0:-2].repeat(0, 1)", None),
        ("concat([x[2:], x[:2]])", np.roll(X, 2)),
        ("x.view_expr([4], (idx0 + 3) % 4)", np.roll(X, -3)),
        ("x.tile(0, 2)[2:6]", np.tile(X, 2)[2:6]),
        ("x - x.max()", X - X.max()),
        ("max(x, 0.0) + min(x, 0)", X),
        ("x * size(4).cast(f32)", X * 4),
        ("constant(f32[4], [1, 2.5, -3, 4e0]) + x", X + np.array([1, 2.5, -3, 4])),
        ("fused(x) { x.exp2() * 2.0 }", 2 * 2**X),
        ("einsum(\"i,j->i\", x, x)", X * X.sum()),
        ("(x.cast(i32) / 2).cast(f32)", np.trunc(X / 2)),
    ],
)  # fmt: skip
def test_an_expression(expression: str, value: Any) -> None:
    text = f"graph main(x: f32[4]) -> f32[4] {{ return {expression} }}"
    if value is None:
        with pytest.raises(tt.TatamiError):
            tt.parse(text)
        return
    assert np.allclose(run(text, x=X)["output"], value, rtol=1e-6)


def test_branches_and_loops() -> None:
    main = "graph main(x: f32[4]) -> (p: f32[4], q: f32[4]) { c = x.sum() > 1.0 return if_else(c, plus, minus, x), if(c, minus, plus, x) }"
    assert run(f"{PARTS} {main}", x=X) == {"p": (X + 1).tolist(), "q": (-X).tolist()}
    for call in ("loop(step, [x])", "loop(none, none, x, body=step, carried=1)"):
        assert run(f"{STEP} graph main(x: f32[4]) -> f32[4] {{ return {call} }}", x=X)["output"] == (X * 16).tolist()
    scan = STEP.replace("y: f32[4])", "y: f32[4], s: f32[])").replace("x.sum() < 10.0, x * 2.0", "go, x * 2.0, x.sum()")
    out = run(f"{scan} graph main(x: f32[4]) -> (y: f32[4], s: f32[3]) {{ return loop(step, [x], trip=3) }}", x=X)
    assert out == {"y": (X * 8).tolist(), "s": [2, 4, 8]}


def test_mutable_inputs_take_values_after_their_reads() -> None:
    text = "graph main(mut c: f32[4], x: f32[4]) -> f32[4] { c = c + x update(c, c) return c * 2.0 }"
    assert run(text, c=X, x=X) == {"c.updated": (X * 2).tolist(), "output": (X * 4).tolist()}
    assert run("graph main(mut c: f32[4]) -> () { update(c, c + 1.0) }", c=X) == {"c.updated": (X + 1).tolist()}


def test_sizes_of_a_callee_come_from_arguments_names_and_defaults() -> None:
    wide = "graph<N, M, K=2> wide(x: f32[N]) -> f32[N, M, K] { return x.unsqueeze(1).repeat(1, M).unsqueeze(2).repeat(2, K) }"
    text = f"{wide} graph<N=4> main(x: f32[N]) -> f32[N, 2*N, 2] {{ return wide(x, M=2*N) }}"
    assert np.array(run(text, x=X)["output"]).shape == (4, 8, 2)
    twice = "graph<N=4> twice(x: f32[N]) -> f32[N] { return x * 2.0 }"
    text = (
        f"{twice} graph<A=2, B=3> main(x: f32[A, B]) -> f32[A*B + 2] {{ return twice(concat([x.reshape([A*B]), ones([2])])) }}"
    )
    assert run(text, x=np.ones((2, 3), np.float32))["output"] == [2] * 8


def test_results_and_numbers_are_returned_as_declared() -> None:
    assert run("graph main() -> (a: f16[], b: i8[], c: bool[]) { return 1.5, 3, true }") == {"a": 1.5, "b": 3, "c": True}
    assert run("graph main(x: f32[4]) -> (v: f32[4], i: i64[4]) { return x.sort() }", x=X)["i"] == [0, 1, 2, 3]
    assert run("graph main(x: f32[4]) -> (a: f32[4], b: f32[4]) { return x, x }", x=X) == {"a": X.tolist(), "b": X.tolist()}


def test_names_of_types_and_operations_may_name_variables() -> None:
    text = "graph main(x: f32[4]) -> f32[4] { sum = x.sum() max = max(x, sum) f32 = max.cast(f32) return f32 }"
    assert "nothing" not in str(run(text.replace(".cast(f32)", ""), x=X))


@pytest.mark.parametrize("dtype", [d for d in tt.DType if d != tt.DType.unknown])
def test_every_dtype_has_a_word_and_constants(dtype: tt.DType, tmp_path: Path) -> None:
    word = dtype_name(dtype)
    values = np.array([1, 0], numpy_dtype(dtype))
    np.savez(tmp_path / "m.npz", w=values if values.dtype.isbuiltin == 1 else values.view(f"u{values.itemsize}"))
    numbers = "true, false" if word == "bool" else "1, 0"
    (tmp_path / "m.harp").write_text(
        f'graph main() -> (a: {word}[2], b: {word}[2]) {{ return constant({word}[2], "w"), constant({word}[2], [{numbers}]) }}'
    )
    module = load_file(tmp_path / "m.harp")
    assert [t.dtype for t in module.constants.values()] == [dtype, dtype]
    assert all(t.array.tobytes() == values.tobytes() for t in module.constants.values())


def test_an_archive_keeps_bfloat16_as_bytes(tmp_path: Path) -> None:
    values = np.array([1.5, -2], numpy_dtype(tt.bf16))
    np.savez(tmp_path / "m.npz", w=values)
    (tmp_path / "m.harp").write_text('graph main() -> bf16[2] { return constant(bf16[2], "w") }')
    assert load_file(tmp_path / "m.harp").constants["w"].array.tobytes() == values.tobytes()


def test_constants_are_passed_by_name() -> None:
    module = tt.parse(
        'graph main() -> f32[2] { w = constant(f32[2], "w", role="param") return w * 2.0 }', {"w": np.array([1, 2], np.float32)}
    )
    (port,) = module.main.signature.inputs
    assert (port.tensor, port.role, port.storage) == ("w", "param", "const_pool")
    assert tt.compile(module)()["output"].tolist() == [2, 4]
