"""The text of a compiled program (`compilation.StoredProgram`).

`program_record` writes it and `read_record` reads it; a constant that the model has too is named by its content only, and one that was derived from such a constant by its derivation. The program cache keeps such texts by the content of the model; a `.tatami` file holds one
next to the model's documents. No text holds code: the shared object is found by its hash and checked when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeGuard

import msgspec

from tatami.compilation import StoredProgram
from tatami.core.codec import decode_record, encode_record
from tatami.core.diagnostic import Diagnostic
from tatami.core.document import ConstantRef, embed_constant, load_constant
from tatami.core.module import Module
from tatami.core.numbers.derived import Derivation, DerivedTensor
from tatami.core.tensor import Tensor
from tatami.execution.ir import ExecutionPlan


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text form of a program. `library`: key of the shared object. A constant without data is one of the model, or is
    `derived` from one."""

    programs: dict[str, ExecutionPlan]
    constants: dict[str, ConstantRef]
    library: str
    warnings: tuple[Diagnostic, ...] = ()
    derived: dict[str, Derivation] = {}


def program_record(program: StoredProgram, of_model: Iterable[Tensor]) -> bytes | None:
    """The program as text; None for a program that would not be read back equal."""
    model = {t.sha256: t for t in of_model}
    constants = program.execution.constants
    derived = {n: t.derivation for n, t in constants.items() if _is_derived(t, model)}
    refs = constant_refs(constants, [*model.values(), *(constants[n] for n in derived)])
    record = Record(dict(program.execution.programs), refs, program.library_key, program.warnings, derived)
    text = encode_record(record)
    try:
        return text if decode_record(text, Record) == record else None
    except ValueError:  # an expression longer than documents may have
        return None


def read_record(text: bytes) -> Record:
    """The record in a text. Raises ValueError for any other text."""
    return decode_record(text, Record)


def execution_of(record: Record, of_model: Mapping[str, Tensor]) -> Module[ExecutionPlan] | None:
    """The module with its constants; None if the model lacks one."""
    known = dict(of_model)
    for name, derivation in record.derived.items():
        ref, sources = record.constants.get(name), [t for s in derivation.sources if (t := of_model.get(s)) is not None]
        if ref is None or len(sources) < len(derivation.sources):
            return None
        known[ref.sha256] = DerivedTensor.again(sources, derivation, (ref.dtype, ref.shape, ref.sha256))
    constants = constants_of_refs(record.constants, known)
    return None if constants is None else Module(record.programs, constants)


def _is_derived(tensor: Tensor, model: Mapping[str, Tensor]) -> TypeGuard[DerivedTensor]:
    return isinstance(tensor, DerivedTensor) and tensor.sha256 not in model and model.keys() >= set(tensor.derivation.sources)


def constant_refs(constants: Mapping[str, Tensor], of_model: Iterable[Tensor]) -> dict[str, ConstantRef]:
    """Name -> reference: constants that the model has by their sha256, the others with their data."""
    known = {t.sha256 for t in of_model}
    return {
        n: ConstantRef(t.dtype, t.shape, t.sha256) if t.sha256 in known else embed_constant(t) for n, t in constants.items()
    }


def constants_of_refs(refs: Mapping[str, ConstantRef], of_model: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """Name -> constant, those of the model found by their sha256; None if it lacks one."""
    constants: dict[str, Tensor] = {}
    for name, ref in refs.items():
        found = of_model.get(ref.sha256)
        if found is None and not ref.data and 0 not in ref.shape:
            return None
        constants[name] = load_constant(name, ref, None) if found is None else found
    return constants
