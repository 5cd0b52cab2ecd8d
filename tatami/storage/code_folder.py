"""The files that `tatami compile` writes into a folder: the generated code, a main that checks it, the decisions.

They follow from the model and the settings, so they are cached by their content, like compiled programs (`program_cache`): a
second command makes no stage. Constants of the model are named, not kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tatami.compilation import Compilation, decisions_of
from tatami.core.codec import decode_record, encode_record
from tatami.core.diagnostic import Diagnostic, TatamiError
from tatami.core.document import ConstantRef
from tatami.core.tensor import Tensor
from tatami.decisions import decisions_text
from tatami.observer import explained
from tatami.runtime.building.cache import content_key, default_cache
from tatami.storage.program_cache import chain_parts, constants_of, is_on
from tatami.storage.program_record import constant_refs, constants_of_refs

if TYPE_CHECKING:
    from tatami.runtime.stand_alone import StandAlone


@dataclass(frozen=True)
class Printed:
    """The files of one compilation. `texts`: file -> text. `constants`: contents of `constants.bin`, in order. `no_main`: the
    reason why there is no main that checks."""

    texts: Mapping[str, str]
    constants: Mapping[str, Tensor]
    warnings: tuple[Diagnostic, ...]
    no_main: str = ""

    def files(self) -> Iterator[tuple[str, Sequence[bytes | memoryview]]]:
        """(file, its bytes in pieces) for each file."""
        yield from ((name, [text.encode()]) for name, text in self.texts.items())
        if self.constants:
            yield "constants.bin", [t.data for t in self.constants.values()]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The entry of one compilation in the cache."""

    texts: dict[str, str]
    constants: dict[str, ConstantRef]
    warnings: tuple[Diagnostic, ...]
    no_main: str


def printed_program(compilation: Compilation, sizes: Mapping[str, int]) -> Printed:
    """The files of a compilation, from the cache, else printed and added to it. `sizes`: for the run that the main repeats."""
    if not is_on():
        return print_program(compilation, sizes)
    cache = default_cache()
    key = content_key(["printed", encode_record(dict(sizes)), *chain_parts(compilation)])
    of_model = constants_of(compilation)
    found = _read(cache.get(key), of_model)
    if found is None:
        found = print_program(compilation, sizes)
        refs = constant_refs(found.constants, of_model.values())
        cache.put(key, encode_record(Record(dict(found.texts), refs, found.warnings, found.no_main)))
    return found


def _read(text: bytes | None, of_model: Mapping[str, Tensor]) -> Printed | None:
    """The files in an entry; None for a miss, or for an entry of another form."""
    if text is None:
        return None
    try:
        record = decode_record(text, Record)
    except ValueError:
        return None
    constants = constants_of_refs(record.constants, of_model)
    return None if constants is None else Printed(record.texts, constants, record.warnings, record.no_main)


def print_program(compilation: Compilation, sizes: Mapping[str, int]) -> Printed:
    """The files of a compilation, made through all stages. `sizes`: for the run that the main repeats."""
    compilation.values()
    texts = code_texts(compilation)
    main, no_main = None, ""
    try:
        with explained("execution", compilation.observer.from_document):
            main = stand_alone(compilation, sizes)
    except TatamiError as error:
        kind, why = error.diagnostics[0].kind, error.diagnostics[0].why
        if kind != "MeaningMissing" and (sizes or kind != "AxisAlignmentMismatch"):
            raise
        no_main = why if kind == "MeaningMissing" else f"{why}; give sizes: -D NAME=VALUE"
    constants: dict[str, Tensor] = {}
    if main is not None:
        texts[main.file] = main.text
        constants = {n: compilation.stages["execution"].constants[n] for n in main.constants}
    texts["decisions.json"] = decisions_text(decisions_of(compilation.stages))
    return Printed(texts, constants, tuple(compilation.program_warnings()), no_main)


def code_texts(compilation: Compilation) -> dict[str, str]:
    """File -> generated code, of the code stage that the target has."""
    if "c" in compilation.stages:
        from tatami.c.files import source_files

        return source_files(compilation.stages["c"].main)
    if "cu" in compilation.stages:
        from tatami.cu.files import source_files as cuda_files

        return cuda_files(compilation.stages["cu"].main)
    return {}


def stand_alone(compilation: Compilation, sizes: Mapping[str, int]) -> StandAlone | None:
    """A main for code that needs no Python between kernels; None if it does."""
    if "c" not in compilation.stages and "cu" not in compilation.stages:
        return None
    execution = compilation.stages["execution"]
    from tatami.execution.frames import Layouts
    from tatami.plan.usual_sizes import least_sizes
    from tatami.runtime.stand_alone import sizes_of_case, stand_alone_cuda_main, stand_alone_main

    if Layouts(execution).hosted:
        return None
    cases = sizes_of_case(execution.main.signature, sizes, least_sizes(compilation.stages["region"].main))
    if "cu" in compilation.stages:
        return stand_alone_cuda_main(compilation.stages["cu"].main, execution, compilation.reference_run, cases)
    return stand_alone_main(execution, compilation.reference_run, cases)
