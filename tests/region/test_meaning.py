"""run(tiny) == run(region@explicit) == run(region), on the examples and on random programs."""

import msgspec
import numpy as np
import pytest

from tatami.core.algebra.visit import evaluate
from tatami.core.module import Module
from tatami.core.target import PRESETS
from tatami.core.tensor import numpy_dtype
from tatami.indexbook.analyse import analyse
from tatami.poly_view.extract import extract
from tatami.poly_view.verify import verify as verify_view
from tatami.region.canonicalise import canonicalise
from tatami.region.fusion.partition import partition
from tatami.region.ir import Region
from tatami.region.lower import lower
from tatami.region.rules import RULES
from tatami.region.run import run
from tatami.region.verify import verify
from tatami.tiny.ir import Program
from tatami.tiny.run import run as run_tiny
from tests.region.random_programs import random_program
from tests.tiny_programs import attention, conv_padded, gemm_bias_relu, layer_norm, row_softmax

SIZES = {"M": 5, "N": 4, "K": 3, "B": 2, "H": 3, "S": 5, "D": 64, "Ci": 2, "Co": 3}


def check(tiny: Module[Program], target: str) -> None:
    book = analyse(tiny)
    view = extract(tiny, book)
    assert not [d for d in verify_view(view, tiny, book) if not d.is_warning]
    explicit = lower(tiny, book, view, partition(tiny, book, view, PRESETS[target]))
    rng = np.random.default_rng(0)
    inputs = {}
    for port in tiny.main.signature.inputs:
        shape = tuple(int(evaluate(s, SIZES)) for s in port.shape)
        inputs[port.tensor] = rng.standard_normal(shape).astype(numpy_dtype(port.dtype))
    want = run_tiny(tiny, inputs, SIZES, "float64")
    for module in (explicit, canonicalise(explicit)):
        assert not [d for d in verify(module) if not d.is_warning]
        got = run(module, inputs, SIZES, "float64")
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("target", ["cpu:avx2", "sm90"])
@pytest.mark.parametrize("build", [gemm_bias_relu, row_softmax, conv_padded, layer_norm, attention])
def test_examples_keep_their_meaning(build, target: str) -> None:
    check(build(), target)


@pytest.mark.parametrize("seed", [*range(60), 202, 522, 654, 870, 877])
def test_random_programs_keep_their_meaning(seed: int) -> None:
    check(random_program(seed), "cpu:avx2")


@pytest.mark.parametrize("seed", range(12))
def test_every_rule_keeps_the_meaning(seed: int) -> None:
    tiny = random_program(seed + 1000)
    book = analyse(tiny)
    view = extract(tiny, book)
    module = lower(tiny, book, view, partition(tiny, book, view, PRESETS["cpu:avx2"]))
    rng = np.random.default_rng(0)
    inputs = {
        port.tensor: rng.standard_normal(tuple(int(evaluate(s, {})) for s in port.shape)).astype(numpy_dtype(port.dtype))
        for port in tiny.main.signature.inputs
    }
    want = run(module, inputs, {}, "float64")
    for rule in RULES:
        body = tuple(rule(item) if isinstance(item, Region) else item for item in module.main.body)
        module = Module({"main": msgspec.structs.replace(module.main, body=body)})
        got = run(module, inputs, {}, "float64")
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-9, atol=1e-9, err_msg=rule.__name__)
