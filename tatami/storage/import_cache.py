"""A cache of imports: the frontend module of a model file, found by the file's bytes.

An importer needs its file format's packages and looks at every node; a second process needs neither. The entry's key is
the content of the model's file with the stamp of Tatami's own files; the entry lists all other bytes that were read, with
hashes, and holds the graph. Constants are not kept a second time: the entry says where in those files their bytes lie, and
holds only the others. Anything missing or different is a miss, and the importer runs as if there were no cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from math import prod
from pathlib import Path

import msgspec

from tatami.core.codec import decode_record, encode_record
from tatami.core.diagnostic import Diagnostic, TatamiError
from tatami.core.document import ConstantRef, embed_constant, load_constant
from tatami.core.dtype import DType
from tatami.core.files.data_files import DataFiles, ModelFile, read_part
from tatami.core.module import Module
from tatami.core.numbers.words import packed, unpacked
from tatami.core.tensor import Tensor
from tatami.frontend.ir import Graph
from tatami.runtime.building.cache import Cache, content_key, default_cache
from tatami.storage.program_cache import is_on, own_files

Importer = Callable[..., Module[Graph]]
"""importer(file) or importer(file, example_inputs)."""

_SMALL = 256
"""Maximum bytes of a constant that an entry holds itself, without a search in the files."""
_LARGE = 64 << 10
"""Minimum bytes of a constant whose memory is freed after the import, to be read again at first use."""
_FRUITLESS = 16
"""Number of constants that may be found nowhere before the rest is held without a search, which reads the whole file."""
_PROBE = 64
"""Bytes of a constant's beginning that are searched for, and how often they may turn out to be other data."""
_PROBES = 8
"""Bytes of a constant's beginning that are looked for, and how often they may be those of something else."""
_HELD = 16 << 20
"""Bytes of constants that every entry may hold."""


def _held(file: ModelFile) -> int:
    """Maximum bytes of constants in an entry; a module with more is not kept. Trees become tables of half their file's size."""
    return max(_HELD, len(file.data))


class Read(msgspec.Struct, frozen=True):
    """Bytes of another file that the import read: place and hash."""

    location: str
    first: int
    size: int
    sha256: str


class Constant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A constant of an entry: its bytes are in `ref`, or begin at `first` of the file `location` (empty: the model's own). In a
    file two elements of 4 bits are in a byte."""

    ref: ConstantRef
    first: int = -1
    location: str = ""

    @property
    def is_packed(self) -> bool:
        """True if the file has two elements in a byte."""
        return self.ref.dtype in (DType.i4, DType.u4)

    @property
    def size(self) -> int:
        """Number of bytes in the file."""
        count = prod(self.ref.shape)
        return -(-count // 2) if self.is_packed else self.ref.dtype.itemsize * count

    def content(self, data: bytes) -> bytes:
        """The constant's bytes from those of the file."""
        return unpacked(data, prod(self.ref.shape)) if self.is_packed else data


class Record(msgspec.Struct, frozen=True):
    """The entry of one module in the cache."""

    programs: dict[str, Graph]
    origins: dict[str, dict[str, tuple[str, ...]]]
    constants: dict[str, Constant]
    reads: tuple[Read, ...]
    warnings: tuple[Diagnostic, ...] = ()
    overridable: tuple[str, ...] = ()


def import_file(file: ModelFile, name: str, find_importer: Callable[[str], Importer], example_inputs: object) -> Module[Graph]:
    """The module of a file, from the cache, else imported by the importer of that name and added to the cache."""
    if example_inputs is not None:
        return find_importer(name)(file, example_inputs)
    if not is_on():
        return find_importer(name)(file)
    cache = default_cache()
    key = content_key(["imported", own_files(), name, file.data])
    text = cache.get(key)
    module = None if text is None else _read(text, file)
    if module is None:
        module = _imported(file, find_importer(name), cache, content_key(["of words", own_files(), name, file.data]))
        found = find_constants(module, file)
        record = _record(module, file, found)
        if record is not None:
            cache.put(key, record)
        if file.beside is not None:
            for constant, place in found.items():
                tensor = module.constants[constant]
                tensor.read_again_by(_reader(constant, place, file.beside.folder, file.name))
                if tensor.nbytes >= _LARGE:
                    tensor.release()  # read again at first use
    return module


class Refusal(msgspec.Struct, frozen=True):
    """The entry of a model that has no module alone: its inputs or outputs are words or maps."""

    diagnostics: tuple[Diagnostic, ...]


def _imported(file: ModelFile, importer: Importer, cache: Cache, key: str) -> Module[Graph]:
    """The importer's module. Raises its error, which for words and maps is found again under `key`."""
    text = cache.get(key)
    if text is not None:
        with suppress(ValueError):
            raise TatamiError(*decode_record(text, Refusal).diagnostics)
    try:
        return importer(file)
    except TatamiError as error:
        if any("forms" in d.details for d in error.diagnostics):
            cache.put(key, encode_record(Refusal(error.diagnostics)))
        raise


def _read(text: bytes, file: ModelFile) -> Module[Graph] | None:
    """The module of an entry; None if the entry has another form, or if a file has changed."""
    try:
        record = decode_record(text, Record)
    except ValueError:
        return None
    return module_of(record, file)


def module_of(record: Record, file: ModelFile) -> Module[Graph] | None:
    """The module of a record; None if a file has changed."""
    try:
        for r in record.reads:
            if file.beside is None:
                return None
            file.beside.read("", r.location, r.first, r.size)
            if file.beside.reads[r.location, r.first, r.size] != r.sha256:
                return None
    except (ValueError, TatamiError, OSError):  # the importer reports the fault of a file
        return None
    constants = {n: _tensor(n, c, file) for n, c in record.constants.items()}
    return Module(record.programs, constants, record.origins, record.warnings, record.overridable)


def _tensor(name: str, constant: Constant, file: ModelFile) -> Tensor:
    ref = constant.ref
    if constant.first < 0:
        return load_constant(name, ref, None)
    first, location, size = constant.first, constant.location, constant.size
    if file.beside is None:
        part = memoryview(file.data)[first : first + size]
        content = constant.content(bytes(part)) if constant.is_packed else part
        return Tensor.of_bytes(content, ref.dtype, ref.shape, ref.sha256)
    data = None if location or constant.is_packed else file.data[first : first + size]
    return Tensor.in_a_file(ref.dtype, ref.shape, ref.sha256, _reader(name, constant, file.beside.folder, file.name), data)


def _reader(name: str, constant: Constant, folder: Path, file: str) -> Callable[[], bytes]:
    """A function that reads the bytes of a constant from a model's file, or from another one in its folder."""
    first, size = constant.first, constant.size

    def reload() -> bytes:
        if constant.location:
            return constant.content(DataFiles(folder).read(name, constant.location, first, size))
        return constant.content(read_part(folder / file, first, size))

    return reload


def find_constants(module: Module[Graph], file: ModelFile) -> dict[str, Constant]:
    """The constants whose bytes are in a file, with their places."""
    reads = {} if file.beside is None else {hashed: place for place, hashed in file.beside.reads.items()}
    out: dict[str, Constant] = {}
    fruitless = end = 0
    for name, tensor in module.constants.items():
        ref = ConstantRef(tensor.dtype, tensor.shape, tensor.sha256)
        data = packed(tensor.array) if Constant(ref).is_packed else tensor.data
        place = reads.get(sha256(data).hexdigest()) if reads else None
        if place is not None:
            out[name] = Constant(ref, place[1], place[0])
        elif len(data) >= _SMALL and fruitless < _FRUITLESS:
            first = _find(file.data, data, end)  # constants mostly lie in the order in which they are named
            first = first if first >= 0 else _find(file.data, data, 0)
            if first >= 0:
                end = first + len(data)
                out[name] = Constant(ref, first)
            fruitless += first < 0
    return out


def _find(inside: bytes, data: bytes | memoryview, start: int) -> int:
    """Position of the first occurrence of the bytes, -1 if there is none. Searched by their beginning, which is faster than by
    all."""
    probe, view = bytes(data[:_PROBE]), memoryview(inside)
    first = start - 1
    for _ in range(_PROBES):
        first = inside.find(probe, first + 1)
        if first < 0 or view[first : first + len(data)] == data:
            return first
    return inside.find(data, first)


def _record(module: Module[Graph], file: ModelFile, found: Mapping[str, Constant]) -> bytes | None:
    """The entry as text; None for a module that would not be read back equal, or that has too many bytes of its own."""
    record = record_of(module, file, found)
    if record is None:
        return None
    text = encode_record(record)
    try:
        return text if encode_record(decode_record(text, Record)) == text else None
    except ValueError:  # an expression longer than documents may have
        return None


def record_of(module: Module[Graph], file: ModelFile, found: Mapping[str, Constant]) -> Record | None:
    """The record of a module; None for one with too many bytes of its own."""
    held = {n: t for n, t in module.constants.items() if n not in found}
    if sum(len(t.data) for t in held.values()) > _held(file):
        return None
    constants = {n: found.get(n) or Constant(embed_constant(t)) for n, t in module.constants.items()}
    reads = file.beside.reads if file.beside is not None else {}
    read = tuple(Read(*place, hashed) for place, hashed in reads.items())
    origins = {p: {n: tuple(o) for n, o in by_id.items()} for p, by_id in module.origins.items()}
    return Record(dict(module.programs), origins, constants, read, module.warnings, module.overridable)
