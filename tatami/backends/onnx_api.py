"""The ONNX Backend API over the compiler: `prepare`, `run_model`, `run_node`, `supports_device`.

`prepare` compiles without knowing any input's value; sizes that inputs hold are read by Host steps. Where the structure
of a program follows from values (the axes of a reduction, the length of a sequence, whether an optional value is there),
the compilation waits for the first run and is specialised on the values of those inputs; each such program is kept and
`Prepared.explain` shows them. The same happens if sizes that are read break an assumption of the program (two sizes that
it assumes to be equal, of which one is 1 and broadcasts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from tatami.api import build
from tatami.api import prepare as prepare_stages
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.files.data_files import DataFiles
from tatami.onnx.source import OnnxSource
from tatami.specialised.specialisation import Key, Policy, Program, ShapeSet


class Prepared(BackendRep):  # type: ignore[misc]
    """A model that can be run any number of times."""

    def __init__(
        self, model: onnx.ModelProto, target: Any = "cpu", threads: int | None = None, folder: Path | None = None
    ) -> None:
        source = OnnxSource(model, None if folder is None else DataFiles(folder))
        self.model = model
        self.shape_set = ShapeSet(source, lambda module: build(prepare_stages(module, target=target), threads))
        self.names = source.names
        try:
            self.shape_set.program({}, Policy())
        except TatamiError as error:
            if not source.may_serve_some_size(error):
                raise

    @property
    def programs(self) -> Mapping[Key, Program]:
        """Key of the values that a program was specialised on -> program, for all compiled programs."""
        return self.shape_set.programs

    @property
    def path(self) -> str:
        """How the model runs: "kernels only", "with Host steps" or "specialised at run time"."""
        if self.shape_set.is_specialised:
            return "specialised at run time"
        return "with Host steps" if any(p.host_steps for p in self.programs.values()) else "kernels only"

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in the model's order. inputs: arrays by position or name; lists for sequences, None for an empty
        optional value. Raises TatamiError."""
        return tuple(self.shape_set.run(self.shape_set.named(inputs)).values())

    def explain(self) -> str:
        """The report as text: the programs with their inputs, and the fusion in each."""
        parts = [f"path: {self.path}", self.shape_set.explain()]
        return "\n".join([*parts, *(p.function.explain() for p in self.programs.values())])


class OnnxBackend(Backend):  # type: ignore[misc]
    """`onnx.backend.base.Backend` for this machine's CPU."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """True if `prepare` should be tried, which is always: a model that cannot be run is refused there, with the reason."""
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Compile `model`. Raises TatamiError, with everything that is unsupported."""
        if not cls.supports_device(device):
            raise fail("UnknownTarget", "device", f"the device {device!r}", "use CPU")
        return Prepared(model, threads=kwargs.get("threads"))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """The outputs of one run of `model`. Raises TatamiError."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of one node, as a model of its own; `opset_version` chooses its operator set."""
        arrays = [np.asarray(x) for x in inputs]
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        return cls.run_model(_model_of(node, arrays, opset), arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True if `device` is the CPU."""
        return device.split(":")[0] == "CPU"


def _model_of(node: onnx.NodeProto, arrays: Sequence[np.ndarray], opset: int) -> onnx.ModelProto:
    names = [n for n in node.input if n]
    if len(names) != len(arrays):
        raise fail("InputMismatch", node.op_type, f"{len(arrays)} values for {len(names)} inputs", "give one for each")
    make = onnx.helper.make_tensor_value_info
    inputs = [make(n, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in zip(names, arrays, strict=True)]
    outputs = [onnx.ValueInfoProto(name=n) for n in node.output if n]  # the import finds their types
    graph = onnx.helper.make_graph([node], "node", inputs, outputs)
    sets = [onnx.helper.make_opsetid("", opset)]
    if node.domain not in ("", "ai.onnx"):
        sets.append(onnx.helper.make_opsetid(node.domain, 1))
    return onnx.helper.make_model(graph, opset_imports=sets)
