"""Inputs for a run, read from files or generated; and the sizes that they decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tatami.core.algebra.visit import concrete
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.files.array_file import UNREADABLE, header_of, read_array_file, reason
from tatami.core.signature import Input, Signature, symbols
from tatami.core.sizes.binding import solve_sizes
from tatami.core.tensor import numpy_dtype
from tatami.runtime.arrays import check_memory

UNBOUND_SIZE = 4
"""Value of a free size symbol that nothing decides when inputs are generated."""


def gather_inputs(
    signature: Signature,
    arguments: Sequence[Input],
    given: Sequence[str],
    sizes: Mapping[str, int],
    seed: int = 0,
    otherwise: Mapping[str, int] | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """(input -> array, symbol -> value) for `arguments`. `given` holds ``name=file.npy`` or ``name=shape:2x3``.

    Sizes are those of the given inputs and `sizes`, then the signature's defaults, then those in `otherwise`. Raises
    TatamiError."""
    wanted = {i.tensor: i for i in arguments}
    arrays: dict[str, np.ndarray] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for text in given:
        name, separator, source = text.partition("=")
        if not separator or name not in wanted:
            raise fail(
                "UnknownName", f"--input {text}", f"the model has no input {name!r}" if separator else "no '=' in it",
                f"write NAME=FILE.npy or NAME=shape:2x3; the inputs are {', '.join(wanted)}",
            )  # fmt: skip
        if source.startswith("shape:"):
            shapes[name] = _read_shape(text, source.removeprefix("shape:"))
        else:
            arrays[name] = _read_array(text, Path(source))
            shapes[name] = arrays[name].shape
    bound = solve_sizes(signature, shapes, sizes)
    for name in symbols(signature):
        bound.setdefault(name, (otherwise or {}).get(name, UNBOUND_SIZE))
    rng = np.random.default_rng(seed)
    for name, port in wanted.items():
        if name not in arrays:
            shape = shapes[name] if name in shapes else concrete(port.shape, bound)
            try:
                arrays[name] = generate(rng, port.dtype, shape)
            except (MemoryError, ValueError, OverflowError) as error:  # numpy refuses some sizes without trying
                why = f"no array of shape {list(shape)}: {error}".split("\n")[0]
                raise fail("OutOfMemory", name, why, "use smaller sizes (-D, --input NAME=shape:…)") from None
    return arrays, bound


def generate(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Normal floats, small non-negative integers (valid as indices of most tables), random bools."""
    if dtype == DType.bool:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(numpy_dtype(dtype))
    return rng.integers(0, 2, shape).astype(numpy_dtype(dtype))


def _read_shape(text: str, source: str) -> tuple[int, ...]:
    parts = source.split("x") if source else []
    if not all(p.isascii() and p.isdigit() and len(p) <= 18 for p in parts):
        raise fail("InputMismatch", f"--input {text[:80]}", "that is not a shape", "write sizes joined by x: shape:2x3")
    return tuple(int(p) for p in parts)


def _read_array(text: str, path: Path) -> np.ndarray:
    try:
        check_memory(header_of(path).data_bytes)
        return read_array_file(path)
    except MemoryError as error:
        raise fail("OutOfMemory", f"--input {text}", str(error) or "the array does not fit", "pass a smaller array") from None
    except UNREADABLE as error:
        raise fail("FileUnreadable", f"--input {text}", reason(error), "save the array with numpy.save") from None
