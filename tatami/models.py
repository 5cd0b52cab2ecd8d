"""Opening of any model: a file, a document, a graph, a model object. Importers are found by suffix or type, never imported here.

The result is the stages that the model has: ``{"frontend": Module}`` for a model, the document's own stage (and those it
embeds) for a document.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tatami.core.codec import parse_text
from tatami.core.diagnostic import Diagnostic, TatamiError, fail
from tatami.core.document import changed_input, check_file, is_document, parse_document, read_bytes, sha256_of
from tatami.core.faults.arguments import bool_argument
from tatami.core.files.data_files import ModelFile, read_model
from tatami.core.module import Module
from tatami.core.sizes.binding import PartialShape
from tatami.stages import STAGES
from tatami.storage.dump import from_document, own_stage
from tatami.storage.import_cache import import_file

if TYPE_CHECKING:
    from tatami.frontend.ir import Graph

Given = dict[str, Module[Any]]

BY_SUFFIX: dict[str, str] = {
    ".harp": "tatami.harp.load:load_file",
    ".gguf": "tatami.gguf.load:load_file",
}
"""Suffix of a file -> importer of its path."""
OF_ONNX = "tatami.onnx.load:load_file"
"""The importer of the bytes of an .onnx file, whose modules are cached by content (`storage/import_cache.py`)."""
OF_PROTO = "tatami.onnx.load:load_model"
"""The importer of an onnx.ModelProto."""
CHECKERS: dict[str, str] = {".onnx": "tatami.onnx.check:check_file"}
"""Suffix -> further checks of `tatami check`: (file, path) -> (faults, repairs that an import makes)."""
BY_TYPE: dict[str, str] = {
    "onnx.onnx_ml_pb2.ModelProto": OF_PROTO,
    "onnx.onnx_pb2.ModelProto": OF_PROTO,
    "torch.nn.modules.module.Module": "tatami.torch.load:load_module",
    "torch.export.exported_program.ExportedProgram": "tatami.torch.load:load_exported",
}
"""Type of a model object -> its importer."""
SOURCE = "tatami.onnx.source:OnnxSource"
"""The class of a model that can be imported again for the sizes of a call."""
BY_KEY: dict[str, tuple[str, str]] = {
    "uops": ("tiny@imported", "tatami.tiny.load:load"),
    "region": ("region@explicit", "tatami.region.load:load"),
    "regions": ("region@explicit", "tatami.region.load:load"),
    "graph": ("frontend", "tatami.frontend.load:load"),
}
"""Top-level key of a document without an envelope (the spec's own) -> (stage, loader)."""
_ONLY_DUMPS = ("index_book", "poly_view", "analysis", "gpu_ir", "diagnostics")


class ImportedModel(Protocol):
    """A module, and the places of the model's inputs and outputs in its flat signature."""

    @property
    def module(self) -> Module[Graph]:
        """The module of the model, specialised for a call."""

    @property
    def inputs(self) -> Mapping[str, object]:
        """Input of the model -> how its value enters the program."""

    @property
    def outputs(self) -> tuple[object, ...]:
        """How the model's outputs are made from the program's results, in order."""

    @property
    def fixed(self) -> Mapping[str, object]:
        """Input of the model -> value that the module is specialised on."""


class Source(Protocol):
    """A model that can be imported for the sizes and values of one call (`tatami.onnx.source`)."""

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs that a caller passes."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the model's outputs, in order."""

    @property
    def overrides(self) -> frozenset[str]:
        """Constants of the model that are inputs of its programs."""

    @property
    def has_open_sizes(self) -> bool:
        """True if the model leaves a size of an input open."""

    @property
    def overridable(self) -> frozenset[str]:
        """Constants of the model that a caller may replace by an array."""

    def overriding(self, names: frozenset[str]) -> Source:
        """The source in which these constants are inputs."""

    def imported(
        self,
        fixed: Mapping[str, object] | None = None,
        shapes: Mapping[str, PartialShape] | None = None,
        sizes: Mapping[str, int] | None = None,
        reads_sizes: bool = True,
    ) -> ImportedModel:
        """The module for values `fixed`, `shapes` of other inputs (None: a size stays open) and values `sizes` of symbols. Raises TatamiError."""

    @property
    def file(self) -> ModelFile | None:
        """The model's file; None for a model in memory. Raises TatamiError."""

    def resume(self, error: TatamiError) -> None:
        """Take over what an import of the same model had read when it failed with this error."""

    def record(self, imported: object, /) -> bytes | None:
        """The import without its module, as text that `recorded` reads; None if it depends on a call."""

    def recorded(self, text: bytes, module: Module[Graph]) -> ImportedModel:
        """The import of that text with its module. Raises ValueError."""

    def naming(self, names: Collection[str]) -> Module[Graph]:
        """The module in which each constant of `names` has that name and stands for itself alone."""

    def decisive(self, error: TatamiError) -> set[str]:
        """Inputs whose values the import needs, according to its error."""

    def may_serve_some_size(self, error: TatamiError) -> bool:
        """True if a program for some sizes or values may exist although the import for all of them failed with this error."""

    def arguments_of(self, imported: Any, inputs: Mapping[str, object], /) -> tuple[dict[str, object], Any]:
        """(port -> array of the program, everything that `results_of` needs to know of this call)."""

    def results_of(self, imported: Any, results: Mapping[str, object], call: Any, /) -> tuple[object, ...]:
        """The outputs of the model, in its order, from the program's results."""


def open_model(
    model: object, *, example_inputs: object = None, dynamic_shapes: object = None, trust: bool = False, compare: bool = False
) -> Given:
    """Stage -> module, for the stages that `model` has; `compare`: see open_folder. Raises TatamiError."""
    bool_argument(trust, "trust")
    is_own = isinstance(model, Module | dict) or type(model).__module__.startswith("tatami.")
    suffix = Path(model).suffix.lower() if isinstance(model, str | Path) else ".onnx"
    if dynamic_shapes is not None and (is_own or isinstance(model, str | Path | bytes | bytearray | memoryview)):
        why = "open sizes of a torch module are said by them; this model says its own"
        raise fail("InvalidAttribute", "dynamic_shapes", why, "leave them out")
    if example_inputs is not None and (is_own or suffix != ".onnx"):
        why = "they decide constant inputs of an ONNX model, or are what a torch module is exported with"
        raise fail("InvalidAttribute", "example_inputs", why, "leave them out")
    if isinstance(model, Module):
        return {"frontend": model}
    if hasattr(model, "module") and type(model).__module__.startswith("tatami."):
        return {"frontend": model.module()}
    if isinstance(model, bytes | bytearray | memoryview):
        return {"frontend": import_file(ModelFile("bytes", bytes(model)), OF_ONNX, _function, example_inputs)}
    if isinstance(model, str | Path | dict):
        if isinstance(model, dict):
            return open_json(model, None, trust=trust, at="document")
        return open_file(Path(model), example_inputs, trust=trust, compare=compare)
    for base in type(model).__mro__:
        loader = BY_TYPE.get(f"{base.__module__}.{base.__qualname__}")
        if loader is not None:
            load = _function(loader)
            if dynamic_shapes is not None:
                return {"frontend": load(model, example_inputs, dynamic_shapes)}
            return {"frontend": load(model) if example_inputs is None else load(model, example_inputs)}
    raise fail(
        "UnknownFormat",
        type(model).__name__,
        "this kind of object is not a model",
        "pass a path (.onnx, .json), the bytes of an .onnx file, a tt.Graph, a document, an onnx.ModelProto or a torch.nn.Module",
    )


def find_source(model: object) -> Source | None:
    """The importer of the model for the sizes of one call; None if only one module can be made from it."""
    if isinstance(model, bytes | bytearray | memoryview):
        return _function(SOURCE)(ModelFile("bytes", bytes(model)))
    if isinstance(model, str | Path):
        return _function(SOURCE)(Path(model)) if Path(model).suffix.lower() == ".onnx" else None
    is_proto = any(BY_TYPE.get(f"{b.__module__}.{b.__qualname__}") == OF_PROTO for b in type(model).__mro__)
    return _function(SOURCE)(model) if is_proto else None


def open_folder(folder: Path, *, trust: bool, compare: bool = False) -> Given:
    """All stages of a dump, each from its file. Code documents are left out unless trusted. `compare`: an edited document is
    compared with the documents that were made from it before the edit; else it is refused, since those would run instead."""
    given: Given = {}
    hashes: dict[str, tuple[str, str]] = {}
    for s in STAGES:
        for path in sorted(folder.glob(f"*_{s.file_stem}.json")):
            if not s.code or trust:
                data = read_bytes(path)
                document = parse_document(parse_text(data, path.name), path.name)
                for name, ref in document.inputs.items():
                    if not compare and name in hashes and ref.document is None and hashes[name][1] != ref.sha256:
                        raise changed_input(f"{path.name}.inputs.{name}", *hashes[name])
                given[s.name] = own_stage(document, folder, path.name, trust=trust)
                hashes[s.name] = (path.name, sha256_of(data))
    if not given:
        raise fail(
            "FileUnreadable", str(folder), "the folder holds no dump", "give a folder written by tatami compile --dump=all"
        )
    return given


def open_file(path: Path, example_inputs: object = None, *, trust: bool, compare: bool = False) -> Given:
    """The stages in a file, by its suffix. Raises TatamiError."""
    try:
        return _open_file(path, example_inputs, trust, compare)
    except (OSError, ValueError) as error:  # a name the system cannot take: too long, or with a null in it
        why = getattr(error, "strerror", None) or str(error)
        raise fail("FileUnreadable", str(path)[:200], why, "check the path") from None


def _open_file(path: Path, example_inputs: object, trust: bool, compare: bool) -> Given:
    if path.is_dir():
        return open_folder(path, trust=trust, compare=compare)
    suffix = path.suffix.lower()
    if suffix == ".tatami":
        from tatami.storage.tatami_file import open_saved

        return open_saved(path, trust=trust).given
    loader = BY_SUFFIX.get(suffix)
    if loader is not None:
        check_file(path)
        return {"frontend": _function(loader)(path, trust=trust)}
    if suffix == ".onnx":
        check_file(path)
        return {"frontend": import_file(read_model(path), OF_ONNX, _function, example_inputs)}
    if suffix == ".json":
        return open_json(parse_text(read_bytes(path), path.name), path.parent, trust=trust, at=path.name)
    if path.is_dir() or not (suffix or path.exists()):
        check_file(path)
    raise fail(
        "UnknownFormat",
        path.name,
        f"files with the suffix {path.suffix!r} are not models",
        f"the suffixes are {', '.join([*BY_SUFFIX, '.onnx', '.json', '.tatami'])}",
    )


def check_format(path: Path) -> tuple[list[Diagnostic], tuple[Any, ...]]:
    """(findings of the checker of the file's format, repairs of an import); empty if there is no checker."""
    name = CHECKERS.get(path.suffix.lower())
    if name is None or not path.is_file():
        return [], ()
    faults, repairs = _function(name)(read_model(path), path)
    return faults, repairs


def open_json(value: object, folder: Path | None, *, trust: bool, at: str) -> Given:
    """The stages in a document given as JSON values; `at` names it in diagnostics. Raises TatamiError."""
    if is_document(value):
        return from_document(parse_document(value, at), folder, trust=trust, at=at)
    if isinstance(value, dict):
        for key, (stage, loader) in BY_KEY.items():
            if key in value:
                return {stage: _function(loader)(value, trust=trust) if stage == "frontend" else _function(loader)(value)}
        for key in _ONLY_DUMPS:
            if key in value:
                raise fail(
                    "InvalidDocument",
                    at,
                    f"a bare {key!r} document does not say what program it belongs to",
                    "give the document of a dump (with its envelope), which names the earlier stage it needs",
                )
        if "tile" in value:
            raise fail(
                "InvalidDocument", at, "this is a plan, not a model", "pass it with --decisions, and a model as the argument"
            )
    raise fail(
        "InvalidDocument",
        at,
        "none of the top-level keys of a document is there",
        f"a document has an envelope (tatami, stage, programs) or one of the keys {', '.join(BY_KEY)}",
    )


def _function(name: str) -> Callable[..., Any]:
    module, attribute = name.split(":")
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if missing.startswith("tatami"):
            raise fail(
                "UnknownFormat", module, "this importer is not part of this version", "export the model to ONNX"
            ) from None
        extra = module.split(".")[1]
        raise fail(
            "MissingPackage", missing, f"the package {missing!r} is not installed", f'pip install "tatami[{extra}]"'
        ) from None
    function: Callable[..., Any] = getattr(loaded, attribute)
    return function
