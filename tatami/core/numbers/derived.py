"""Constants that are made from constants of the model and need not be kept: their bytes are made again when something reads
them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.tensor import Tensor, dtype_of

if TYPE_CHECKING:
    import numpy as np


PIECE = 1 << 20
"""Elements of the source that are looked at a time, so that a derivation takes little memory besides its result."""


class Derivation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The way from a constant, or several that are joined, to another one, in the order of the fields."""

    source: str
    """The sha256 of the constant that it begins with."""
    more: tuple[str, ...] = ()
    """The sha256 of constants that are joined to it, in order; empty: it is taken alone."""
    along: int = 0
    """Axis along which they are joined."""
    minus: int = 0
    """Number that is subtracted from integers of 8 bits or fewer, which become signed ones of 8 bits."""
    turned: bool = False
    """True if the two axes are exchanged."""
    columns: int = 0
    """Number of columns over which one row, or one number, is spread; 0: it is a matrix."""
    form: Literal["plain", "i8", "words"] = "plain"
    """plain: the same dtype; i8: integers of 8 bits; words: eight codes of 4 bits in an element of 32 bits, along axis 0."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The sha256 of all constants that it is made from."""
        return (self.source, *self.more)

    @property
    def only_joins(self) -> bool:
        """True if the derived constant is its joined sources as they are."""
        return bool(self.more) and self == Derivation(self.source, self.more, self.along)

    def applied(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The derived constant's content from that of its sources, made piece by piece. Raises ValueError for shapes that the
        derivation is not for."""
        import numpy as np

        if len(arrays) != len(self.sources):
            raise ValueError("another number of constants")
        array = np.concatenate(arrays, self.along) if self.more else arrays[0]
        return array if self.only_joins else self._made_of(array)

    def _made_of(self, array: np.ndarray) -> np.ndarray:
        """The content from the joined sources."""
        import numpy as np

        from tatami.core.numbers.words import NIBBLES, words

        if self.columns:
            return np.ascontiguousarray(np.broadcast_to(self._signed(array), (1, self.columns)))
        if array.ndim != 2:
            raise ValueError("a matrix is derived from a matrix")
        rows, columns = array.shape[::-1] if self.turned else array.shape
        group = NIBBLES if self.form == "words" else 1
        kind = {"plain": array.dtype, "i8": np.dtype(np.int8), "words": np.dtype(np.int32)}[self.form]
        out = np.empty((-(-rows // group), columns), kind)
        each = -(-PIECE // max(1, array.shape[1] * group)) * group
        for first in range(0, array.shape[0], each):
            piece = self._signed(array[first : first + each])
            piece = piece.T if self.turned else piece
            piece = words(piece) if self.form == "words" else piece
            if self.turned:
                out[:, first : first + each] = piece
            else:
                out[first // group : (first + each) // group] = piece
        return out

    def _signed(self, array: np.ndarray) -> np.ndarray:
        import numpy as np

        return array if self.form == "plain" else (array.astype(np.int8).view(np.uint8) - np.uint8(self.minus)).view(np.int8)


class DerivedTensor(Tensor):
    """A constant with its derivation."""

    derivation: Derivation
    sources: tuple[Tensor, ...]
    """The constants that it is made from."""

    @classmethod
    def first(cls, sources: Sequence[Tensor], derivation: Derivation) -> DerivedTensor:
        """The constant that `derivation` makes of `sources`; its bytes are made once for the hash, and not kept. A single source
        that is itself several joined constants is replaced by these."""
        if len(sources) == 1 and isinstance(sources[0], cls) and sources[0].derivation.only_joins:
            joined = sources[0].derivation
            sources = sources[0].sources
            derivation = msgspec.structs.replace(derivation, source=joined.source, more=joined.more, along=joined.along)
        made = _content(sources, derivation)
        dtype = dtype_of(made)
        assert dtype is not None
        tensor = cls.of_bytes(_bytes(made), dtype, made.shape)
        return cls._with(tensor, sources, derivation)

    @classmethod
    def again(
        cls, sources: Sequence[Tensor], derivation: Derivation, like: tuple[DType, tuple[int, ...], str]
    ) -> DerivedTensor:
        """The constant that an earlier process derived. `like`: its dtype, shape and hash."""
        dtype, shape, sha256 = like
        return cls._with(cls.of_bytes(b"", dtype, shape, sha256), sources, derivation)

    @classmethod
    def _with(cls, tensor: Tensor, sources: Sequence[Tensor], derivation: Derivation) -> DerivedTensor:
        assert isinstance(tensor, cls)
        tensor.derivation, tensor.sources = derivation, tuple(sources)
        tensor.read_again_by(partial(_made, tensor.sources, derivation, (tensor.dtype, tensor.shape)), sure=True)
        tensor.release()
        return tensor


def _content(sources: Sequence[Tensor], derivation: Derivation) -> np.ndarray:
    """The derived constant's content. Raises ValueError for sources that the derivation is not for."""
    with ExitStack() as held:
        return derivation.applied([held.enter_context(t.borrowed()) for t in sources])


def _made(sources: Sequence[Tensor], derivation: Derivation, kind: tuple[DType, tuple[int, ...]]) -> memoryview:
    try:
        made = _content(sources, derivation)
        is_same = (dtype_of(made), made.shape) == kind
    except (ValueError, OverflowError):  # a rank or a number that no derivation has, in a record that somebody wrote
        is_same = False
    if not is_same:
        why = "a derived constant has another form than the program was compiled for"
        raise fail("InvalidDocument", "constants", why, "compile the model again")
    return _bytes(made)


def _bytes(array: np.ndarray) -> memoryview:
    array.flags.writeable = False
    return array.reshape(math.prod(array.shape)).view("u1").data
