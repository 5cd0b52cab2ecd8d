"""A row of the list of trained models, and the inputs that rows have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.real.arrays import InputArray, Maker, page


@dataclass(frozen=True)
class RealModel:
    """One row. file: the path in the package's archive; a name that ends in .gz is unpacked."""

    name: str
    package: str
    version: str
    file: str
    kind: str
    inputs: tuple[InputArray, ...]
    sizes: tuple[Mapping[str, int], ...] = ({},)
    also: tuple[str, ...] = ()
    """Files next to the model: external data."""
    parts: tuple[tuple[str, str, str], ...] = ()
    """(package, version, file) of further parts of a file that is cut into several packages, in order."""


def floats(name: str, shape: tuple[int | str, ...], make: Maker) -> InputArray:
    """An input of type float32."""
    return InputArray(name, "float32", shape, make)


def integers(name: str, shape: tuple[int | str, ...], make: Maker, dtype: str = "int64") -> InputArray:
    """An input of integers, of type int64 unless `dtype` says otherwise."""
    return InputArray(name, dtype, shape, make)


def pages(name: str, *shape: int | str) -> tuple[InputArray, ...]:
    """One input: pages of text, from -1 to 1."""
    return (floats(name, shape, page(-1.0, 1.0)),)
