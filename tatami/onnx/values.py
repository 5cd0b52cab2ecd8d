"""What the importer knows of an ONNX value: a tensor of the graph, a constant, a small tensor of sizes, a sequence."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.frontend.ir import TensorType


@dataclass(frozen=True)
class Strung:
    """A sequence in one tensor (strung.py): [n, ..] where all elements have one shape; with `lengths`, i64 [n], they lie one
    after the other along `axis` and these are their sizes."""

    tensor: str
    axis: int = 0
    lengths: str = ""


@dataclass
class Value:
    """`tensor` is its name in the frontend graph once something needs it as data. `array` is its constant content;
    `sizes` its content as size expressions (integers of rank 0 or 1 that describe shapes). A sequence of known length exists
    only while importing: `items` are its elements; `strung` has one whose length only a run tells, or the same elements in
    one tensor. An optional value without content is `absent`."""

    tensor: str = ""
    type: TensorType | None = None
    array: np.ndarray | None = None
    sizes: tuple[Expr, ...] | None = None
    rank: int = field(default=1)
    """Rank of `sizes`: 0 or 1."""
    dtype: DType = DType.i64
    """The dtype of `sizes` as a tensor: i64, or i32 after a cast."""
    items: tuple[Value, ...] | None = None
    strung: Strung | None = None
    absent: bool = False
    text: frozenset[str] | None = None
    """Not None: `tensor` holds the codes of words (words.py), which come from these inputs and tables; "": from the model."""
    printed: bool = False
    """Text that is numbers printed; `tensor` holds the numbers."""
    keys: tuple[str, ...] | tuple[int, ...] | None = None
    """A sequence of maps with these keys: `tensor` holds their values, a row for each map."""
    pairs: tuple[Value, Value] | None = None
    """A map of the data: its keys in order, and their values."""
    ports: frozenset[str] = frozenset()
    """The small graph inputs that alone decide its content: a program can be specialised on their values."""

    @property
    def is_tensor(self) -> bool:
        """True if it is neither a sequence, nor a map, nor empty."""
        return self.items is None and self.strung is None and self.pairs is None and not self.absent

    @property
    def is_text(self) -> bool:
        """True if its elements are strings, or those of a tensor in it."""
        parts = self.items or ()
        return self.text is not None or self.printed or is_text_array(self.array) or any(v.is_text for v in parts)


def is_text_array(array: np.ndarray | None) -> bool:
    return array is not None and array.dtype.kind in "OSU"
