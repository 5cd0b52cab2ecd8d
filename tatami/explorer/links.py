"""The origins of each stage's things: the rules, one per stage.

    source       the model's own text: a line of .harp, an ONNX node, a line of Python
    frontend     its place there
    tiny         the node that it was lowered from, then the value of `tiny@imported`
    regions      the values that a let or a Region computes
    plan         the Region, and all its lets
    loop, gpu    a call: the plan of its Region; a kernel: its calls; a register: its kernel
    execution    an instruction: the call of its Region; a buffer: the let of its name
    c, cu        a file: the kernel of its symbol; a line: the register that it names first

Origins that the compiler keeps (`Module.origins`) go as far as Regions and lets. Behind them a kernel is one thing, since a
template writes it as a whole; what its loops name, the C text names alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tatami.core.module import Module
from tatami.explorer.ir import NOTHING
from tatami.explorer.things import Catalogue, Path
from tatami.region.ir import Program, Region
from tatami.stages import Stages

_NAME = re.compile(r"[A-Za-z_]\w*")
"""A name in C text: a register, a loop, a function."""
Rule = Callable[[Catalogue, Stages], None]


def link_all(things: Catalogue, stages: Stages) -> None:
    """Add the origins of the things of every stage that was added."""
    for stage, rule in RULES.items():
        if things.of(stage):
            rule(things, stages)


def _frontend(things: Catalogue, stages: Stages) -> None:
    origins = stages["frontend"].origins
    for (program, name), number in _named(things, "frontend"):
        found = origins.get(program, {}).get(name, ())
        things.link(number, (things.find("source", (place,)) for place in (*found, *map(line_of, found))))


def line_of(place: str) -> str:
    """`13` for the place `model.harp:13:23`; the place itself if it is none in a text."""
    parts = place.rsplit(":", 2)
    return parts[1] if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit() else place


def frontend_nodes(stages: Stages) -> Callable[[str, str], list[Path]]:
    """A function (program, name of a node after the rewrites of the frontend) -> nodes of `frontend`: those with the same
    origins in the importer's words, or else of the same name."""
    given = stages.get_made("frontend")
    if given is None:
        return lambda program, name: []
    after = next((v for n in ("filters", "linked") if (v := stages.get_made(n)) is not None), given)
    by_place: dict[str, list[Path]] = {}
    known: set[Path] = set()
    for program, graph in given.programs.items():
        origins = given.origins.get(program, {})
        for name in (*(n.name for n in graph.graph), *(i.tensor for i in graph.signature.inputs)):
            known.add((program, name))
            for place in origins.get(name, ()):
                by_place.setdefault(place, []).append((program, name))

    def find(program: str, name: str) -> list[Path]:
        now = after.origins.get(program, after.origins.get("main", {})).get(name, ())
        own = next(((p, name) for p in (program, "main") if (p, name) in known), None)
        if own is not None and (not now or set(now) == set(given.origins.get(own[0], {}).get(name, now))):
            return [own]
        found = dict.fromkeys(path for place in now for path in by_place.get(place, ()))
        if found:
            return list(found)
        stem = name.rsplit(".", 1)[0]  # a node that a rewrite made is named after the one it stands for
        return find(program, stem) if stem != name else []

    return find


def _imported(things: Catalogue, stages: Stages) -> None:
    module: Module[Any] = stages["tiny@imported"]
    find = frontend_nodes(stages)
    for (program, name), number in _named(things, "tiny@imported"):
        names = _origins(module, program).get(name, ())
        things.link(number, (things.find("frontend", path) for n in names for path in find(program, n)))


def _tiny(things: Catalogue, stages: Stages) -> None:
    module = stages["tiny"]
    for (program, name), number in _named(things, "tiny"):
        names = _origins(module, program).get(name, ())
        things.link(number, _either(things, "tiny@imported", program, names))


def _either(things: Catalogue, stage: str, program: str, names: Iterable[str]) -> Iterable[int]:
    """The things of these names in a program, or else in main, from which `setup` was split off."""
    for name in names:
        number = things.find(stage, (program, name))
        yield number if number != NOTHING else things.find(stage, ("main", name))


def _same_value(stage: str) -> Rule:
    def rule(things: Catalogue, stages: Stages) -> None:
        for (program, name), number in _named(things, stage):
            things.link(number, [things.find("tiny", (program, name))])

    return rule


def _regions(stage: str) -> Rule:
    def rule(things: Catalogue, stages: Stages) -> None:
        module = stages[stage]
        for of, number in things.of(stage).items():
            program, *inner = of
            origins = _origins(module, program)
            names = origins.get(".".join(inner)) or origins.get(inner[-1]) or (inner[-1],)
            things.link(number, (things.find("tiny", (program, n)) for n in names))
            if stage == "region":
                things.link(number, [things.find("region@explicit", of)])

    return rule


def _of_region(stage: str) -> Rule:
    def rule(things: Catalogue, stages: Stages) -> None:
        inside: dict[Path, list[int]] = {}
        for of, number in things.of("region").items():
            inside.setdefault(of[:2], []).append(number)
        for of, number in things.of(stage).items():
            things.link(number, inside.get(of[:2], ()))
            if stage == "plan":
                things.link(number, [things.find("poly_core", of)])

    return rule


def _kernels(stage: str) -> Rule:
    def rule(things: Catalogue, stages: Stages) -> None:
        module, realised = stages[stage], stages["realised"]
        read = {(p, r.name): r.inputs for p, body in realised.programs.items() for r in body.body if isinstance(r, Region)}
        ports = _ports(realised, stages["region"].main)
        for program, body in module.programs.items():
            for b in body.bindings:
                call = things.find(stage, (program, b.region))
                whole = b.region.split(".")[0]  # `r8.1` is a part of r8
                plan = max(things.find("plan", (program, r)) for r in (b.region, whole))
                made = _origins(realised, program).get(b.region, ())
                # packing, which no plan names and no node of the model, comes from what it reads
                values = [(program, n) for n in made] or [(program, i.name) for i in read.get((program, b.region), ())]
                things.link(call, [plan] if plan != NOTHING else (things.find("tiny", ports.get(v, v)) for v in values))
                things.link(things.find(stage, (program, b.kernel)), [call])
        for of, number in things.of(stage).items():
            if len(of) == 3:
                things.link(number, [things.find(stage, of[:2])])

    return rule


def _ports(module: Module[Program], main: Program) -> dict[Path, Path]:
    """(program, id of an input) -> (main, id of the same tensor among the inputs of `main`)."""
    own = dict(zip((i.tensor for i in main.signature.inputs), main.inputs))
    out: dict[Path, Path] = {}
    for name, program in module.programs.items():
        for id, port in zip(program.inputs, program.signature.inputs):
            if port.tensor in own:
                out[name, id] = ("main", own[port.tensor])
    return out


def _execution(things: Catalogue, stages: Stages) -> None:
    values: dict[Path, int] = {}
    for of, number in things.of("region").items():
        values[of[0], of[-1]] = number
    code = "gpu" if things.of("gpu") else "loop"
    for (program, name), number in _named(things, "execution"):
        call = things.find(code, (program, name))
        things.link(number, [call if call != NOTHING else values.get((program, name), NOTHING)])


def _code(stage: str, lowered: str) -> Rule:
    def rule(things: Catalogue, stages: Stages) -> None:
        kernels: dict[str, list[Path]] = {}
        registers: dict[str, dict[str, int]] = {}
        callers: dict[str, list[int]] = {}
        for of, number in things.of(lowered).items():
            if len(of) == 3:
                registers.setdefault(of[1], {})[of[2]] = number
                callers.setdefault(of[2], []).append(number)
            else:
                kernels.setdefault(of[1], []).append(of)
        runs: dict[str, list[int]] = {}
        for program, body in (stages[lowered].programs if things.of(lowered) else {}).items():
            for b in body.bindings:
                runs.setdefault(b.kernel, []).append(things.find("execution", (program, b.region)))
        for of, number in things.of(stage).items():
            symbol = of[1]
            things.link(number, (things.find(lowered, k) for k in kernels.get(symbol, ())))
            things.link(number, runs.get(symbol, ()))
            things.link(number, callers.get(symbol, ()))
        if registers:
            things.split(stage, lambda of, text: _first_named(text, registers.get(of[1], {})))

    return rule


def _first_named(text: str, registers: Mapping[str, int]) -> int:
    """The first register, loop or buffer that a line of C names, or NOTHING."""
    return next((registers[m[0]] for m in _NAME.finditer(text) if m[0] in registers), NOTHING)


def _origins(module: Module[object], program: str) -> Mapping[str, tuple[str, ...]]:
    return module.origins.get(program) or module.origins.get("main", {})


def _named(things: Catalogue, stage: str) -> list[tuple[tuple[str, str], int]]:
    """((program, name), number) of the things of a stage that have no things inside."""
    return [((of[0], of[-1]), number) for of, number in things.of(stage).items()]


RULES: Mapping[str, Rule] = {
    "frontend": _frontend,
    "tiny@imported": _imported,
    "tiny": _tiny,
    "indexbook": _same_value("indexbook"),
    "poly_view": _same_value("poly_view"),
    "region@explicit": _regions("region@explicit"),
    "region": _regions("region"),
    "poly_core": _of_region("poly_core"),
    "plan": _of_region("plan"),
    "loop": _kernels("loop"),
    "gpu": _kernels("gpu"),
    "execution": _execution,
    "c": _code("c", "loop"),
    "cu": _code("cu", "gpu"),
}
"""Stage -> the rule that links its things to earlier ones."""
