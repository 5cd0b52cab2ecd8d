"""Exchanges by MPI, with a library of the test in place of mpi4py: two processes that have the same arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest

from tatami.core.numbers.collectives import Collective, CommunicationError
from tatami.runtime.communication import Mpi


class Library:
    """The part of mpi4py.MPI that is used."""

    class Exception(RuntimeError):
        """A fault of MPI."""

    ERRORS_RETURN, SUM, PROD, MAX, MIN = "return", np.add, np.multiply, np.maximum, np.minimum


class Done:
    """A request that has ended. `fault`: what waiting for it raises."""

    fault: ClassVar[str | None] = None

    def Wait(self) -> None:
        if self.fault is not None:
            raise Library.Exception(self.fault)


class Twins:
    """A communicator of two processes with the same arrays."""

    def Get_size(self) -> int:
        return 2

    def Set_errhandler(self, handler: object) -> None:
        assert handler == "return"

    def Iallreduce(self, operand: np.ndarray, result: np.ndarray, op: np.ufunc) -> Done:
        result[...] = op(operand, operand)
        return Done()

    def Ireduce_scatter_block(self, operand: np.ndarray, result: np.ndarray, op: np.ufunc) -> Done:
        result[...] = op(operand, operand)[: len(result)]
        return Done()

    def Iallgather(self, operand: np.ndarray, result: np.ndarray) -> Done:
        result[...] = np.concatenate([operand, operand])
        return Done()

    def Ialltoallv(self, operand: list[object], result: list[object]) -> Done:
        (data, sent), (made, received) = operand, result
        assert isinstance(data, np.ndarray) and isinstance(made, np.ndarray)
        assert isinstance(sent, list) and isinstance(received, list)
        assert sum(sent) == data.size and sum(received) == made.size
        first = data[: sent[0]]
        made[...] = np.resize(first, made.size) if first.size else 7
        return Done()

    def Ibcast(self, operand: np.ndarray, root: int) -> Done:
        return Done()


def exchanged(what: Collective, x: np.ndarray) -> np.ndarray:
    return Mpi(Library, {"world": Twins()}).begin(what, x).wait()  # type: ignore[arg-type, dict-item]


ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("all_reduce", ROWS, 2 * ROWS),
        ("all_reduce", np.array(3, np.int32), np.array(6, np.int32)),
        ("reduce_scatter", ROWS, 2 * ROWS[:2]),
        ("all_gather", ROWS.astype(ml_dtypes.bfloat16), np.concatenate([ROWS, ROWS])),
        ("all_gather", np.zeros((4, 0), np.float32), np.zeros((8, 0))),
        ("all_gather", np.zeros((0, 4), np.float32), np.zeros((0, 4))),
        ("all_to_all", ROWS, np.concatenate([ROWS[:2], ROWS[:2]])),
        ("broadcast", ROWS, ROWS),
        ("broadcast", np.array(True), np.array(True)),
    ],
)
def test_results_have_the_shape_and_dtype_of_the_exchange(name: str, x: np.ndarray, want: np.ndarray) -> None:
    found = exchanged(Collective(name, "world", 2), x)
    assert found.dtype == x.dtype and found.shape == want.shape
    np.testing.assert_array_equal(found, want.astype(x.dtype))


@pytest.mark.parametrize(("rows", "sent", "received"), [(0, (0, 0), (0, 2)), (3, (1, 2), (0, 0)), (3, (3, 0), (3, 1))])
def test_a_process_may_send_or_receive_nothing(rows: int, sent: Sequence[int], received: Sequence[int]) -> None:
    what = Collective("all_to_all", "world", 2, sent=tuple(sent), received=tuple(received))
    assert exchanged(what, np.zeros((rows, 5), np.float16)).shape == (sum(received), 5)


def test_what_mpi_cannot_combine_is_refused() -> None:
    with pytest.raises(CommunicationError, match="cast to fp32"):
        exchanged(Collective("all_reduce", "world", 2), np.zeros(3, np.float16))
    with pytest.raises(CommunicationError, match="no group of that name, but world"):
        exchanged(Collective("all_reduce", "other", 2), ROWS)
    with pytest.raises(CommunicationError, match="has 2 processes now"):
        exchanged(Collective("all_reduce", "world", 3), ROWS)


@pytest.mark.parametrize("fault", ["a peer left", ""])
def test_a_fault_is_told_when_the_result_is_waited_for(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Done, "fault", fault)
    with pytest.raises(CommunicationError, match=fault or "Exception"):
        exchanged(Collective("all_reduce", "world", 2), ROWS)
