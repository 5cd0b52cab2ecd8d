import pytest

from tatami.region.views.kinds import contractions, kind_of, streaming_pair
from tests.region import examples as ex

KINDS = {
    ex.gemm: "contraction",
    ex.softmax: "rows",
    ex.layer_norm: "rows",
    ex.attention: "streaming_pair",
    ex.conv: "contraction",
    ex.two_windows: "stencil",
    ex.column_norm: "rows",
    ex.running_sum: "scan",
}


@pytest.mark.parametrize("make", ex.ALL, ids=lambda f: f.__name__)
def test_kind_is_told_from_the_region(make: object) -> None:
    assert kind_of(make()) == KINDS[make]  # type: ignore[operator, index]


def test_roles_of_axes() -> None:
    (c,) = contractions(ex.conv())
    assert (c.batch, c.m, c.n, c.k) == ((), ("b", "ho", "wo"), ("co",), ("ci", "kh", "kw"))


def test_attention_streams() -> None:
    assert streaming_pair(ex.attention()) == ("S", "o")
