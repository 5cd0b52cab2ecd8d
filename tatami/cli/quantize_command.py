"""The work of `tatami quantize`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import msgspec
import onnx

from tatami.cli.terminal import printable
from tatami.core.diagnostic import fail
from tatami.core.files.array_file import UNREADABLE, ArrayArchive, read_array_file, reason
from tatami.quantization.api import quantize
from tatami.quantization.settings import MODES


class Options(msgspec.Struct, frozen=True):
    """The options of `tatami quantize`, by their names there."""

    output: str
    mode: str | None
    calibration: tuple[str, ...]
    block: int | None
    form: str | None
    accuracy_level: int | None
    ranges: str | None
    percentile: float | None
    exclude: tuple[str, ...]
    sensitivity: bool


def quantize_command(model: str, given: Mapping[str, object]) -> None:
    """Write the quantised model, and print its layers. Raises TatamiError."""
    options = msgspec.convert(given, Options)
    output = Path(options.output)
    if Path(model).resolve() == output.resolve():
        raise fail("FileUnwritable", str(output)[:200], "it is the model itself", "name another file")
    samples = [_sample(Path(name)) for name in options.calibration] or None
    default = "int8" if samples is None else "static"
    chosen = dict(MODES[options.mode or default])
    for field in ("block", "form", "accuracy_level", "ranges", "percentile"):
        value = getattr(options, field)
        if value is not None:
            chosen[field] = value
    made = quantize(model, chosen, samples, sensitivity=options.sensitivity, exclude=options.exclude)
    made.save(output)
    click.echo(printable(made.table()))
    size, whole = _size(output), _size(Path(model))
    click.echo(printable(f"wrote {output}: {size / 1e6:.1f} MB, {size / whole:.2f} of the model"))


def _size(path: Path) -> int:
    """Bytes of a model's file and of those that have its constants."""
    model = onnx.load_model(str(path), load_external_data=False)
    others = {e.value for t in model.graph.initializer for e in t.external_data if e.key == "location"}
    return sum((path.parent / name).stat().st_size for name in (path.name, *others))


def _sample(path: Path) -> object:
    """One sample of calibration: the arrays of an .npz by the names of inputs, or the array of an .npy."""
    try:
        if path.suffix.lower() == ".npy":
            return read_array_file(path)
        with ArrayArchive(path) as archive:
            return {name: archive.read(name) for name in archive.names}
    except UNREADABLE as error:
        raise fail("FileUnreadable", str(path)[:200], reason(error), "save inputs with numpy.savez or numpy.save") from None
