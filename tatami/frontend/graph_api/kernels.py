"""Methods of a graph for custom kernels (docs/custom_kernels.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import IntoExpr
from tatami.frontend import ir
from tatami.frontend.graph_api.arguments import dtype as dtype_named
from tatami.frontend.graph_api.arguments import name as named
from tatami.frontend.graph_api.building import Building
from tatami.frontend.graph_api.place import caller
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.operations.kernel_body import KernelBody, Meaning, remember_meaning


class Kernels(Building):
    """Methods of a graph that add a custom kernel."""

    def kernel(self, expression: str, *operands: Tensor | float, shape: Sequence[IntoExpr] | None = None) -> Tensor:
        """The values of a formula at every element: ``g.kernel("input0 * 2 + ridx1", x)`` (docs/custom_kernels.md)."""
        return self.one(
            "kernel", *operands, expression=expression, shape=None if shape is None else self._sizes(shape, "kernel")
        )

    def kernel_reduce(
        self,
        expression: str,
        *operands: Tensor | float,
        op: str,
        axes: Sequence[int] | None = None,
        keepdims: bool = False,
        acc_dtype: DType | None = None,
        shape: Sequence[IntoExpr] | None = None,
    ) -> Tensor:
        """A formula reduced over axes: ``g.kernel_reduce("input0 * input1", x, y, op="sum", axes=[1])``."""
        over = None if shape is None else self._sizes(shape, "kernel_reduce")
        given = {"op": op, "axes": axes, "keepdims": keepdims, "acc_dtype": acc_dtype, "shape": over}
        return self.one("kernel_reduce", *operands, node=None, at=None, expression=expression, **given)

    def kernel_scan(
        self,
        expression: str,
        *operands: Tensor | float,
        op: str,
        axis: int = 0,
        exclusive: bool = False,
        reverse: bool = False,
        shape: Sequence[IntoExpr] | None = None,
    ) -> Tensor:
        """A formula accumulated along an axis: ``g.kernel_scan("exp(input0)", x, op="sum", axis=1)``."""
        over = None if shape is None else self._sizes(shape, "kernel_scan")
        given = {"op": op, "axis": axis, "exclusive": exclusive, "reverse": reverse, "shape": over}
        return self.one("kernel_scan", *operands, node=None, at=None, expression=expression, **given)

    def kernel_body(
        self,
        c: str | None,
        *operands: Tensor | float,
        outputs: Sequence[tuple[DType, Sequence[IntoExpr]]],
        meaning: Meaning | None,
        cuda: str | None = None,
        preamble: str = "",
        cuda_preamble: str = "",
    ) -> Any:
        """A whole function body as one node: a Tensor, or a tuple of them (docs/custom_kernels.md).

        outputs: dtype and shape of each result. meaning: the same in numpy, arrays to array (several: a tuple), against
        which every stage is checked; None declares that there is none, and then nothing can check the node.
        """
        where = caller()
        pairs: list[tuple[Any, ...]] = (
            [tuple(o) for o in outputs if isinstance(o, Sequence)] if isinstance(outputs, Sequence) else []
        )
        if not pairs or any(len(p) != 2 for p in pairs) or len(pairs) != len(outputs):
            raise fail(
                "InvalidAttribute", where, f"outputs={outputs!r}", 'give dtype and shape of each: outputs=[(tt.fp32, ("N",))]'
            )
        if meaning is not None and not callable(meaning):
            raise fail("InvalidAttribute", where, f"meaning={meaning!r}", "give a function over arrays, or None")
        types = tuple(ir.TensorType(dtype_named(d, where), self._shape(s, where)) for d, s in pairs)
        given = {"c": c, "cuda": cuda, "preamble": preamble, "cuda_preamble": cuda_preamble}
        texts = {k: VerbatimCode(named(text, where)) for k, text in given.items() if text is not None}
        if "c" not in texts and "cuda" not in texts:
            raise fail("InvalidAttribute", where, "a kernel without a body", "give c=…, cuda=… or both")
        attrs = KernelBody(types, **texts)
        key = remember_meaning(attrs, meaning) if meaning is not None else ""
        return self.op("kernel_body", *operands, outputs=types, meaning=key, **texts)
