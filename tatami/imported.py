"""Model files that were imported before: the frontend module found again by the bytes it was made of.

An importer needs its file format's packages and looks at every node; a second process needs neither. The entry's key is
the content of the model's file with the stamp of Tatami's own files; the entry lists what else was read, with hashes, and
holds the graph. Constants are not kept a second time: the entry says where in those files their bytes lie, and holds
only those that lie nowhere. Whatever is missing or differs is a miss, and the importer runs as if there were no cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from math import prod
from typing import Any

import msgspec

from tatami.core.codec import decode_record, encode_record
from tatami.core.data_files import DataFiles, ModelFile, read_part
from tatami.core.diagnostic import Diagnostic, TatamiError
from tatami.core.document import ConstantRef, embed_constant, load_constant
from tatami.core.module import Module
from tatami.core.tensor import Tensor
from tatami.frontend.ir import Graph
from tatami.program_cache import is_on, own_files
from tatami.runtime.cache import content_key, default_cache

Importer = Callable[..., Module[Graph]]
"""importer(file) or importer(file, example_inputs)."""

_SMALL = 256
"""Bytes that an entry rather holds itself than looks for."""
_LARGE = 64 << 10
"""Bytes of a constant from which on it is read again rather than kept, once it is imported."""
_FRUITLESS = 16
"""How many constants may be found nowhere before the rest is held without a look; a look reads the whole file."""
_HELD = 16 << 20
"""Bytes of constants above which a module is not kept."""


class Read(msgspec.Struct, frozen=True):
    """Bytes of another file that the import read."""

    location: str
    first: int
    size: int
    sha256: str


class Constant(msgspec.Struct, frozen=True, omit_defaults=True):
    """Its bytes stand in `ref`, or begin at `first` of a file: the model's own where `location` is empty."""

    ref: ConstantRef
    first: int = -1
    location: str = ""


class Record(msgspec.Struct, frozen=True):
    programs: dict[str, Graph]
    origins: dict[str, dict[str, tuple[str, ...]]]
    constants: dict[str, Constant]
    reads: tuple[Read, ...]
    warnings: tuple[Diagnostic, ...] = ()
    overridable: tuple[str, ...] = ()


def import_file(file: ModelFile, name: str, find_importer: Callable[[str], Importer], example_inputs: Any) -> Module[Graph]:
    """As an earlier import left it, else imported now, by the importer of that name, and kept."""
    if example_inputs is not None:
        return find_importer(name)(file, example_inputs)
    if not is_on():
        return find_importer(name)(file)
    cache = default_cache()
    key = content_key(["imported", own_files(), name, file.data])
    text = cache.get(key)
    module = None if text is None else _read(text, file)
    if module is None:
        module = find_importer(name)(file)
        record = _record(module, file)
        if record is not None:
            cache.put(key, encode_record(record))
            module = _in_files(module, record, file)
    return module


def _in_files(module: Module[Graph], record: Record, file: ModelFile) -> Module[Graph]:
    """The module whose large constants are in memory only while they are used, since they can be read again."""
    again = {n: c for n, c in record.constants.items() if c.first >= 0 and module.constants[n].nbytes >= _LARGE}
    return replace(module, constants={**module.constants, **{n: _in_file(n, c, file) for n, c in again.items()}})


def _read(text: bytes, file: ModelFile) -> Module[Graph] | None:
    """None where the entry is of another form, or where a file has changed."""
    try:
        record = decode_record(text, Record)
        for r in record.reads:
            if file.beside is None:
                return None
            file.beside.read("", r.location, r.first, r.size)
            if file.beside.reads[r.location, r.first, r.size] != r.sha256:
                return None
    except (ValueError, TatamiError, OSError):  # the importer says what is wrong with a file
        return None
    constants = {n: _tensor(n, c, file) for n, c in record.constants.items()}
    return Module(record.programs, constants, record.origins, record.warnings, record.overridable)


def _tensor(name: str, constant: Constant, file: ModelFile) -> Tensor:
    ref = constant.ref
    if constant.first < 0:
        return load_constant(name, ref, None)
    size = ref.dtype.itemsize * prod(ref.shape)
    if file.beside is None:
        own_bytes = memoryview(file.data)[constant.first : constant.first + size]
        return Tensor.of_bytes(own_bytes, ref.dtype, ref.shape, ref.sha256)
    return _in_file(name, constant, file, None if constant.location else file.data[constant.first : constant.first + size])


def _in_file(name: str, constant: Constant, file: ModelFile, data: bytes | None = None) -> Tensor:
    """The constant, read when its content is asked for; `data`: its content, where it is at hand."""
    assert file.beside is not None
    folder, location, first, ref = file.beside.folder, constant.location, constant.first, constant.ref
    size = ref.dtype.itemsize * prod(ref.shape)
    own = folder / file.name

    def reload() -> bytes:
        return DataFiles(folder).read(name, location, first, size) if location else read_part(own, first, size)

    return Tensor.in_a_file(ref.dtype, ref.shape, ref.sha256, reload, data)


def _record(module: Module[Graph], file: ModelFile) -> Record | None:
    """The entry; None for a module that its text would not give back, or that has too much of its own."""
    reads = file.beside.reads if file.beside is not None else {}
    places = {hashed: place for place, hashed in reads.items()}
    constants: dict[str, Constant] = {}
    held = fruitless = end = 0
    for name, tensor in module.constants.items():
        data = tensor.data
        ref = ConstantRef(tensor.dtype, tensor.shape, tensor.sha256)
        place = places.get(sha256(data).hexdigest())
        if place is not None:
            constants[name] = Constant(ref, place[1], place[0])
            continue
        first = -1
        if len(data) >= _SMALL and fruitless < _FRUITLESS:
            first = file.data.find(data, end)  # constants mostly lie in the order in which they are named
            first = first if first >= 0 else file.data.find(data)
            fruitless += first < 0
        if first >= 0:
            end = first + len(data)
            constants[name] = Constant(ref, first)
        else:
            held += len(data)
            constants[name] = Constant(embed_constant(tensor))
    origins = {p: {n: tuple(o) for n, o in by_id.items()} for p, by_id in module.origins.items()}
    read = tuple(Read(*p, hashed) for p, hashed in reads.items())
    record = Record(dict(module.programs), origins, constants, read, module.warnings, module.overridable)
    text = encode_record(record)
    try:
        return record if held <= _HELD and encode_record(decode_record(text, Record)) == text else None
    except ValueError:  # an expression longer than documents may have
        return None
