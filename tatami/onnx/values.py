"""An ONNX value as the importer knows it: a tensor of the graph, a constant, a small tensor of sizes, a sequence."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.frontend.ir import TensorType


@dataclass(frozen=True)
class Strung:
    """A sequence in one tensor (strung.py): [n, ..] if all elements have one shape; with `lengths`, i64 [n], they are
    joined along `axis` and these are their sizes."""

    tensor: str
    axis: int = 0
    lengths: str = ""


@dataclass
class Value:
    """One value. `tensor`: its name in the frontend graph once it is needed as data. `array`: its constant content;
    `sizes`: its content as size expressions (integers of rank 0 or 1 that describe shapes). `items`: elements of a
    sequence of known length, which exists only while importing; `strung`: a sequence whose length only a run decides, or
    the same elements in one tensor. `absent`: True for an optional value without content."""

    tensor: str = ""
    type: TensorType | None = None
    array: np.ndarray | None = None
    sizes: tuple[Expr, ...] | None = None
    rank: int = field(default=1)
    """Rank of `sizes`: 0 or 1 (default)."""
    dtype: DType = DType.i64
    """The dtype of `sizes` as a tensor: i64, or i32 after a cast."""
    items: tuple[Value, ...] | None = None
    strung: Strung | None = None
    absent: bool = False
    text: frozenset[str] | None = None
    """Sources of the words if `tensor` holds their codes (words.py): inputs and tables, "" for the model. None if it holds
    no text."""
    printed: bool = False
    """True for text that is printed numbers; `tensor` holds the numbers."""
    keys: tuple[str, ...] | tuple[int, ...] | None = None
    """Keys of a sequence of maps; `tensor` holds their values, a row for each map. None for other values."""
    pairs: tuple[Value, Value] | None = None
    """(keys in order, values) of a map of the data; None for other values."""
    ports: frozenset[str] = frozenset()
    """The small graph inputs that alone decide its content, so that a program can be specialised on their values."""

    @property
    def is_tensor(self) -> bool:
        """True if the value is neither a sequence, nor a map, nor absent."""
        return self.items is None and self.strung is None and self.pairs is None and not self.absent

    @property
    def is_text(self) -> bool:
        """True if the elements are strings, or those of a tensor in a sequence."""
        parts = self.items or ()
        return self.text is not None or self.printed or is_text_array(self.array) or any(v.is_text for v in parts)


def is_text_array(array: np.ndarray | None) -> bool:
    """True if the array holds strings."""
    return array is not None and array.dtype.kind in "OSU"
