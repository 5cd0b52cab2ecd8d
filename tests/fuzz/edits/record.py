"""The record of every single edit: how many edits of each document were run, in their order, and with which outcomes.

    {"region": {"gemm80": {"sha256": …, "edits": 536, "next": 536, "outcomes": {"refused": 490, …},
                           "without_effect": {"programs.main.…": 3}, "findings": []}}}

A document that the compiler writes otherwise now has other edits, so that its numbers begin again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz.edits.every_edit import changes_of, documents_of

FILE = Path(__file__).with_name("record.json")
WITHOUT_EFFECT = ("label", "default")


@cache
def digest(program: str, stage: str) -> str:
    programs = documents_of(program)[stage]["programs"]
    return hashlib.sha256(json.dumps(programs, sort_keys=True).encode()).hexdigest()[:16]


def place_of(edit: str) -> str:
    """The field of an edit, without positions and names: what it means, and not where it stands."""
    path, _, change = edit.partition(": ")
    word = change if change in ("left out", "twice", "exchanged with the next") else "another value"
    return f"{re.sub(r'[.]([0-9]+|v[0-9]+|r[0-9]+)(?=[.]|$)', '.*', path)}: {word}"


class Record:
    """The outcomes of each document in the order of its edits, and those that ran ahead of it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: dict[str, dict[str, dict[str, Any]]] = json.loads(file.read_text()) if file.exists() else {}
        self._ahead: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}

    def entry(self, program: str, stage: str) -> dict[str, Any]:
        entries = self.found.setdefault(stage, {})
        sha = digest(program, stage)
        if entries.get(program, {}).get("sha256") != sha:
            count = len(changes_of(program, stage))
            entries[program] = {"sha256": sha, "edits": count, "next": 0, "outcomes": {}, "without_effect": {}, "findings": []}
        return entries[program]

    def take(self, case: dict[str, Any], outcome: dict[str, Any], is_fine: bool) -> None:
        """Notes the outcome of an edit once all before it are noted."""
        program, stage = case["program"], case["stage"]
        ahead = self._ahead.setdefault((program, stage), {})
        ahead[case["number"]] = {**outcome, "is_fine": is_fine}
        entry = self.entry(program, stage)
        while entry["next"] in ahead:
            one = ahead.pop(entry["next"])
            entry["next"] += 1
            _count(entry["outcomes"], one["kind"])
            if one["kind"] in WITHOUT_EFFECT:
                _count(entry["without_effect"], place_of(one["edits"][0]))
            if not one["is_fine"]:
                entry["findings"].append(f"{one['kind']}: {one['edits'][0]}: {one['why']}"[:300])

    def save(self) -> None:
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.found, indent=1, sort_keys=True) + "\n")
        part.replace(self.file)


def _count(counts: dict[str, int], key: str) -> None:
    counts[key] = counts.get(key, 0) + 1


def table(record: Record) -> str:
    """Edits and outcomes by stage."""
    lines = []
    for stage, entries in record.found.items():
        outcomes: Counter[str] = Counter()
        for e in entries.values():
            outcomes.update(e["outcomes"])
        run, edits = sum(e["next"] for e in entries.values()), sum(e["edits"] for e in entries.values())
        lines.append(f"{stage:10} {run:6} of {edits:6}  " + ", ".join(f"{k} {n}" for k, n in outcomes.most_common()))
    return "\n".join(lines)
