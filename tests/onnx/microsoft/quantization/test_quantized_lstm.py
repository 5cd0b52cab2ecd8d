"""DynamicQuantizeLSTM against ONNX Runtime, which rounds x and h to 8 bits over their ranges: results are equal but for the
rounding of fp32, as long as no value lies on the edge between two codes. x lies on codes by construction. h is a result of the
step before: x is drawn again until no h lies within MARGIN of an edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.onnx.microsoft.against_onnxruntime import Arrays, agree, model_of, node, run_onnxruntime

RNG = np.random.default_rng(11)
CLOSE = (2e-6, 2e-6)
MARGIN = 1e-6
"""Distance of h from an edge between two codes: several times its rounding in fp32."""
DRAWS = 200
HIDDEN, WIDTH = 24, 13


def x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def on_codes(*shape: int) -> np.ndarray:
    """Multiples of 1/64 from -2 to 127/64, both among them: their scale is 1/64 and their zero point 128, without rounding."""
    drawn = np.clip(np.rint(64 * RNG.standard_normal(shape)), -128, 127)
    drawn.flat[:2] = -128, 127
    return (drawn / 64).astype("f4")


def is_off_edges(h: np.ndarray) -> bool:
    """True if no h of a step [B, H] lies within MARGIN of an edge between two codes, nor does the lower end of their range."""
    low, high = min(h.min(), 0.0), max(h.max(), 0.0)
    scale = (float(high) - float(low)) / 255 or 1.0
    places = np.append(h, low).astype("f8") / scale
    return bool((np.abs(places - np.floor(places) - 0.5) * scale > MARGIN).all())


def rounded_states(feed: Arrays, y: np.ndarray, d: int, is_backwards: bool) -> list[np.ndarray]:
    """h [B, H] of direction `d` before each step, from `y` [T, D, B, H]."""
    steps, batch = feed["x"].shape[:2]
    turn = np.arange(steps)[:, None]
    at = np.where(is_backwards, (feed.get("lengths", np.full(batch, steps)) - 1 - turn) % steps, turn)
    first = feed["h0"][d] if "h0" in feed else np.zeros((batch, HIDDEN), "f4")
    return [first, *y[at, d, np.arange(batch)][:-1]]


def agree_off_edges(
    made: onnx.NodeProto, *draws: Callable[[], Arrays], weights: Arrays, open: dict[str, Any] | None = None
) -> None:
    """Both give the same at a feed of each of `draws`, drawn until no h lies on an edge."""
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    direction = next((a.s.decode() for a in made.attribute if a.name == "direction"), "forward")
    feeds, wanted = [], []
    for draw in draws:
        for _ in range(DRAWS):
            feed = draw()
            results = run_onnxruntime(model_of([made], feed, dict.fromkeys("yhc", (TensorProto.FLOAT, None)), weights), feed)
            states = [h for d, back in enumerate(backwards[direction]) for h in rounded_states(feed, results[0], d, back)]
            if all(map(is_off_edges, states)):
                break
        else:
            pytest.fail(f"{DRAWS} draws have an h on an edge")
        feeds.append(feed)
        wanted.append(results)
    agree(made, *feeds, weights=weights, open=open, wanted=wanted, tolerance=CLOSE)


def weights_of(directions: int, codes: str = "i1", columns: bool = False, zeros: bool = False) -> dict[str, Any]:
    """Codes within 7 bits: without VNNI ONNX Runtime's sums of 16 bits saturate beyond."""
    count = (directions, 4 * HIDDEN) if columns else (directions,)
    low, high = (0, 127) if codes == "u1" else (-60, 60)
    out: dict[str, Any] = {
        name: RNG.integers(low, high, (directions, rows, 4 * HIDDEN)).astype(codes)
        for name, rows in (("w", WIDTH), ("r", HIDDEN))
    }
    middle = 64 if codes == "u1" else 0
    for name in "wr":
        out[f"{name}s"] = RNG.uniform(0.004, 0.006, count).astype("f4")
        spread = RNG.integers(-5, 6, count) if zeros else np.zeros(count, int)
        out[f"{name}z"] = (middle + spread).astype(codes)
    return out | {"b": 0.1 * x(directions, 8 * HIDDEN)}


def lstm(**attrs: Any) -> Any:
    optional = {k: attrs.pop(k, "") for k in ("lengths", "h0", "c0", "p")}
    operands = ["x", "w", "r", "b", *optional.values(), "ws", "wz", "rs", "rz"]
    return node("DynamicQuantizeLSTM", operands, ["y", "h", "c"], hidden_size=HIDDEN, **attrs)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("columns", [True, False])
def test_open_steps_and_rows(columns: bool, direction: str) -> None:
    weights = weights_of(2 if direction == "bidirectional" else 1, columns=columns)
    draws = [lambda t=t, b=b: {"x": on_codes(t, b, WIDTH)} for t, b in ((4, 2), (7, 1), (1, 5))]
    agree_off_edges(lstm(direction=direction), *draws, weights=weights, open={"x": ("T", "B", WIDTH)})


@pytest.mark.parametrize("codes", ["i1", "u1"])
@pytest.mark.parametrize("zeros", [True, False])
def test_zero_points_of_the_weights(zeros: bool, codes: str) -> None:
    """One for each direction: ONNX Runtime has no other sort of the zero points that are not 0."""
    agree_off_edges(lstm(), lambda: {"x": on_codes(5, 3, WIDTH)}, weights=weights_of(1, codes, zeros=zeros))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_sequences_of_their_own_lengths(direction: str) -> None:
    """A sequence that has ended takes no part in the range of h."""
    weights = weights_of(2 if direction == "bidirectional" else 1)
    lengths = np.array([6, 1, 4, 2], "i4")
    made = lstm(direction=direction, lengths="lengths")
    agree_off_edges(made, lambda: {"x": on_codes(6, 4, WIDTH), "lengths": lengths}, weights=weights)


@pytest.mark.parametrize("attrs", [
    {"clip": 0.3}, {"activations": ["HardSigmoid", "Softsign", "Relu"], "activation_alpha": [0.3], "activation_beta": [0.4]},
    {"activations": ["Sigmoid", "ScaledTanh", "LeakyRelu"], "activation_alpha": [0.9, 0.2], "activation_beta": [0.8]}, {},
])  # fmt: skip
def test_states_peepholes_and_functions(attrs: dict[str, Any]) -> None:
    weights = weights_of(1) | {"p": 0.3 * x(1, 3 * HIDDEN)}
    agree_off_edges(
        lstm(h0="h0", c0="c0", p="p", **attrs),
        lambda: {"x": on_codes(5, 2, WIDTH), "h0": 0.4 * x(1, 2, HIDDEN), "c0": x(1, 2, HIDDEN)},
        weights=weights,
    )


def test_the_forget_gate_follows_the_input_gate() -> None:
    agree_off_edges(lstm(input_forget=1), lambda: {"x": on_codes(5, 2, WIDTH)}, weights=weights_of(1))


def test_values_that_are_all_zero() -> None:
    """The range of such values is empty: the scale is 1."""
    agree(lstm(), {"x": np.zeros((3, 2, WIDTH), "f4")}, weights=weights_of(1), tolerance=CLOSE)
