"""No contraction gets lost: every contraction operation ends as contraction patterns (D2.2)."""

import pytest

from tatami.frontend.ops import OPS
from tatami.indexbook.analyse import analyse
from tatami.poly_view.extract import extract
from tatami.tiny.lower import lower
from tatami.tiny.normalize import normalize
from tests.frontend.cases import CASES
from tests.frontend.test_meaning import built

PATTERNS = {"einsum-three": 2, "einsum-sum": 0, "einsum": 2, "matmul-size1": 0}
PATTERNS |= {"conv_transpose1d": 2, "conv_transpose2d-phases": 6, "conv_transpose2d-one-tap": 2}
"""Where the number of patterns is not one per node: a product of three, a plain sum, two of three, nothing to sum; one per
phase of a transposed convolution that has taps."""
NAMES = [
    n for n in CASES if n.split("-")[0] in {o.name for o in OPS.values() if o.is_contraction} | {"conv1d", "conv2d", "conv3d"}
]
NAMES += ["conv_transpose1d", "conv_transpose2d", "conv_transpose2d-groups", "conv_transpose2d-phases"]
NAMES += ["conv_transpose2d-one-tap"]


@pytest.mark.parametrize("name", NAMES)
def test_contractions_are_found(name: str) -> None:
    tiny = normalize(lower(built(name)[0]))
    view = extract(tiny, analyse(tiny)).main
    expected = sum((2 if n.op == "attention" else 1) for n in built(name)[0].main.graph if OPS[n.op].is_contraction)
    assert len(view.patterns) == PATTERNS.get(name, expected)
