"""The ONNX Backend API over the compiler: `prepare`, `run_model`, `run_node`, `supports_device`.

`prepare` compiles without knowing any input's value; sizes that inputs hold are read by Host steps. Where the structure
of a program follows from values (the axes of a reduction, the length of a sequence, whether an optional value is there),
the compilation waits for the first run and is specialised on what those inputs hold; each such program is kept and
`Prepared.explain` shows them. So it is where sizes that are read break what the program takes of them (two that it takes
to be equal, where one is 1 and broadcasts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from tatami.api import CompiledFunction, build
from tatami.api import prepare as prepare_stages
from tatami.core.data_files import DataFiles
from tatami.core.diagnostic import TatamiError, fail
from tatami.execution.ir import Host
from tatami.onnx.load import decisive_inputs, has_symbolic_sizes, import_model
from tatami.onnx.ports import Imported, arguments_of, results_of

Key: TypeAlias = tuple[object, ...]
_OF_SIZES = frozenset(["AxisAlignmentMismatch", "AxisSizeMismatch", "BroadcastMismatch"])
"""What an import may say of symbolic sizes that numbers would settle."""
MAX_KEPT = 64
"""Specialised programs of one model; the oldest goes when another comes."""


class Program:
    """One compilation of a model, with what it was specialised on."""

    def __init__(self, imported: Imported, target: Any, threads: int | None) -> None:
        self.imported = imported
        self.function: CompiledFunction = build(prepare_stages(imported.module, target=target), threads)

    @property
    def host_steps(self) -> tuple[str, ...]:
        """The routines that run in Python between kernels."""
        plans = self.function.execution.programs.values()
        return tuple(i.op.routine for p in plans for i in p.instructions if isinstance(i.op, Host))

    @property
    def reads_sizes(self) -> bool:
        """Whether the data decide sizes that the model states as numbers."""
        return "extent" in self.host_steps

    def run(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        arrays, words = arguments_of(self.imported, inputs)
        results = self.function({a.tensor: arrays[a.tensor] for a in self.function.arguments})
        return results_of(self.imported, results, words)


class Prepared(BackendRep):  # type: ignore[misc]
    """A model that may be run again and again."""

    def __init__(
        self, model: onnx.ModelProto, target: Any = "cpu", threads: int | None = None, folder: Path | None = None
    ) -> None:
        self.model = model
        self.programs: dict[Key, Program] = {}
        """By the names and contents of the inputs that decide the structure; under () where none does."""
        self._target, self._threads, self._folder = target, threads, folder
        initialised = {i.name for i in model.graph.initializer}
        self.names = tuple(i.name for i in model.graph.input if i.name not in initialised)
        self._decisive: tuple[str, ...] = ()
        self._by_shape = False
        """Whether a program holds for one shape of each input only."""
        self._reads_sizes = True
        """Whether sizes that inputs hold are read as the program runs; else programs are specialised on them."""
        try:
            self._program({})
        except TatamiError as error:
            if not decisive_inputs(error) and not self._is_of_sizes(error):
                raise

    @property
    def path(self) -> str:
        """How it runs: "kernels only", "with Host steps" or "specialised at run time"."""
        if self._decisive or self._by_shape:
            return "specialised at run time"
        return "with Host steps" if any(p.host_steps for p in self.programs.values()) else "kernels only"

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in the model's order. inputs: arrays by position or name; lists for sequences, None for an empty
        optional value. Raises TatamiError."""
        named = self._named(inputs)
        program = self._program(named)
        try:
            return program.run(named)
        except TatamiError:
            if not program.reads_sizes:
                raise
        self._reads_sizes = False
        self.programs.clear()
        return self._program(named).run(named)

    def explain(self) -> str:
        """What was compiled for which inputs, and what fused in each."""
        parts = [f"path: {self.path}", f"programs: {len(self.programs)}"]
        for program in self.programs.values():
            fixed = program.imported.fixed
            parts += [f"specialised on {name} = {_brief(value)}" for name, value in fixed.items()]
            parts += [f"Host step: {routine}" for routine in program.host_steps]
            parts.append(program.function.explain())
        return "\n".join(parts)

    def _is_of_sizes(self, error: TatamiError) -> bool:
        return has_symbolic_sizes(self.model) and all(d.kind in _OF_SIZES for d in error.diagnostics)

    def _named(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            given = dict(inputs)
        else:
            values = list(inputs) if isinstance(inputs, Sequence) and not isinstance(inputs, np.ndarray) else [inputs]
            if len(values) > len(self.names):
                raise fail("InputMismatch", "inputs", f"{len(values)} values for {len(self.names)} inputs", "give one for each")
            given = dict(zip(self.names, values, strict=False))
        missing = [n for n in self.names if n not in given]
        if missing:
            raise fail("InputMismatch", missing[0], "the input is not given", f"the inputs are {', '.join(self.names)}")
        return given

    def _program(self, given: Mapping[str, Any]) -> Program:
        """The program for what the deciding inputs hold, compiled now if it does not exist."""
        while True:
            fixed = {n: given[n] for n in self._decisive}
            shapes = {n: np.shape(v) for n, v in given.items() if n not in fixed} if self._by_shape else {}
            key = (*((n, *_content(v)) for n, v in fixed.items()), *shapes.items())
            if key in self.programs:
                return self.programs[key]
            try:
                beside = None if self._folder is None else DataFiles(self._folder)
                imported = import_model(self.model, fixed, shapes, beside=beside, reads_sizes=self._reads_sizes)
                made = Program(imported, self._target, self._threads)
            except TatamiError as error:
                more = decisive_inputs(error) - set(fixed)
                if more and more <= set(given):
                    self._decisive = (*self._decisive, *sorted(more))
                elif self._reads_sizes and not more:
                    self._reads_sizes = False
                elif given and not self._by_shape and self._is_of_sizes(error):
                    self._by_shape = True
                else:
                    raise
                continue
            if len(self.programs) >= MAX_KEPT:
                del self.programs[next(iter(self.programs))]
            self.programs[key] = made
            return made


def _content(value: Any) -> Key:
    """What a program specialised on the value depends on: an array's content, a sequence's length and shapes."""
    if value is None:
        return ("absent",)
    if isinstance(value, list | tuple):
        return ("sequence", *((np.asarray(v).dtype.str, np.asarray(v).shape) for v in value))
    array = np.asarray(value)
    return (array.dtype.str, array.shape, array.tobytes())


def _brief(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list | tuple):
        return f"a sequence of {len(value)}"
    return np.array2string(np.asarray(value).reshape(-1), threshold=8, edgeitems=3)


class OnnxBackend(Backend):  # type: ignore[misc]
    """`onnx.backend.base.Backend` for this machine's CPU."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Always: a model that cannot be run is refused by `prepare`, with the reason."""
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Compile `model`. Raises TatamiError; what is unsupported is listed at once."""
        if not cls.supports_device(device):
            raise fail("UnknownTarget", "device", f"the device {device!r}", "use CPU")
        return Prepared(model, threads=kwargs.get("threads"))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """One node as a model of its own; `opset_version` chooses its operator set."""
        arrays = [np.asarray(x) for x in inputs]
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        return cls.run_model(_model_of(node, arrays, opset), arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0] == "CPU"


def _model_of(node: onnx.NodeProto, arrays: Sequence[np.ndarray], opset: int) -> onnx.ModelProto:
    names = [n for n in node.input if n]
    if len(names) != len(arrays):
        raise fail("InputMismatch", node.op_type, f"{len(arrays)} values for {len(names)} inputs", "give one for each")
    make = onnx.helper.make_tensor_value_info
    inputs = [make(n, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in zip(names, arrays, strict=True)]
    outputs = [make(n, onnx.TensorProto.FLOAT, ()) for n in node.output if n]  # a place holder: import finds the types
    graph = onnx.helper.make_graph([node], "node", inputs, outputs)
    sets = [onnx.helper.make_opsetid("", opset)]
    if node.domain not in ("", "ai.onnx"):
        sets.append(onnx.helper.make_opsetid(node.domain, 1))
    return onnx.helper.make_model(graph, opset_imports=sets)
