"""`tt.quantize`: a model of floats in, a model with codes out, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from tatami.core.diagnostic import fail
from tatami.core.document import check_file
from tatami.core.faults.arguments import bool_argument, path_argument
from tatami.core.files.data_files import ModelFile, read_model
from tatami.onnx.load import read_proto
from tatami.quantization.layers import Layer, find_layers, with_ranges
from tatami.quantization.ranges import find_ranges
from tatami.quantization.rewrite import id_of, rewritten, with_opset
from tatami.quantization.rounding import lost, rounded
from tatami.quantization.samples import samples_of
from tatami.quantization.sensitivity import sensitivities
from tatami.quantization.settings import Settings, settings_of

MOST_IN_ONE_FILE = 1 << 30
"""Bytes of a model above which its constants are written to a file of their own: a message of protobuf has less than 2 GiB."""


@dataclass(frozen=True)
class QuantizedLayer:
    """A row of the table. `error`: norm of what rounding changed in the weights, relative to their norm; `sensitivity`: norm of
    the change of the model's outputs if this layer alone is quantised, relative to theirs; both None where it was not computed."""

    name: str
    op: str
    shape: tuple[int, ...]
    form: str
    error: float | None = None
    sensitivity: float | None = None


@dataclass(frozen=True)
class Quantized:
    """A quantised model. `layers`: every layer with constant weights, in the order of the model."""

    model: onnx.ModelProto = field(repr=False)
    settings: Settings
    layers: tuple[QuantizedLayer, ...]

    def save(self, path: str | Path) -> Path:
        """Write the model to an .onnx file, with its constants next to it if they are large. Raises FileUnwritable."""
        to = Path(path_argument(path, "path"))
        if to.suffix.lower() != ".onnx":
            raise fail("FileUnwritable", str(to)[:200], "a model of ONNX has the suffix .onnx", f"name it {to.stem}.onnx")
        try:
            if self.model.ByteSize() < MOST_IN_ONE_FILE:
                onnx.save_model(self.model, to)
            else:
                written = onnx.ModelProto()  # saving removes the constants from the message
                written.CopyFrom(self.model)
                data = to.with_name(f"{to.name}.data")
                data.unlink(missing_ok=True)  # onnx writes behind what a file has
                onnx.save_model(written, to, save_as_external_data=True, location=data.name)
        except OSError as error:
            raise fail("FileUnwritable", str(to)[:200], error.strerror or "it cannot be written", "check the path") from None
        return to

    def table(self) -> str:
        """The layers as text, the most sensitive first if that is known."""
        rows = (
            sorted(self.layers, key=lambda r: -(r.sensitivity or 0)) if any(r.sensitivity for r in self.layers) else self.layers
        )
        lines = [("layer", "operator", "weights", "form", "error", "sensitivity")]
        lines += [
            (ascii(r.name)[1:-1][:60], r.op, "x".join(map(str, r.shape)), r.form, _text(r.error), _text(r.sensitivity))
            for r in rows
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _text(number: float | None) -> str:
    return "" if number is None else f"{number:.2e}"


def quantize(
    model: object, mode: object = "int8", calibration: object = None, *, sensitivity: bool = False, exclude: Sequence[str] = ()
) -> Quantized:
    """The model with weights of 4 or 8 bits, as standard ONNX.

    model: a path to an .onnx file, its bytes, or an onnx.ModelProto.
    mode: "int4" (blocks of 32 weights, activations of floats), "int8" (the same with 8 bits; with calibration: static), "dynamic"
    and "static" (activations of 8 bits too), or a dict of options (docs/quantize.md).
    calibration: a list of samples, each a dict from input to array (an array for a model with one input), for static ranges.
    sensitivity: compute what each layer alone changes in the outputs, on the first sample; a run of the reference per layer.
    exclude: names of layers that stay as they are, in addition to those of the dict.
    Raises TatamiError.
    """
    bool_argument(sensitivity, "sensitivity")
    opened = _opened(model)
    settings = settings_of(mode, has_calibration=calibration is not None)
    settings = _with_excluded(settings, exclude)
    samples = samples_of(calibration, opened)
    opened = with_opset(opened, settings)
    layers = find_layers(opened, settings)
    chosen = [layer for layer in layers if not layer.skipped]
    ranges = {}
    if settings.activations == "static":
        ranges = find_ranges(opened, list(dict.fromkeys(layer.source for layer in chosen)), samples, settings)
        layers = with_ranges(layers, ranges)
        chosen = [layer for layer in layers if not layer.skipped]
    made = rewritten(opened, chosen, settings, ranges)
    if _is_valid(opened):
        onnx.checker.check_model(made)
    found: dict[str, float] = {}
    if sensitivity:
        found = sensitivities(opened, chosen, settings, ranges, samples[0] if samples else _generated(opened))
    return Quantized(made, settings, tuple(_row(layer, settings, found) for layer in layers))


def _is_valid(model: onnx.ModelProto) -> bool:
    """True if onnx.checker has nothing against the model: some that run everywhere do not pass, or are too large for it."""
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError):
        return False
    return True


def _row(layer: Layer, settings: Settings, sensitivity: dict[str, float]) -> QuantizedLayer:
    if layer.skipped:
        return QuantizedLayer(layer.name, layer.op, layer.shape, layer.skipped)
    block = 0 if layer.op == "Conv" else settings.block_size
    codes = rounded(layer.matrix, settings.bits, block)
    each = f"blocks of {codes.block}" if len(codes.scales) > 1 else "a scale per column"
    words = {"float": settings.weights, "dynamic": "int8, dynamic", "static": "int8, static"}[settings.activations]
    error = lost(layer.matrix, codes)
    return QuantizedLayer(layer.name, layer.op, layer.shape, f"{words}, {each}", error, sensitivity.get(id_of(layer.node)))


def _with_excluded(settings: Settings, exclude: Sequence[str]) -> Settings:
    import msgspec

    names = (exclude,) if isinstance(exclude, str) or not isinstance(exclude, Iterable) else tuple(exclude)
    if isinstance(exclude, str) or not all(isinstance(n, str) for n in names):
        raise fail("InvalidAttribute", "exclude", "it is not a list of names", "pass a list of layers' names")
    return msgspec.structs.replace(settings, exclude=tuple(dict.fromkeys((*settings.exclude, *names))))


def _opened(model: object) -> onnx.ModelProto:
    """The model as a message, with its constants in memory."""
    if isinstance(model, onnx.ModelProto | bytes | bytearray | memoryview):
        proto = model if isinstance(model, onnx.ModelProto) else read_proto(ModelFile("bytes", bytes(model)))
        if any(t.data_location == onnx.TensorProto.EXTERNAL for t in proto.graph.initializer):
            why = "its constants are in another file, whose folder is not known"
            raise fail("FileUnreadable", "model", why, "pass the path, or onnx.load(path)")
        return proto
    if not isinstance(model, str | Path) or Path(model).suffix.lower() != ".onnx":
        what = str(model)[:80] if isinstance(model, str | Path) else type(model).__name__
        raise fail("UnknownFormat", what, "only models of ONNX are quantised", "export the model to ONNX: torch.onnx.export")
    path = Path(model)
    check_file(path)
    proto = read_proto(read_model(path))
    try:
        onnx.load_external_data_for_model(proto, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        why = f"its constants in another file cannot be read: {str(error)[:120]}"
        raise fail("FileUnreadable", path.name, why, "keep the model's files together") from None
    return proto


def _generated(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Inputs with generated numbers, open sizes being those of `tatami run`."""
    import tatami.api
    from tatami.bench.inputs import gather_inputs

    signature = tatami.api.prepare(model, target="reference").stages["frontend"].programs["main"].signature
    ports = [p for p in signature.inputs if p.storage != "const_pool"]
    arrays, _ = gather_inputs(signature, ports, (), {})
    return arrays
