"""The derivative of every operation, in each way that it is used, against differences; and what has none is named."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.api import compile
from tatami.core.diagnostic import TatamiError
from tatami.derivative.api import gradient
from tatami.frontend.ops import OPS
from tatami.frontend.run import run
from tests.derivative.differences import error, smooth, variables, with_loss
from tests.frontend.cases import CASES
from tests.frontend.test_meaning import built, close

REFUSED = {
    **{f"{op}-mul": "op=mul has no derivative" for op in ("scatter", "scatter_nd")},
    **{f"tree_ensemble{kind}": "tree_ensemble has no derivative" for kind in ("", "-fp64", "-max")},
    "collectives": "all_to_all has no derivative",
    "kernel_body": "kernel_body has no derivative",
    "loop-until": "does not depend on 'x' through floats: lt (lt) gives bool",
}
"""Cases without a derivative, and what the diagnostic says."""
ROUNDED = ("tf32", "tf32-f16")
"""Cases whose meaning is a rounding, and whose derivative is that of the number before it."""


def of_floats(name: str) -> bool:
    module, _, _ = built(name)
    outputs = module.main.signature.outputs
    return bool(variables(module)) and any(o.dtype.is_float and not o.dtype.is_small for o in outputs)


DIFFERENTIABLE = [n for n in CASES if of_floats(n) and n not in REFUSED and n not in ROUNDED]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_the_derivative_is_the_limit_of_differences(name: str) -> None:
    module, inputs, sizes = built(name)
    assert error(with_loss(module), smooth(inputs, name), sizes) < 1e-4


@pytest.mark.parametrize("name", REFUSED)
def test_an_operation_without_a_derivative_is_named(name: str) -> None:
    module, _, _ = built(name)
    with pytest.raises(TatamiError) as info:
        gradient(with_loss(module), of="loss_", wrt=variables(module))
    (found,) = info.value.diagnostics
    assert REFUSED[name] in found.why


@pytest.mark.parametrize("name", ROUNDED)
def test_a_rounding_to_tf32_has_the_derivative_1(name: str) -> None:
    module, inputs, sizes = built(name)
    (x,) = variables(module)
    found = run(gradient(module, of="y0", wrt=[x]), inputs, sizes)[f"{x}.gradient"]
    np.testing.assert_array_equal(found, np.ones_like(inputs[x]))


def test_every_operation_with_a_float_result_is_among_the_cases() -> None:
    used = {n.op for name in (*DIFFERENTIABLE, *REFUSED, *ROUNDED) for g in built(name)[0].programs.values() for n in g.graph}
    assert OPS.keys() - used - INTEGER == WITHOUT_CASE


INTEGER = {
    *("isnan", "isinf", "isfinite", "not", "bitnot", "idiv", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor"),
    *("bitand", "bitor", "bitxor", "shl", "shr", "bitcast", "quantize", "reduce_and", "reduce_or", "argmax", "argmin"),
    *("argsort", "nonzero", "non_max_suppression", "extents", "max_pool_indices"),
}
"""Operations whose results are integers or truth values, or bits."""
WITHOUT_CASE = {"contiguous", "normal", "uniform", "unique"}
"""Operations that no case has with a float operand: an identity, two without one, and one that is refused (test_gradient.py)."""

COMPILED = [
    *("gelu", "max", "conv2d", "conv2d-groups", "conv_transpose2d", "attention-causal", "layer_norm", "max_pool", "take"),
    *(
        "lstm",
        "loop",
        "if",
        "cumprod",
        "reduce_prod",
        "resize-linear",
        "sort",
        "gather_nd",
        "einsum",
        "matmul-bf16",
        "layer_norm-f16",
        "attention-f16",
    ),
]
"""Cases whose derivative is compiled for the CPU: one of each kind of rule."""


@pytest.mark.parametrize("name", COMPILED)
def test_kernels_agree_with_the_meaning(name: str) -> None:
    module, inputs, sizes = built(name)
    made = gradient(with_loss(module), of="loss_", wrt=variables(module))
    got = compile(made, target="cpu", sizes=sizes)(inputs)
    want = run(made, inputs, sizes)
    for port in made.main.signature.outputs[-len(variables(module)) :]:
        close(got[port.tensor], want[port.tensor], port.dtype, 20.0)
