"""Control flow of the interpreters: turns of a loop, its results, inputs of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import shape
from tatami.core.numbers.run_programs import Turns, checked_inputs, known_sizes, loop_results, turn_while
from tatami.core.signature import Input
from tatami.frontend.ir import TensorType


def below(limit: int) -> Turns[int]:
    """A loop over one number that adds its iteration and ends by its condition."""

    def turn(iteration: int, go: bool, state: Sequence[int]) -> list[int]:
        assert go
        return [int(state[0] + iteration < limit), state[0] + iteration, iteration * 10]

    return turn_while(None, True, [0], 1, turn)


def test_a_loop_ends_by_its_condition_and_keeps_the_last_state() -> None:
    assert below(5) == Turns(4, [6], [[0, 10, 20, 30]])


@pytest.mark.parametrize(("trip", "go"), [(0, True), (3, False)])
def test_a_loop_that_never_turns_has_the_state_it_was_given(trip: int, go: bool) -> None:
    def turn(*_: object) -> list[int]:
        raise AssertionError("it turned")

    assert turn_while(trip, go, [7, 8], 2, turn) == Turns(0, [7, 8], [[], []])


def test_the_trip_count_ends_a_loop_whose_condition_holds() -> None:
    assert turn_while(3, True, [1], 0, lambda iteration, go, state: [1, state[0] * 2]) == Turns(3, [8], [])


def test_a_turn_gives_a_row_of_each_scanned_result() -> None:
    with pytest.raises(ValueError, match="zip"):
        turn_while(1, True, [1], 2, lambda iteration, go, state: [1, 1, 1])


def test_rows_are_stacked_and_sizes_that_only_turns_tell_are_bound() -> None:
    types = [TensorType(DType.fp32, shape("N")), TensorType(DType.fp32, shape("T", "N"))]
    sizes: dict[str, int] = {}
    turned = Turns(2, [np.ones(3, np.float32)], [[np.zeros(3, np.float32), np.ones(3, np.float32)]])
    state, rows = loop_results(turned, types, ("T", "N"), sizes, "declared")
    assert sizes == {"T": 2, "N": 3} and state.shape == (3,)
    assert rows.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_a_loop_that_never_turned_has_no_rows_of_the_declared_type() -> None:
    sizes: dict[str, int] = {"N": 3}
    (rows,) = loop_results(Turns(0, [], [[]]), [TensorType(DType.fp16, shape("T", "N"))], ("T",), sizes, "float64")
    assert rows.shape == (0, 3) and rows.dtype == np.float64 and sizes["T"] == 0


def test_a_call_passes_the_sizes_that_are_known() -> None:
    assert known_sizes(dict(zip("ab", shape("2*N", "M"))), {"N": 4}) == {"a": 8}


def test_an_input_is_there_and_of_its_dtype_or_another_float_in_double_precision() -> None:
    ports = [Input("x", DType.fp32, shape("N"))]
    single, double = np.ones(2, np.float32), np.ones(2, np.float64)
    assert checked_inputs(ports, {"x": single}, "declared")[0] is single
    assert checked_inputs(ports, {"x": double}, "float64")[0] is double
    for given in ({}, {"x": double}, {"x": np.ones(2, np.int32)}):
        with pytest.raises(TatamiError, match="InputMismatch"):
            checked_inputs(ports, given, "declared")
