from itertools import product as points

import pytest

from tatami.core.algebra.bounds import is_within
from tatami.core.algebra.inverse import invert
from tatami.core.algebra.visit import evaluate
from tatami.core.expr import expr

SIZES = {"S": 3, "D": 4, "B": 2}


@pytest.mark.parametrize(
    ("index_map", "domain", "sizes"),
    [
        (("i0*D + i1",), {"i0": "S", "i1": "D"}, ("S*D",)),
        (("i0//D", "i0 % D"), {"i0": "S*D"}, ("S", "D")),
        (("i1", "i0"), {"i0": "S", "i1": "D"}, ("D", "S")),
        (("i0", "i2//4", "i1", "i2 % 4"), {"i0": "B", "i1": "S", "i2": "8"}, ("B", "2", "S", "4")),
        (("i0*6 + i1*2 + i2",), {"i0": "B", "i1": "3", "i2": "2"}, ("6*B",)),
        (("2*i0 + i1//4", "i1 % 4"), {"i0": "2", "i1": "8"}, ("4", "4")),
        (("i0//6", "i0 % 2", "(i0//2) % 3"), {"i0": "6*B"}, ("B", "2", "3")),
        (("2*i0 - 3*(i0//2)",), {"i0": "4"}, ("4",)),
        (("i0", "0", "i1"), {"i0": "B", "i1": "S"}, ("B", "1", "S")),
    ],
)
def test_the_inverse_of_a_reshape_undoes_it(index_map, domain, sizes) -> None:
    made = tuple(expr(e) for e in index_map)
    box = {a: expr(s) for a, s in domain.items()}
    names = tuple(f"t{k}" for k in range(len(sizes)))
    inverse = invert(made, box, names, tuple(expr(s) for s in sizes))
    assert inverse is not None
    for point in points(*(range(evaluate(s, SIZES)) for s in box.values())):
        env = dict(zip(box, point)) | SIZES
        image = dict(zip(names, (evaluate(e, env) for e in made))) | SIZES
        assert tuple(evaluate(e, image) for e in inverse) == point


@pytest.mark.parametrize("index_map", [("i0 + i1",), ("i0",), ("2*i0 + i1",)])
def test_maps_that_are_no_bijection_have_no_inverse(index_map) -> None:
    box = {"i0": expr(4), "i1": expr(3)}
    assert invert(tuple(expr(e) for e in index_map), box, ("t0",), (expr(12),)) is None


@pytest.mark.parametrize(
    ("text", "size"), [("2*i - 3*(i//2)", 4), ("i//4 + 3*(i % 4)", 12), ("(i//2) % 3 + 3*(i % 2) + 6*(i//6)", 12)]
)
def test_digits_of_one_axis_are_bounded_together(text: str, size: int) -> None:
    extent = {4: 4, 12: 12}[size]
    e = expr(text)
    assert is_within(e, expr(size), {"i": expr(extent)})
    assert all(0 <= evaluate(e, {"i": i}) < size for i in range(extent))
    assert not is_within(e, expr(size - 1), {"i": expr(extent)})
