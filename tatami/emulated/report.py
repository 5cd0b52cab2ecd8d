"""The machine's report of a fault, with places in kernel text instead of addresses, and the diagnostic made of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.emulated.lines import LineTable

KINDS = {
    "race": "KernelRace",
    "in flight": "KernelRace",
    "uninitialised": "KernelRace",
    "proxy fence": "KernelRace",
    "out of bounds": "OutOfBounds",
    "deadlock": "KernelDeadlock",
    "divergence": "KernelDeadlock",
    "misuse": "KernelMisuse",
    "layout": "KernelMisuse",
    "index": "IndexOutOfRange",
}
"""Check of the emulated machine -> kind of the diagnostic."""
ADVICE = {
    "race": "order the two accesses: a barrier between them, or a wait on the one that makes the other known",
    "in flight": "wait for the copy or the group before what it writes is touched",
    "uninitialised": "write the memory before it is read",
    "proxy fence": "put the fence behind the ordinary stores, before the barrier that announces them",
    "out of bounds": "bound the index, or predicate the access",
    "deadlock": "make every wait meet an arrival: count, phase and barrier have to agree",
    "divergence": "let all lanes (or warps) of the group reach the same instruction",
    "misuse": "keep to what the instruction allows",
    "layout": "make the address formula agree with the one by which the tile was written",
    "index": "check the values of the index tensor",
}
"""Check of the emulated machine -> suggestion of the diagnostic."""


@dataclass(frozen=True)
class Report:
    """A fault that the machine has found. `check`: a key of KINDS. `file`, `line`: place in kernel text, "" and 0 if unknown.
    `thread`: the thread that ran, "" if none did."""

    check: str
    file: str
    line: int
    thread: str
    text: str


def read_report(raw: str, lines: LineTable) -> Report:
    """The report in the machine's words, with `{{file:line}}` and `{{@address}}` marks replaced by places. Fields of `raw` are
    separated by 0x1f."""

    def place(mark: str) -> tuple[str, int]:
        if not mark.startswith("@"):
            file, _, line = mark.rpartition(":")
            return file, int(line)
        return lines.find(int(mark[1:], 16)) or ("unknown line", 0)

    def words(match: re.Match[str]) -> str:
        file, line = place(match[1])
        return f"{file}:{line}" if line else file

    check, site, thread, text = raw.split("\x1f", 3)
    file, line = place(site[2:-2]) if site else ("", 0)
    return Report(check, file, line, thread, re.sub(r"\{\{(.*?)\}\}", words, text))


Explain = Callable[[str, int], dict[str, str]]
"""(kernel, line of its text) -> origin of the line: "statement" of GPU IR, field of the "plan". Empty if unknown."""


def to_diagnostic(report: Report, at: str, kernel: str, explain: Explain | None = None) -> Diagnostic:
    """The report as a diagnostic at `at`. `kernel`: name of the running kernel; `explain` is asked only for lines of its own
    text."""
    behind = explain(kernel, report.line) if explain is not None and report.file == f"{kernel}.cu" else {}
    why = report.text
    if "statement" in behind:
        why += f" [{report.file}:{report.line} is {behind['statement']}"
        why += f", decided by the plan's {behind['plan']}]" if behind.get("plan") else "]"
    details = {"check": report.check, "kernel": kernel, **behind}
    details |= {"thread": report.thread} if report.thread else {}
    details |= {"line": f"{report.file}:{report.line}"} if report.line else {}
    return diagnostic(KINDS[report.check], at, why, ADVICE[report.check], patch=None, **details)
