"""The setting up of a compilation: the model opened, specialised on given sizes, verified. Nothing is lowered yet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tatami.compilation import Compilation
from tatami.core.algebra.substitute import specialise
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import Diagnostic, TatamiError, fail, raise_errors
from tatami.core.expr import expr
from tatami.core.faults.arguments import sizes_argument
from tatami.core.module import Module
from tatami.core.signature import Signature, symbols
from tatami.core.sizes.binding import check_numbers
from tatami.core.target import Target
from tatami.decisions import Decisions, load_decisions
from tatami.frontend.specialise import specialise as specialise_frontend
from tatami.models import find_source, open_model
from tatami.observer import Observer, Progress, explained
from tatami.pipeline import compile_stages
from tatami.stages import verify
from tatami.storage.derived import check_derived
from tatami.targets import resolve_target

if TYPE_CHECKING:
    from tatami.storage.tatami_file import Saved

SizeRequest = int | tuple[int, int, int]
TargetRequest = str | Path | Target | dict[str, Any] | None


def prepare(
    model: object,
    *,
    example_inputs: object = None,
    dynamic_shapes: object = None,
    target: TargetRequest = None,
    sizes: Mapping[str, SizeRequest] | None = None,
    precision: str | None = None,
    decisions: Decisions | dict[str, object] | str | Path | None = None,
    trust: bool = False,
    compare: bool = False,
    check: bool = True,
    progress: Progress | None = None,
) -> Compilation:
    """Open a model and set up its chain of stages, without lowering anything. target: None for the machine that documents were
    made for, else this CPU. compare: stages of a dump's folder may have been edited independently, and are to be compared.
    Raises TatamiError."""
    if isinstance(model, str | Path) and Path(model).suffix.lower() == ".tatami":
        from tatami.storage.tatami_file import open_saved

        saved = open_saved(Path(model), trust=trust)
        found = prepare_saved(saved, target, sizes=sizes, precision=precision, decisions=decisions, check=check, trust=trust)
        found.observer.progress = progress
        return found
    try:
        given = open_model(model, example_inputs=example_inputs, dynamic_shapes=dynamic_shapes, trust=trust, compare=compare)
    except TatamiError as error:
        given, sizes = imported_for(model, sizes or {}, error)
    request = _Request(target, sizes or {}, precision, load_decisions(decisions), check, trust)
    made = _set_up(given, request, from_document=is_document(model))
    made.observer.progress = progress
    return made


def imported_for(
    model: object, sizes: Mapping[str, SizeRequest], error: TatamiError
) -> tuple[dict[str, Module[object]], Mapping[str, SizeRequest]]:
    """(the module of a model that cannot be imported for all sizes, imported for the sizes that are numbers; the other sizes).
    Raises `error` if that fails too."""
    fixed = {n: v for n, v in sizes.items() if isinstance(v, int)}
    source = find_source(model) if fixed else None
    if source is None:
        raise error
    try:
        module = source.imported(sizes=fixed).module
    except TatamiError:
        raise error from None
    return {"frontend": module}, {n: v for n, v in sizes.items() if n not in fixed}


def prepare_saved(
    saved: Saved,
    target: TargetRequest,
    *,
    sizes: Mapping[str, SizeRequest] | None = None,
    precision: str | None = None,
    decisions: Decisions | dict[str, object] | str | Path | None = None,
    check: bool = True,
    trust: bool = False,
) -> Compilation:
    """The compilation of a file that `f.save` wrote: its decisions and usual sizes hold unless others are given; its machine
    code is used if nothing else is requested of it."""
    was = saved.manifest
    decided = was.decisions if decisions is None else load_decisions(decisions)
    asked: Mapping[str, SizeRequest] = sizes or {n: (0, usual, usual) for n, usual in was.hints.items()}
    compilation = _set_up(saved.given, _Request(target, asked, precision, decided, check, trust), from_document=True)
    if not sizes and precision is None and decisions is None and compilation.target == was.target:
        compilation.program = saved.program
    return compilation


def prepare_edited(given: Mapping[str, Module[object]], like: Compilation, *, trust: bool = False) -> Compilation:
    """The compilation that goes on from stages of `like`, of which some were edited: for its target, with its decisions and usual
    sizes. They are verified and compared with their derivation as documents are. Raises TatamiError."""
    usual: dict[str, SizeRequest] = {n: (0, value, value) for n, value in like.hints.items()}
    return _set_up(given, _Request(like.target, usual, None, like.decisions, True, trust), from_document=True)


def _refuse_broken_sizes(given: Mapping[str, Module[object]]) -> None:
    """Raise E1304 for conditions in the signature of `main` that these sizes do not meet."""
    for module in given.values():
        signature = getattr(module.programs.get("main"), "signature", None)
        if isinstance(signature, Signature) and (faults := check_numbers(signature)):
            raise TatamiError(*faults)


@dataclass(frozen=True)
class _Request:
    """A compilation's wishes besides the model."""

    target: TargetRequest
    sizes: Mapping[str, SizeRequest]
    precision: str | None
    decisions: Decisions
    check: bool
    trust: bool


def _set_up(models: Mapping[str, Module[Any]], request: _Request, *, from_document: bool) -> Compilation:
    precision, decisions, check, trust = request.precision, request.decisions, request.check, request.trust
    sizes = sizes_argument(request.sizes)
    resolved = resolve_target(_target_of(models) if request.target is None else request.target)
    if from_document:
        models = checked(models, resolved, trust)
    fixed = {n: expr(v) for n, v in sizes.items() if isinstance(v, int)}
    check_sizes(sizes, models)
    given = {n: (specialise_frontend if n == "frontend" else specialise)(m, fixed) for n, m in models.items()}
    if fixed:
        _refuse_broken_sizes(given)
    if precision not in (None, "fp32"):
        from tatami.frontend.rewrites.precision import lower_precision

        if "frontend" not in given:
            why = f"precision is chosen before lowering, and {next(iter(given))} is already lowered"
            raise fail("InvalidAttribute", "precision", why, "give the model or its frontend document, or leave precision out")
        given["frontend"] = lower_precision(given["frontend"], precision, resolved)
    observer = Observer(check=check, from_document=from_document)
    observer.of_model = [d for m in given.values() for d in m.warnings]
    hints = size_hints(sizes)
    stages = compile_stages(given, resolved, decisions, observer, hints)
    observer.others = stages.get_made
    observer.count = lambda: len(stages.names)
    for name, module in given.items():
        with explained(name, from_document):
            found = verify(name, module, lambda n: given.get(n))
        found = [with_origin(d, module) for d in found]
        raise_errors(found)
        observer.warnings += [d for d in found if d.is_warning]
    made = Compilation(stages, observer, resolved, decisions, hints)
    made.overridable = tuple(n for m in models.values() for n in m.overridable)
    return made


def _target_of(models: Mapping[str, Module[object]]) -> str | Target:
    """The machine that documents were made for, else this CPU. Raises UnknownTarget if they name several."""
    named: dict[str | Target, str] = {}
    for stage, module in models.items():
        if module.target:
            named.setdefault(module.target, stage)
    if len(named) > 1:
        stages = " and ".join(list(named.values())[:2])
        raise fail("UnknownTarget", "target", f"the documents of {stages} were made for different machines", "name a target")
    return next(iter(named), "cpu")


def is_document(model: object) -> bool:
    """True if the model is a document, or a folder of documents: somebody may have edited it."""
    if isinstance(model, dict):
        return True
    return isinstance(model, str | Path) and (Path(model).suffix.lower() == ".json" or Path(model).is_dir())


def checked(models: Mapping[str, Module[object]], target: Target | None, trust: bool) -> Mapping[str, Module[object]]:
    """Documents in the form in which they may be compiled: each verified, and compared with its derivation. `target`: None for
    the machine that they were made for."""
    with explained("document", True):
        for name, module in models.items():
            raise_errors([with_origin(d, module) for d in verify(name, module, models.get)])
        return check_derived(models, target or resolve_target(_target_of(models)), trust=trust)


def with_origin(d: Diagnostic, module: Module[object]) -> Diagnostic:
    """The diagnostic with the user's name of the node at fault, if the stage has ids of its own."""
    names = next((o[d.at] for o in module.origins.values() if d.at in o), ())
    if not names or names == (d.at,):
        return d
    return msgspec.structs.replace(d, at=f"{d.at} ({', '.join(names)})")


def check_sizes(sizes: Mapping[str, SizeRequest], given: Mapping[str, Module[object]]) -> None:
    """Raise InvalidSymbol for values that no array can have, UnboundSymbol for a name that the model does not have."""
    if not sizes:
        return
    for name, value in sizes.items():
        numbers = (value,) if isinstance(value, int) else tuple(value)
        if any(isinstance(v, int) and v >= 1 << 62 for v in numbers):
            raise fail("InvalidSymbol", f"sizes[{name!r}]", f"{value} is more than memory can hold", "give a smaller size")
    known = {n for m in given.values() for n in signature_symbols(m)}
    if sizes.keys() <= known:
        return
    words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_']*", " ".join(document_words(given))))
    for name in sizes:
        if name not in known and name not in words:
            have = ", ".join(sorted(known)) or "none"
            raise fail("UnboundSymbol", f"sizes[{name!r}]", "the model has no such size symbol", f"its symbols are {have}")


def signature_symbols(module: Module[object]) -> tuple[str, ...]:
    """The size symbols in the signature of `main`; empty for stages without one."""
    signature = getattr(module.programs.get("main"), "signature", None)
    return (*symbols(signature), *signature.must_bind, *signature.defaults) if signature is not None else ()


def document_words(given: Mapping[str, Module[object]]) -> list[str]:
    """All texts in the programs: sizes that no signature shows occur in one of them."""
    return [str(to_builtins(p)) for m in given.values() for p in m.programs.values()]


def size_hints(sizes: Mapping[str, SizeRequest]) -> dict[str, int]:
    """Symbol -> usual value, for symbols given as (least, usual, greatest): plans are chosen for it and hold for all."""
    hints: dict[str, int] = {}
    for name, request in sizes.items():
        if isinstance(request, int):
            continue
        if len(request) != 3 or not 0 <= request[0] <= request[1] <= request[2]:
            raise fail(
                "InvalidSymbol",
                f"sizes[{name!r}]",
                f"{request!r} is not (least, usual, greatest)",
                "write for example (1, 32, 512)",
            )
        hints[name] = request[1]
    return hints
