"""Operations whose lowering is unusual, compiled for the CPU and compared with their meaning."""

from __future__ import annotations

import pytest

from tatami.api import compile
from tatami.frontend.run import run

from .test_meaning import built, close

NAMES = ["conv_transpose1d", "conv_transpose2d-phases", "trilu", "resize-linear", "lstm-all", "gru", "if-unlike", "loop-until",
         "rotary_embedding", "scatter-add", "unique-then", "nms", "pad-reflect", "fold-2d", "max_pool_indices", "slice-reverse"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_compiled_agrees_with_the_meaning(name: str) -> None:
    module, inputs, sizes = built(name)
    got = compile(module, target="cpu", sizes=sizes)(inputs)
    want = run(module, inputs, sizes)
    for port in module.main.signature.outputs:
        close(got[port.tensor], want[port.tensor], port.dtype, 4.0)


@pytest.mark.parametrize(
    "name",
    ["conv2d", "attention-causal", "pad-reflect-symbolic", "pad-wrap-symbolic", "slice", "concat", "lstm-all", "max_pool"],
)
def test_sizes_may_stay_symbolic(name: str) -> None:
    module, inputs, sizes = built(name)
    got = compile(module, target="cpu")(inputs)
    want = run(module, inputs, sizes)
    for port in module.main.signature.outputs:
        close(got[port.tensor], want[port.tensor], port.dtype, 4.0)
