import random
from itertools import product

import pytest

from tatami.core.algebra.proof import is_inside
from tatami.core.algebra.visit import evaluate
from tatami.core.expr import Expr, expr


@pytest.mark.parametrize(
    ("index", "size", "box"),
    [
        ("2*i2 - 4*((3*i0 + i1)//2) + 6*i0 + 2*i1", 3, {"i0": 4, "i1": 3, "i2": 1}),
        ("(2*i0 + i1)//3 - 4*(i0//6)", 4, {"i0": 12, "i1": 2}),
        ("(18*i0 + 6*i1 + i2)//4 - 3*((3*i0 + i1)//2)", 3, {"i0": 2, "i1": 3, "i2": 6}),
        ("2*i1 - 3*(i1//2)", 4, {"i1": 4}),
    ],
)
def test_dependent_terms_are_bounded_together(index: str, size: int, box: dict[str, int]) -> None:
    assert is_inside(expr(index), expr(size), {a: expr(s) for a, s in box.items()})


def test_a_guard_on_another_form_of_the_index_is_used() -> None:
    box = {"i0": expr(15), "i1": expr(2)}
    facts = [(expr("(2*i0 + i1)//3 - 1"), expr(8)), (expr("2*i0 + i1 - 3*((2*i0 + i1)//3) - 1"), expr(2))]
    assert is_inside(expr("(2*i0 + i1 + 3)//6 - 1"), expr(4), box, facts)
    assert is_inside(expr("1 + 2*i0 + i1 - 4*((2*i0 + i1 + 3)//6) - (2*i0 + i1)//3"), expr(4), box, facts)
    assert not is_inside(expr("(2*i0 + i1 + 3)//6 - 1"), expr(4), box)


def test_guards_of_other_axes_do_not_get_in_the_way() -> None:
    sizes = {"m1": 18, "m2": 14, "m3": 12, "k1": 3, "k2": 2, "k3": 2}
    facts = [(expr(f"m{d} - 2*(m{d}//2)"), expr(1)) for d in (1, 2, 3)]
    facts += [(expr(f"2*k{d} + m{d} - {lo}"), expr(n)) for d, lo, n in ((1, 4, 14), (2, 2, 12), (3, 2, 10))]
    box = {a: expr(s) for a, s in sizes.items()}
    for d, lo, n in ((1, 2, 7), (2, 1, 6), (3, 1, 5)):
        assert is_inside(expr(f"k{d} + m{d}//2 - {lo}"), expr(n), box, facts)


def test_symbolic_sizes_are_proved_too() -> None:
    box = {"m": expr("B*S")}
    assert is_inside(expr("m - S*(m//S)"), expr("S"), box)
    assert is_inside(expr("m//S"), expr("B"), box)


def test_nothing_false_is_proved() -> None:
    r = random.Random(7)
    proved = 0
    for _ in range(400):
        box = {a: r.randint(1, 5) for a in ("i", "j")}
        index = _random_index(r)
        size = r.randint(1, 8)
        facts = [(_random_index(r), expr(r.randint(1, 6)))] if r.random() < 0.5 else []
        if not is_inside(index, expr(size), {a: expr(s) for a, s in box.items()}, facts):
            continue
        proved += 1
        for point in product(*(range(s) for s in box.values())):
            env = dict(zip(box, point))
            if all(0 <= evaluate(f, env) < evaluate(s, env) for f, s in facts):
                assert 0 <= evaluate(index, env) < size, (str(index), size, box, [str(f) for f, _ in facts])
    assert proved > 20


def _random_index(r: random.Random) -> Expr:
    linear = expr("i") * r.randint(0, 3) + expr("j") * r.randint(-2, 3) + r.randint(-1, 2)
    out = linear if r.random() < 0.5 else expr(0)
    for _ in range(r.randint(0, 2)):
        out = out + ((linear + r.randint(-1, 1)) // r.randint(2, 4)) * r.randint(-4, 2)
    return out
