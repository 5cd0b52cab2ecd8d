"""The report of `tatami check` on an ONNX file: every finding of `onnx.checker` with its shape inference, and the repairs of
an import. The import itself uses neither: it accepts every model that can be run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import onnx

from tatami.core.diagnostic import Diagnostic, TatamiError, diagnostic
from tatami.core.files.data_files import ModelFile
from tatami.onnx.files.order import graphs_of, words_of
from tatami.onnx.files.repair import Repair, repaired


def check_file(file: ModelFile, path: Path | None = None) -> tuple[list[Diagnostic], tuple[Repair, ...]]:
    """(faults that onnx.checker finds, repairs). `path`: the file on disk, for external data and sizes beyond one message."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(file.data)
        repairs = repaired(model).repairs
    except TatamiError:
        repairs = ()  # reported by the import
    except Exception:
        return [], ()
    found: dict[str, str] = {}
    for why, at in _findings(model, path):
        found.setdefault(why, at)  # the checker says of the model what it says of its part
    how = "correct the exporter, or the file; Tatami runs it where its import does not refuse it too"
    return [
        diagnostic("InvalidDocument", f"{file.name}: {at}", f"onnx.checker: {why}", how) for why, at in found.items()
    ], repairs


def _findings(model: onnx.ModelProto, path: Path | None) -> Iterator[tuple[str, str]]:
    """(fault, place) of each part of the model, checked one by one because the checker stops at its first fault."""
    context = onnx.checker.C.CheckerContext()
    context.opset_imports = {o.domain: o.version for o in model.opset_import}
    for port in (*model.graph.input, *model.graph.output):
        yield from _asked(lambda port=port: onnx.checker.check_value_info(port, context), str(port.name))  # type: ignore[misc]
    for tensor in model.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            yield from _asked(lambda tensor=tensor: onnx.checker.check_tensor(tensor, context), str(tensor.name))  # type: ignore[misc]
    for i, node in enumerate(model.graph.node):
        if not any(graphs_of(node)):
            yield from _asked(lambda node=node: onnx.checker.check_node(node, context), str(words_of(node, i)))  # type: ignore[misc]
    whole = model if path is None else str(path)
    yield from _asked(lambda: onnx.checker.check_model(whole, full_check=True), "model")


def _asked(check: Callable[[], object], at: str) -> Iterator[tuple[str, str]]:
    try:
        check()
    except Exception as error:  # errors of the checker, of the inference, and of the protobuf reader
        yield " ".join(str(error).split("\n\n")[0].split())[:400] or type(error).__name__, at
