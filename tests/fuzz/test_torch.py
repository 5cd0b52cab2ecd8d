"""A share of the campaign, and its own parts: programs are the same in every run, and a difference is seen."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

from tatami import backends  # noqa: E402
from tests.fuzz.torch import call, check, compiled, differ, differs_in_ties, first_of_equals, precision  # noqa: E402
from tests.fuzz.torch_programs import program  # noqa: E402

SHARE = range(0, 2000, 100)


@pytest.mark.parametrize("seed", SHARE)
def test_a_random_program_is_as_in_eager(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = program(seed)
        verdict, why = check(made)
    assert verdict != "differs", f"{why}\n{made.source}"


def test_a_seed_is_one_program() -> None:
    assert program(7) == program(7)
    assert len({program(s).source for s in range(20)}) == 20


def test_the_other_of_two_equal_values_is_a_tie_and_nothing_else_is() -> None:
    """Seed 1183: the gradient of `topk` goes to another of several equal values than in eager."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = program(1183)
        assert check(made)[0] == "ties"
        got = compiled(made, backends.torch_backend)
    assert differs_in_ties(made, got)
    got[0].gradients = [g if g is None else g + 1 for g in got[0].gradients]
    assert not differs_in_ties(made, got)
    plain = program(1)
    assert first_of_equals(plain) == plain and not differs_in_ties(plain, compiled(plain, "eager"))


def test_what_differs_is_seen() -> None:
    made = program(1)
    wanted = call(made, made.function(), 0)
    assert differ(wanted, wanted, precision(made)) is None
    other = call(made, made.function(), 0)
    other.results[0] = other.results[0].clone() + 1
    assert "result 0" in str(differ(other, wanted, precision(made)))
    other = call(made, made.function(), 0)
    other.results[0] = (
        other.results[0].detach().clone() if other.results[0].requires_grad else other.results[0].to(torch.complex64)
    )
    assert "result 0" in str(differ(other, wanted, precision(made)))
    (again,) = compiled(made, "eager")[:1]
    assert differ(again, wanted, precision(made)) is None
