"""Operations whose lowering is unusual, compiled for the CPU and compared with their meaning."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.api import compile
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.run import run
from tests.frontend.test_meaning import built, close

NAMES = ["conv_transpose1d", "conv_transpose2d-phases", "conv_transpose2d-one-tap", "trilu", "resize-linear", "lstm-all", "gru", "if-unlike", "loop-until",
         "rotary_embedding", "scatter-add", "unique-then", "nms", "pad-reflect", "fold-2d", "max_pool_indices", "slice-reverse",
         "nonzero-rank0", "pad-reflect-wide-1", "pad-reflect-wide-2", "pad-reflect-wide-3", "pad-reflect-crop-wide",
         "call", "collectives", "kernel", "kernel_reduce", "kernel_scan"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_compiled_agrees_with_the_meaning(name: str) -> None:
    module, inputs, sizes = built(name)
    got = compile(module, target="cpu", sizes=sizes)(inputs)
    want = run(module, inputs, sizes)
    for port in module.main.signature.outputs:
        close(got[port.tensor], want[port.tensor], port.dtype, 4.0)


@pytest.mark.parametrize(
    "name",
    [
        *("conv2d", "attention-causal", "pad-reflect-symbolic", "pad-wrap-symbolic", "slice", "concat", "lstm-all", "max_pool"),
        "slice-fixed-of-symbolic",
        *(f"pad-{mode}-wide-symbolic-{n}" for mode in ("reflect", "wrap") for n in (1, 2, 3, 9)),
    ],
)
def test_sizes_may_stay_symbolic(name: str) -> None:
    module, inputs, sizes = built(name)
    got = compile(module, target="cpu")(inputs)
    want = run(module, inputs, sizes)
    for port in module.main.signature.outputs:
        close(got[port.tensor], want[port.tensor], port.dtype, 4.0)


BEYOND = {
    "edge of nothing": lambda x: x.pad([(1, 0), (0, 0)], mode="edge"),
    "reflection of nothing": lambda x: x.pad([(0, 2), (0, 0)], mode="reflect"),
    "wrap of nothing": lambda x: x.pad([(2, 2), (0, 0)], mode="wrap"),
    "the first of none": lambda x: x[0],
    "the last of none": lambda x: x[-1],
    "past the end": lambda x: x.one("slice", starts=(0, 0), stops=(1, 2)),
    "before the start": lambda x: x.one("slice", starts=("N - 1", 0), stops=("N", 2)),
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_symbolic_axis_that_turns_out_too_short_is_refused(name: str) -> None:
    """No kernel reads outside its input: what holds for N = 1 is checked when N is bound to 0."""
    g = Graph("g")
    g.output("y", BEYOND[name](g.input("x", ("N", 2), DType.fp32)))
    one, none = np.ones((1, 2), np.float32), np.ones((0, 2), np.float32)
    for target in ("cpu", "reference"):
        f = compile(g, target=target)
        assert np.all(f(x=one)["y"] == 1)
        with pytest.raises(TatamiError) as error:
            f(x=none)
        assert [d.code for d in error.value.diagnostics] == ["E1304"], target
    h = Graph("h")
    x = h.input("x", (0, 2), DType.fp32)
    with pytest.raises(TatamiError):
        h.output("y", BEYOND[name](x))
        compile(h)


def test_topk_of_a_symbolic_axis_refuses_an_axis_that_is_too_short() -> None:
    g = Graph("t")
    g.output("y", g.input("x", ("N",), DType.fp32).topk(3)[0])
    function = compile(g)
    assert function(x=np.array([1, 4, 2, 3], np.float32))["y"].tolist() == [4, 3, 2]
    with pytest.raises(TatamiError) as error:
        function(x=np.array([1, 4], np.float32))
    assert error.value.diagnostics[0].kind == "AxisAlignmentMismatch"
