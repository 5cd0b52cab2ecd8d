"""Many operations in one graph, each with the answer numpy or PyTorch gives: compiled once, compared one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tatami.api import compile
from tatami.core.dtype import DType
from tatami.core.tensor import as_dtype
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.run import run

ORACLES: dict[str, Callable[[Oracle], None]] = {}
"""Every family of answers by name; `tests/frontend/oracles/test_oracles.py` compiles each."""

ULPS = {DType.fp16: 2.0**-10, DType.bf16: 2.0**-7, DType.fp32: 2.0**-23, DType.fp64: 2.0**-52}


SMALLEST = {DType.fp16: 2.0**-24, DType.bf16: 2.0**-133, DType.fp32: 2.0**-126, DType.fp64: 2.0**-1022}


def oracle(fill: Callable[[Oracle], None]) -> Callable[[Oracle], None]:
    """Make `fill` one of ORACLES."""
    assert fill.__name__ not in ORACLES, fill.__name__
    ORACLES[fill.__name__] = fill
    return fill


class Oracle:
    """A graph under construction, with the results it has to give."""

    def __init__(self) -> None:
        self.g = Graph("oracle")
        self.inputs: dict[str, np.ndarray] = {}
        self.wants: dict[str, tuple[np.ndarray, float, float, str]] = {}

    def given(self, array: Any, shape: Sequence[int | str] | None = None) -> Tensor:
        """An input that holds `array`; `shape` may name sizes that stay open."""
        array = np.asarray(array)
        name = f"x{len(self.inputs)}"
        self.inputs[name] = array
        dtype = as_dtype(array.dtype)
        assert dtype is not None, array.dtype
        return self.g.input(name, tuple(array.shape if shape is None else shape), dtype)

    def same(self, what: str, tensor: Tensor | tuple[Tensor, ...], want: Any, ulps: float = 4.0, *, each: bool = False) -> None:
        """`tensor` is `want`: to the bit for integers and bool; floats within `ulps` of the element and a quarter of the
        largest element, or of the element alone (`each`)."""
        if isinstance(tensor, tuple):
            assert len(tensor) == len(want), what
            for i, (t, w) in enumerate(zip(tensor, want, strict=True)):
                self.same(f"{what}[{i}]", t, w, ulps, each=each)
            return
        want = numbers(want)
        assert len(tensor.shape) == want.ndim, f"{what}: shape {tensor.shape}, wanted {want.shape}"
        name = f"y{len(self.wants)}"
        self.g.output(name, tensor)
        self.wants[name] = (want, ulps, 0.0 if each else 0.25, what)

    def check(self, **options: Any) -> None:
        """The reference and the compiled program give every answer."""
        module = self.g.module()
        dtypes = {o.tensor: o.dtype for o in module.main.signature.outputs}
        with np.errstate(all="ignore"):
            reference = run(module, self.inputs)
        got = compile(self.g, **options)(self.inputs)
        wrong = []
        for name, (want, ulps, share, what) in self.wants.items():
            for source, results in (("reference", reference), ("compiled", got)):
                message = difference(results[name], want, dtypes[name], ulps, share)
                if message:
                    wrong.append(f"{what} ({source}): {message}")
        assert not wrong, "\n".join(wrong)


def numbers(value: Any) -> np.ndarray:
    """The oracle's result as an array; PyTorch's bfloat16 in fp32."""
    if hasattr(value, "detach"):
        value = value.detach()
        return np.asarray((value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy())
    return np.asarray(value)


def difference(got: np.ndarray, want: np.ndarray, dtype: DType, ulps: float, share: float) -> str:
    """Empty when they agree: infinities and NaN in the same places, finite numbers close."""
    if got.shape != want.shape:
        return f"shape {got.shape}, wanted {want.shape}"
    if not dtype.is_float:
        if want.dtype.kind == "f":
            return f"is {dtype}, wanted floats"
        bad = got != want
    else:
        g, w = got.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(w)
        size = np.abs(np.where(finite, w, 0))
        bound = ulps * (ULPS[dtype] * (size + (size.max() if size.size else 0.0) * share) + SMALLEST[dtype])
        with np.errstate(all="ignore"):
            bad = np.where(finite, ~(np.abs(g - w) <= bound), ~((g == w) | (np.isnan(g) & np.isnan(w))))
    if not bad.any():
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(bad))
    return f"{int(bad.sum())} of {bad.size} differ, at {at}: {got[at]!r}, wanted {want[at]!r}"
