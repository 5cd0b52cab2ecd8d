"""Places of slices as sizes."""

from __future__ import annotations

import pytest

from tatami.core.expr import var
from tatami.region.ir import Let, Read, Region, RegionExpr
from tatami.region.views.open_places import with_open_places
from tests.region.examples import F32, add, iters, param, read, target

X0, X1, Y0 = map(var, ("X'0", "X'1", "Y'0"))


def region(*exprs: RegionExpr) -> Region:
    lets = tuple(Let(f"a{k}", ("m",), F32, e) for k, e in enumerate(exprs))
    return Region("r", iters(m=4), (), (param("X", 9, 9, 4), param("Y", 9, 4)), (target("Z", 4),), lets, ())


@pytest.mark.parametrize(
    ("exprs", "wanted", "places"),
    [
        ((read("X", 5, 0, "m"),), (read("X", X0, 0, "m"),), {"X'0": 5}),
        ((read("X", 5, 7, "m"),), (read("X", X0, X1, "m"),), {"X'0": 5, "X'1": 7}),
        ((add(read("X", 5, 0, "m"), read("Y", 2, "m")),), (add(read("X", X0, 0, "m"), read("Y", Y0, "m")),), {"X'0": 5, "Y'0": 2}),
        ((read("Y", 2, "m"), read("Y", 2, "m")), (read("Y", Y0, "m"), read("Y", Y0, "m")), {"Y'0": 2}),
    ],
)  # fmt: skip
def test_the_place_of_a_slice_is_a_size(
    exprs: tuple[RegionExpr, ...], wanted: tuple[Read, ...], places: dict[str, int]
) -> None:
    found, sizes = with_open_places(region(*exprs))
    assert sizes == places
    assert found == region(*wanted)


@pytest.mark.parametrize(
    "exprs",
    [(read("X", 0, 0, "m"),), (read("X", "m", "m", "m"),), (read("Y", 2, "m"), read("Y", 3, "m")), (read("Y", "m + 1", 2), read("Y", 2, "m"))],
)  # fmt: skip
def test_what_is_read_at_several_places_or_at_the_first_stays(exprs: tuple[RegionExpr, ...]) -> None:
    before = region(*exprs)
    found, sizes = with_open_places(before)
    assert found is before and sizes == {}
