"""`algo_choice` in a decided plan: the template it asks for, the same numbers (C-72)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.algebra.visit import evaluate
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.decisions import Decisions
from tatami.gpu.stream_ir import StreamKernel
from tests.emulated.texts import eighths

TARGET = "emulated-sm80"


def conv() -> tt.Graph:
    g = tt.Graph("conv")
    x, w = g.input("x", (1, 8, 6, 6), tt.fp16), g.input("w", (16, 8, 3, 3), tt.fp16)
    g.output("y", x.conv(w, padding=1).silu())
    return g


def attention() -> tt.Graph:
    g = tt.Graph("attention")
    g.output("y", g.input("q", (1, 1, 17, 16), tt.fp16).attention(*(g.input(n, (1, 1, 17, 16), tt.fp16) for n in "kv")))
    return g


def decided(make: Callable[[], tt.Graph], algorithm: dict[str, str]) -> Decisions:
    """The plan that the compiler chose, with another word in it."""
    (plan,) = (
        p for p in prepare(make(), target=TARGET).stages["plan"].main.regions if "Sm80" in type(p.choices[-1].plan).__name__
    )
    document: dict[str, Any] = {**to_builtins(plan.choices[-1].plan), "algo_choice": algorithm}
    return Decisions(plans={plan.key: document})


@pytest.mark.parametrize(
    ("make", "kind", "own"), [(conv, "conv", "implicit_gemm"), (attention, "attention", "one_pass")], ids=["conv", "attention"]
)
def test_the_word_chooses_the_kernel_and_not_the_numbers(make: Callable[[], tt.Graph], kind: str, own: str) -> None:
    def kernels(algorithm: str) -> list[Any]:
        stages = prepare(make(), target=TARGET, decisions=decided(make, {kind: algorithm})).stages
        return [k for k in stages["gpu"].main.kernels if not isinstance(k, StreamKernel)]

    assert kernels(own) and not kernels("direct")
    f = tt.compile(make(), target=TARGET, decisions=decided(make, {kind: "direct"}))
    inputs = {p.tensor: eighths(*(int(evaluate(s, {})) for s in p.shape), dtype=np.float16) for p in f.arguments}
    wanted = tt.compile(make(), target="reference")(inputs)["y"]
    np.testing.assert_allclose(f(inputs)["y"].astype(float), wanted.astype(float), rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(
    ("make", "algorithm", "words"),
    [
        (conv, {"conv": "winograd"}, r"algo_choice.conv 'winograd': implicit_gemm, direct are implemented"),
        (conv, {"attention": "one_pass"}, r"algo_choice names 'attention'; the key for this Region is conv"),
        (
            attention,
            {"attention": "two_pass"},
            r"algo_choice.attention 'two_pass': one_pass, streaming_softmax_2pass, direct are implemented",
        ),
    ],
    ids=["algorithm", "kind", "attention"],
)
def test_a_word_that_names_no_template_is_refused(make: Callable[[], tt.Graph], algorithm: dict[str, str], words: str) -> None:
    with pytest.raises(TatamiError, match=words):
        prepare(make(), target=TARGET, decisions=decided(make, algorithm)).stages["gpu"]
