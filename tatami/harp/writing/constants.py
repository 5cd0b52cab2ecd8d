"""The constants of a module as text: small ones are written out, the others are named."""

from __future__ import annotations

import numpy as np

from tatami.core.expr import expr
from tatami.core.module import Module
from tatami.frontend.ir import Graph
from tatami.harp.writing.names import Names
from tatami.harp.writing.write import payload_text, string_text, type_text

INLINE_ELEMENTS = 16
"""Maximum number of elements of a constant that is written out."""


class Constants:
    """The split of constants into those written out and those named."""

    def __init__(self, module: Module[Graph]) -> None:
        self.module = module
        self.names = Names()
        self.named: dict[str, np.ndarray] = {}
        self._texts: dict[str, str] = {}

    def text(self, name: str, role: str) -> str:
        """The expression that stands for the constant."""
        if name not in self._texts:
            tensor = self.module.constants[name]
            elements = payload_text(tensor) if 0 < tensor.array.size <= INLINE_ELEMENTS else None
            if elements is None:
                label = self.names[name]
                self.named[label] = tensor.array
                elements = string_text(label)
            self._texts[name] = f"constant({type_text(tensor.dtype, tuple(map(expr, tensor.shape)))}, {elements}"
        return self._texts[name] + (")" if role == "const" else f", role={string_text(role)})")
