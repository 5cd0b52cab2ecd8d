"""A drop-in session: `from tatami.onnx import InferenceSession` in place of ONNX Runtime's, for the CPU.

    session = InferenceSession("model.onnx", SessionOptions(), providers=["CPUExecutionProvider"])
    outputs = session.run(None, {"x": array})

It names, checks and orders values as users of ONNX Runtime know them; what runs is `InferenceSession.engine`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx

from tatami.backends.onnx_binding import IOBinding
from tatami.backends.onnx_engine import Engine
from tatami.backends.onnx_session_errors import (
    InvalidProtobuf,
    NoSuchFile,
    at_load,
    at_run,
    invalid_argument,
    missing_inputs,
)
from tatami.backends.onnx_session_options import RunOptions, SessionOptions, note
from tatami.backends.onnx_session_values import ModelMetadata, NodeArg, OrtValue, given, taken
from tatami.core.diagnostic import TatamiError, diagnostic
from tatami.core.files.plain_file import read_plain
from tatami.runtime.machine.host import WORTH_A_TRIM, trim_heap

Signature: TypeAlias = tuple[tuple[str, np.dtype, tuple[int, ...]], ...]
PROVIDERS = ("CPUExecutionProvider",)
"""Execution providers by ONNX Runtime's names."""
MAX_ACCEPTED = 256
"""Number of feeds, by names, dtypes and shapes, that a session remembers as checked."""


def get_available_providers() -> list[str]:
    """The execution providers of this package."""
    return list(PROVIDERS)


def get_all_providers() -> list[str]:
    """The execution providers of this package."""
    return list(PROVIDERS)


def get_device() -> str:
    """The kind of device on which sessions run: CPU."""
    return "CPU"


def enable_telemetry_events() -> None:
    """Note in the log that nothing is ever sent."""
    note("enable_telemetry_events", "nothing is ever sent")


def disable_telemetry_events() -> None:
    """Do nothing: events are never sent."""


def set_default_logger_severity(severity: int) -> None:
    """Note in the log that Tatami's loggers decide what is logged."""
    note("set_default_logger_severity", "the loggers `tatami` and TATAMI_LOG decide what is said")


class InferenceSession:
    """A model, compiled and ready to run. path_or_bytes: an .onnx file, or its bytes.

    Raises NoSuchFile, InvalidProtobuf, InvalidGraph, NotImplemented or Fail, all of them TatamiErrors. A model whose program
    depends on the values of a run is compiled at its first run."""

    engine: Any = Engine
    """Class of the engine, made from (file, model, folder, threads); its `run(feed)` returns the outputs in order, `names` are
    its inputs."""

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        for name in kwargs:
            note(f"InferenceSession({name}=…)", "Tatami has no such option")
        self._options = sess_options or SessionOptions()
        self._options.say_what_has_no_effect()
        self.set_providers(get_available_providers() if providers is None else providers, provider_options)
        file, model, folder = _read(path_or_bytes)
        if _set_sizes(model.graph, self._options.dimensions):
            file = None
        self._meta = ModelMetadata.of(model)
        initialised = {i.name for i in model.graph.initializer}
        args = [NodeArg.of(i) for i in model.graph.input]
        self._inputs = [a for a in args if a.name not in initialised]
        self._overridable = [a for a in args if a.name in initialised] if model.ir_version >= 4 else []
        self._outputs = [NodeArg.of(o) for o in with_shapes(model)]
        self._accepted: dict[Signature, Any] = {}
        """Names, dtypes and shapes of a feed that needs no conversion -> the engine that runs it."""
        self._source = path_or_bytes if self._overridable else None
        self._others: dict[frozenset[str], Any] = {}
        """Names of initialisers -> the engine that takes them as inputs."""
        try:
            self._engine = self.engine(file, model, folder, self._options.intra_op_num_threads or None)
        except TatamiError as error:
            raise at_load(error) from error
        weights = sum(len(i.raw_data) for i in model.graph.initializer)
        del model
        if weights >= WORTH_A_TRIM:
            trim_heap()

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """The outputs of these names, all for None or an empty list: arrays; lists for sequences, dicts for maps, None for
        an empty optional value. input_feed: arrays, or what numpy makes arrays of; lists for sequences, OrtValues.

        Raises InvalidArgument for a feed that does not suit the model, Fail for a run that cannot go on."""
        if run_options is not None:
            run_options.say_what_has_no_effect()
        wanted = self._wanted(output_names)
        signature = _signature(input_feed)
        feed: Mapping[str, Any] = input_feed
        engine = None if signature is None else self._accepted.get(signature)
        if engine is None:
            feed = self._feed(input_feed)
            engine = self._engine_with({a.name for a in self._overridable if a.name in feed})
            if signature is not None and all(feed[n] is a for n, a in input_feed.items()):
                if len(self._accepted) >= MAX_ACCEPTED:
                    self._accepted.clear()
                self._accepted[signature] = engine
        try:
            results = engine.run(feed)
        except TatamiError as error:
            raise at_run(error) from error
        return [given(results[k]) for k in wanted]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """The outputs of `run` as OrtValues, for inputs as OrtValues."""
        return [OrtValue(v) for v in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """A binding of inputs and outputs, which are named once and used by `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with the bound inputs, and store the results in the binding."""
        iobinding.take(self.run(iobinding.names, iobinding.feed, run_options))

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run has to receive, in the model's order."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the model's order."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that have a value in the model."""
        return list(self._overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """The metadata of the model's file."""
        return self._meta

    def get_session_options(self) -> SessionOptions:
        """The options of this session."""
        return self._options

    def get_providers(self) -> list[str]:
        """The execution providers of this session."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Execution provider -> its options, of which there are none."""
        return {name: {} for name in self._providers}

    def set_providers(
        self,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]],
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Keep the CPU as the provider; a warning names the others."""
        names = [p if isinstance(p, str) else p[0] for p in providers]
        options = [{} if isinstance(p, str) else p[1] for p in providers]
        if provider_options is not None and len(provider_options) != len(names):
            message = "'providers' and 'provider_options' should be the same length if both are given."
            raise invalid_argument(message, "provider_options", "give one dict for each provider")
        for name in names:
            if name not in PROVIDERS:
                warnings.warn(
                    f"Specified provider '{name}' is not in available provider names. Available providers: '{', '.join(PROVIDERS)}'",
                    stacklevel=3,
                )
        if any(options) or any(provider_options or ()):
            note("provider_options", "the provider of the CPU has none")
        self._providers = list(PROVIDERS)

    def enable_fallback(self) -> None:
        """Do nothing: the CPU has no other provider to fall back to."""

    def disable_fallback(self) -> None:
        """Do nothing: the CPU has no other provider to fall back to."""

    def explain(self) -> str:
        """The report as text: the programs with their inputs, and the fusion in each."""
        return str(self._engine.explain())

    def _engine_with(self, overridden: set[str]) -> Any:
        """The engine for other values of these initialisers, which its program takes as inputs."""
        if not overridden:
            return self._engine
        key = frozenset(overridden)
        if key not in self._others:
            assert self._source is not None
            _, model, folder = _read(self._source)
            _set_sizes(model.graph, self._options.dimensions)
            kept = [i for i in model.graph.initializer if i.name not in key]
            del model.graph.initializer[:]
            model.graph.initializer.extend(kept)
            try:
                self._others[key] = self.engine(None, model, folder, self._options.intra_op_num_threads or None)
            except TatamiError as error:
                raise at_load(error) from error
        return self._others[key]

    def _wanted(self, output_names: Sequence[str] | None) -> list[int]:
        if isinstance(output_names, str):
            raise TypeError("output_names is a list of names, or None for all outputs")
        if not output_names:
            return list(range(len(self._outputs)))
        places = {o.name: k for k, o in enumerate(self._outputs)}
        for name in output_names:
            if name not in places:
                raise invalid_argument(f"Invalid output name:{name}", str(name), f"the outputs are {', '.join(places)}")
        return [places[n] for n in output_names]

    def _feed(self, input_feed: Mapping[str, Any]) -> dict[str, Any]:
        missing = [i.name for i in self._inputs if i.name not in input_feed and not i.is_optional]
        if missing:
            raise missing_inputs(missing, list(input_feed))
        known = {i.name: i for i in (*self._inputs, *self._overridable)}
        for name in input_feed:
            if name not in known:
                raise invalid_argument(f"Invalid input name: {name}", str(name), f"the inputs are {', '.join(known)}")
        return {i.name: taken(input_feed.get(i.name), i) for i in known.values() if i.name in input_feed or i.is_optional}


def _signature(feed: Mapping[str, Any]) -> Signature | None:
    """Names, dtypes and shapes of a feed of arrays; None for a feed that holds anything else."""
    found = []
    for name, array in feed.items():
        if type(array) is not np.ndarray:
            return None
        found.append((name, array.dtype, array.shape))
    return tuple(found)


def _read(path_or_bytes: str | bytes | os.PathLike[str]) -> tuple[Path | bytes | None, onnx.ModelProto, Path | None]:
    """(the file's path or bytes, the model in it, the folder of its external data)."""
    model = onnx.ModelProto()
    file: Path | bytes | None
    if isinstance(path_or_bytes, bytes | bytearray | memoryview):
        file = data = bytes(path_or_bytes)
        what, folder = "model", None
    elif isinstance(path_or_bytes, str | os.PathLike):
        file = path = Path(path_or_bytes)
        what, folder = str(path), path.parent
        try:
            data = read_plain(path)
        except OSError as error:
            message = f"Load model from {path} failed: File doesn't exist"
            reason = f"it cannot be read: {error.strerror or error}"
            raise NoSuchFile(
                message, diagnostic("FileUnreadable", what[:200], reason, "give the path of an .onnx file")
            ) from None
    else:
        raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
    try:
        model.ParseFromString(data)
    except Exception:  # the parser's own error types are private
        said = diagnostic("ParseError", what[:200], "not an ONNX model", "export the model again")
        raise InvalidProtobuf("Failed to load model because protobuf parsing failed.", said) from None
    return file, model, folder


def _set_sizes(graph: onnx.GraphProto, dimensions: Mapping[str, int]) -> bool:
    """Replace axes of these names by numbers; True if there is such an axis."""
    found = [d for port in graph.input for d in port.type.tensor_type.shape.dim if d.dim_param in dimensions]
    for dim in found:
        dim.dim_value = dimensions[dim.dim_param]
    return bool(found)


def with_shapes(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The outputs; one without a shape in the model has the shape that follows from its nodes."""
    ports = list(model.graph.output)
    if all(p.type.WhichOneof("value") != "tensor_type" or p.type.tensor_type.HasField("shape") for p in ports):
        return ports
    try:
        return list(onnx.shape_inference.infer_shapes(model).graph.output)
    except Exception:  # the importer reports faults of the model
        return ports
