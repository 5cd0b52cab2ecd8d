"""A model file that can be imported again for the inputs of one call: their sizes, and the values of those that decide its
structure.

    OnnxSource(model).imported()                                  sizes stay symbols
    OnnxSource(model).imported(shapes={"x": (1, 3, 640, 640)})    every size of x is a number
    OnnxSource(model).imported(fixed={"axes": array([1])})        axes is a constant, and not an input of the program
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx

from tatami.core.codec import decode_record, encode_record
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.files.data_files import DataFiles, ModelFile, read_model
from tatami.core.module import Module
from tatami.core.sizes.binding import PartialShape
from tatami.core.tensor import Tensor
from tatami.frontend.ir import Graph
from tatami.onnx.files.repair import Repaired, repaired
from tatami.onnx.files.tensors import array_of
from tatami.onnx.load import FormsError, decisive_inputs, has_symbolic_sizes, import_model, read_proto
from tatami.onnx.sequences.ports import Imported, Ports, arguments_of, results_of

OF_FILES = "E17"
"""Prefix of the codes of faults of files, compilers and the machine, which do not depend on sizes."""
PROBED_SIZE = 64
"""Size of every open axis in the trial import that tests if a model is wrong for every input: a multiple of the usual
strides, and a number that a model is unlikely to name."""


class OnnxSource:
    """A model and the files next to it, read when needed. A file is read again for each import, and refused if it has
    changed since it was compiled."""

    def __init__(self, model: onnx.ModelProto | ModelFile | Path, beside: DataFiles | None = None) -> None:
        self._given = model
        self.beside = beside
        self.overrides: frozenset[str] = frozenset()
        """Initialisers that a caller replaces by arrays, so that they are inputs of the program."""
        self._stamp = _stamp_of(model)

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The model's message. Raises FileUnreadable if the file has changed."""
        file = self.file
        if file is None:
            assert isinstance(self._given, onnx.ModelProto)
            return self._given
        return read_proto(file)

    @cached_property
    def file(self) -> ModelFile | None:
        """The model's file; None for a message. Raises FileUnreadable if it has changed."""
        given = self._given
        if isinstance(given, Path):
            file = read_model(given)
            if _stamp(given) != self._stamp:
                why = "the file has changed since it was compiled"
                raise fail("FileUnreadable", given.name, why, "compile the model again")
            self.beside = file.beside
            return file
        return given if isinstance(given, ModelFile) else None

    def resume(self, error: TatamiError) -> None:
        """Take over what an import of the same file had read when it failed with this error."""
        if isinstance(error, FormsError) and error.file is not None and _stamp_of(self._given) == self._stamp:
            self.beside = error.file.beside
            self.__dict__["file"] = error.file
            if error.repaired is not None:
                self.__dict__["repaired"] = error.repaired
        if isinstance(error, FormsError):
            error.file = error.repaired = None

    @cached_property
    def repaired(self) -> Repaired:
        """The model after harmless repairs."""
        return repaired(self.model)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The inputs that a caller passes, in the model's order."""
        return (*(i.name for i in self.repaired.inputs), *sorted(self.overrides))

    @cached_property
    def overridable(self) -> frozenset[str]:
        """Initialisers that are inputs too, so that a caller may pass them."""
        return frozenset(self.repaired.overridable) - self.overrides

    def overriding(self, names: frozenset[str]) -> OnnxSource:
        """The same model with these initialisers as inputs of the program."""
        other = OnnxSource(self.model, self.beside)
        other.overrides = self.overrides | names
        return other

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the model's outputs, in its order."""
        return tuple(o.name for o in self.repaired.outputs)

    @cached_property
    def has_open_sizes(self) -> bool:
        """True if some input has an axis whose size the model leaves open."""
        return has_symbolic_sizes(self.repaired.inputs)

    def imported(
        self,
        fixed: Mapping[str, Any] | None = None,
        shapes: Mapping[str, PartialShape] | None = None,
        sizes: Mapping[str, int] | None = None,
        reads_sizes: bool = True,
    ) -> Imported:
        """The module for the known values, shapes and sizes. Raises TatamiError."""
        model = self.repaired  # reading the model sets its folder
        try:
            return import_model(
                model, fixed or {}, shapes, sizes=sizes, beside=self.beside, reads_sizes=reads_sizes, overrides=self.overrides
            )
        finally:
            self._let_go()

    def record(self, imported: object) -> bytes | None:
        """The import without its module, as text that `recorded` reads; None for an import of given values, or for one whose
        tables of words are made at each call."""
        if not isinstance(imported, Imported) or imported.fixed or imported.word_steps:
            return None
        ports = Ports(dict(imported.inputs), imported.outputs, dict(imported.vocabulary))
        return encode_record(_Record(ports, self.names, self.outputs, tuple(sorted(self.overridable)), self.has_open_sizes))

    def recorded(self, text: bytes, module: Module[Graph]) -> Imported:
        """The import with this module that `record` wrote down, without a look at the model. Raises ValueError."""
        was = decode_record(text, _Record)
        self.__dict__.update(
            names=was.names, outputs=was.outputs, overridable=frozenset(was.overridable), has_open_sizes=was.has_open_sizes
        )
        self._let_go()
        return Imported(module, was.ports.inputs, was.ports.outputs, {}, was.ports.vocabulary)

    def naming(self, names: Collection[str]) -> Module[Graph]:
        """The module in which each initialiser of `names` is a constant of that name, computed with when the program runs:
        otherwise equal ones are one constant, and what depends on constants alone is computed by the import."""
        door = self.repaired
        arrays = {n: array_of(door.tensors[n], self.beside, n) for n in names if n in door.tensors}
        ports = {n: _port(n, a) for n, a in arrays.items()}
        opened = replace(door, overridable={**door.overridable, **ports})
        module = import_model(opened, {}, beside=self.beside, overrides=frozenset(arrays)).module
        main = module.main
        inputs = tuple(
            msgspec.structs.replace(p, role="param", storage="const_pool") if p.tensor in arrays else p
            for p in main.signature.inputs
        )
        main = msgspec.structs.replace(main, signature=msgspec.structs.replace(main.signature, inputs=inputs))
        constants = {**module.constants, **{n: Tensor(a) for n, a in arrays.items()}}
        self._let_go()
        return replace(
            module, programs={**module.programs, "main": main}, constants=constants, overridable=tuple(door.overridable)
        )

    def _let_go(self) -> None:
        """Release the model of a file, which is read again for the next import, so that its weights are not in memory twice."""
        if isinstance(self._given, Path):
            for small in ("names", "overridable", "outputs", "has_open_sizes"):
                getattr(self, small)
            for large in ("model", "repaired", "file"):
                self.__dict__.pop(large, None)

    def decisive(self, error: TatamiError) -> set[str]:
        """The inputs whose values would settle the fault of the import."""
        return decisive_inputs(error)

    def may_serve_some_size(self, error: TatamiError) -> bool:
        """True if a program for some sizes or values may exist although the import for all of them gave `error`: it does
        not fail at the same place for the same reason when all sizes are numbers."""
        if any(d.code.startswith(OF_FILES) for d in error.diagnostics):
            return False
        if self.decisive(error) or any("forms" in d.details for d in error.diagnostics):
            return True
        try:
            if not self.has_open_sizes:
                return False
            self.imported(sizes=_AllOpen())
        except TatamiError as again:
            first, second = error.diagnostics[0], again.diagnostics[0]
            return (first.kind, first.at) != (second.kind, second.at) or bool(self.decisive(again))
        return True

    arguments_of = staticmethod(arguments_of)
    results_of = staticmethod(results_of)


def _port(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


class _Record(msgspec.Struct, frozen=True):
    """An import without its module, and what a source is asked about its model."""

    ports: Ports
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    overridable: tuple[str, ...]
    has_open_sizes: bool


def _stamp_of(model: object) -> tuple[int, int] | None:
    return _stamp(model) if isinstance(model, Path) else None


def _stamp(path: Path) -> tuple[int, int]:
    """(size in bytes, time of change in nanoseconds) of a file, which differ if it was written again; (0, 0) if there is no
    file."""
    try:
        info = path.stat()
    except (OSError, ValueError):  # no file, or no name of one
        return 0, 0
    return info.st_size, info.st_mtime_ns


class _AllOpen(dict[str, int]):
    """A mapping in which every symbol has the value PROBED_SIZE."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> int:
        return PROBED_SIZE

    def __bool__(self) -> bool:
        return True
