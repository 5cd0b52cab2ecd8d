"""Derived constants against the whole transformation in one step."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.numbers import derived
from tatami.core.numbers.derived import Derivation, DerivedTensor
from tatami.core.numbers.words import words
from tatami.core.tensor import Tensor


def codes(kind: object, low: int, high: int) -> np.ndarray:
    return np.random.default_rng(3).integers(low, high, (37, 24)).astype(np.int16).astype(np.dtype(kind))  # type: ignore[call-overload]


@pytest.mark.parametrize("piece", [1, 100, 1 << 20])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("kind", "low", "high", "minus", "form"),
    [
        (np.int8, -128, 128, 0, "i8"),
        (np.uint8, 0, 256, 128, "i8"),
        (ml_dtypes.uint4, 0, 16, 8, "i8"),
        (ml_dtypes.int4, -8, 8, 0, "words"),
        (ml_dtypes.uint4, 0, 16, 8, "words"),
        (np.float32, -9, 9, 0, "plain"),
    ],
)
def test_pieces_make_the_whole(
    monkeypatch: pytest.MonkeyPatch, piece: int, turned: bool, kind: object, low: int, high: int, minus: int, form: str
) -> None:
    monkeypatch.setattr(derived, "PIECE", piece)
    array = codes(kind, low, high)
    source = Tensor(array)
    how = Derivation(source.sha256, minus=minus, turned=turned, form=form)  # type: ignore[arg-type]
    made = DerivedTensor.first([source], how)
    want = array.astype(np.float32) - minus
    want = want.T if turned else want
    want = words(want.astype(np.int8)) if form == "words" else want
    assert not made.is_in_memory
    np.testing.assert_array_equal(made.array, want.astype(made.array.dtype))
    assert made == Tensor(made.array)


def test_a_row_is_spread_over_columns() -> None:
    for numbers in (np.float32(2), np.array([2], np.float32), np.arange(5, dtype=np.float32)):
        source = Tensor(np.asarray(numbers))
        made = DerivedTensor.first([source], Derivation(source.sha256, columns=5))
        np.testing.assert_array_equal(made.array, np.broadcast_to(numbers, (1, 5)))


def test_the_source_is_not_kept_in_memory() -> None:
    held = np.arange(12, dtype=np.float32).reshape(3, 4)
    source = Tensor(held)
    source.read_again_by(lambda: held.tobytes())
    source.release()
    made = DerivedTensor.first([source], Derivation(source.sha256, turned=True))
    assert not source.is_in_memory
    np.testing.assert_array_equal(made.array, held.T)
    assert not source.is_in_memory


@pytest.mark.parametrize("turned", [False, True])
def test_constants_are_joined_before_all_else(turned: bool) -> None:
    parts = [Tensor(np.arange(n * 4, dtype=np.int8).reshape(n, 4)) for n in (2, 3, 1)]
    first, *more = (t.sha256 for t in parts)
    joined = DerivedTensor.first(parts, Derivation(first, tuple(more)))
    made = DerivedTensor.first([joined], Derivation(joined.sha256, minus=3, turned=turned, form="i8"))
    whole = np.concatenate([t.array for t in parts])
    np.testing.assert_array_equal(joined.array, whole)
    np.testing.assert_array_equal(made.array, (whole.T if turned else whole) - 3)
    assert made.derivation.sources == (first, *more), "a record names constants of the model"


def test_a_derivation_of_another_form_is_refused() -> None:
    """A record that somebody wrote may name any constant of the model."""
    source = Tensor(np.zeros((4, 3), np.float32))
    kind = (source.dtype, (4, 3), "0" * 64)
    sha = source.sha256
    for derivation in (
        Derivation(sha, turned=True),
        Derivation(sha, form="i8"),
        Derivation(sha, minus=300, form="i8"),
        Derivation(sha, columns=-1),
        Derivation(sha, (sha,)),
        Derivation(sha, (sha,), along=2),
    ):
        made = DerivedTensor.again([source] * (2 if derivation.along else 1), derivation, kind)
        with pytest.raises(TatamiError, match="another form than the program was compiled for"):
            _ = made.array
    vector = Tensor(np.zeros(4, np.float32))
    with pytest.raises(TatamiError, match="another form than the program was compiled for"):
        _ = DerivedTensor.again([vector], Derivation(vector.sha256), (vector.dtype, (4,), "0" * 64)).array
