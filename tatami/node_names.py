"""Names of the model's nodes that a kernel computes, found by following origins from stage to stage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from tatami.core.module import Module
from tatami.region.ir import Region, Step
from tatami.stages import Stages

P = TypeVar("P")
Made = Callable[[str], Module[object] | None]
"""A stage by name; None if it does not exist."""


def node_names(made: Made, program: str, item: Region | Step) -> set[str]:
    """The frontend nodes that a Region computes; ids of the first stage that was made if that is a later one."""
    ids: set[str] = {item.name}
    if isinstance(item, Region):
        ids |= {let.name for let in item.lets} | {f"{item.name}.{let.name}" for let in item.lets}
    whole = made("region") is not None and made("region@explicit") is not None  # both name values of tiny
    chain = (*(("region",) if whole else ("region@explicit",)), "tiny", "tiny@imported")
    for stage in chain:
        value = made(stage)
        if value is None:
            continue
        origins = value.origins.get(program) or value.origins.get("main", {})  # setup is split off from main
        if origins:
            ids = follow(ids, origins)
    return ids


def follow(ids: Iterable[str], origins: Mapping[str, tuple[str, ...]]) -> set[str]:
    """The ids, one stage up, that `ids` come from."""
    out: set[str] = set()
    for i in ids:
        out.update(origins.get(i) or ())
    return out


def with_node_names(module: Module[P], s: Stages, stage: str) -> Module[P]:
    """The plans or instructions with the names of the model's nodes as origins: Region -> names. `stage`: the Regions that they
    are of. The module itself if the model was not given."""
    if s.get_made("frontend") is None:
        return module
    origins: dict[str, dict[str, tuple[str, ...]]] = {}
    for program, body in s[stage].programs.items():
        found = {item.name: node_names(s.get_made, program, item) for item in body.body}
        origins[program] = {name: tuple(sorted(names, key=natural)) for name, names in found.items() if names}
    return replace(module, origins=origins)


def natural(text: str) -> tuple[object, ...]:
    """The order of a reader: numbers by their value."""
    return tuple((0, int(p)) if p.isdigit() else (1, p) for p in re.split(r"(\d+)", text) if p)
