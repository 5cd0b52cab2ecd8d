"""A cache of imports of models whose inputs or outputs are words or maps, found by the file's bytes.

Such a model has no module alone: at each call words become codes, and maps arrays. An entry holds the module as
`import_cache` does, and the text by which the source makes the import of it again. An import of one call's values or sizes is
not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from tatami.core.codec import decode_record, encode_record
from tatami.runtime.building.cache import content_key, default_cache
from tatami.storage.import_cache import Record, find_constants, module_of, record_of
from tatami.storage.program_cache import is_on, own_files

if TYPE_CHECKING:
    from tatami.core.files.data_files import ModelFile
    from tatami.models import ImportedModel, Source


class SourceRecord(msgspec.Struct, frozen=True):
    """The entry of one import: its module, and the text of the rest, which the source writes and reads."""

    record: Record
    rest: bytes


def import_source(
    source: Source, sizes: Mapping[str, int], reads_sizes: bool, make: Callable[[], ImportedModel]
) -> ImportedModel:
    """The import that `make` makes of a model for these sizes, from the cache, else made and added to it."""
    file = source.file if is_on() else None
    if file is None:
        return make()
    cache = default_cache()
    key = content_key(["imported for calls", own_files(), encode_record(dict(sizes)), str(reads_sizes), file.data])
    text = cache.get(key)
    found = None if text is None else _read(text, file, source)
    if found is not None:
        return found
    made = make()
    rest = source.record(made)
    record = None if rest is None else record_of(made.module, file, find_constants(made.module, file))
    if rest is not None and record is not None:
        cache.put(key, encode_record(SourceRecord(record, rest)))
    return made


def _read(text: bytes, file: ModelFile, source: Source) -> ImportedModel | None:
    """The import of an entry; None if the entry has another form, or if a file has changed."""
    try:
        entry = decode_record(text, SourceRecord)
        module = module_of(entry.record, file)
        return None if module is None else source.recorded(entry.rest, module)
    except ValueError:
        return None
