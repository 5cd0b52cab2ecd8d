"""The record of one trained model on GPU targets, without a GPU, and the page of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from benchmarks.real.record import LEAST_ERROR, LIMIT

HOW = f"""*kernels*: CUDA kernels of the program for the sizes that the file leaves open, planned for the chip and compiled by NVRTC.
*registers*: the most that one of them takes per thread; *spills*: kernels that keep values in local memory, and the bytes of the
worst. *error*: results of the same kernels, executed instruction by instruction on the CPU at the model's first size, from ONNX
Runtime without graph optimisations (Frobenius norm of the difference relative to that of the result; for integers and words the
share that differs). *own*: ONNX Runtime's own error, as in [trained models from packages](real-models.md). A row is right when
the error is at most {LIMIT:.0f} times *own*, or {LEAST_ERROR:.0e} where that is less."""


class Compiled(msgspec.Struct, frozen=True):
    """Machine code of a program for one chip."""

    chip: str
    kernels: int = 0
    registers: int = 0
    """The most registers of a thread."""
    spilling: int = 0
    """Kernels that spill."""
    spill_bytes: int = 0
    """The most bytes that a thread of a kernel spills."""
    front_seconds: float = 0.0
    nvrtc_seconds: float = 0.0
    refused: str = ""
    """The diagnostic, or how the process ended."""


class Executed(msgspec.Struct, frozen=True):
    """One call on an emulated GPU."""

    target: str
    error: float | None = None
    """None: results of other shapes, dtypes or special values than the reference's."""
    own: float = 0.0
    seconds: float = 0.0
    refused: str = ""
    """The diagnostic, or how the process ended."""

    @property
    def verdict(self) -> str:
        if self.refused:
            return "refused"
        return "right" if self.error is not None and self.error <= max(LIMIT * self.own, LEAST_ERROR) else "wrong"


class GpuRow(msgspec.Struct):
    """One model."""

    name: str
    kind: str
    compiled: list[Compiled] = []
    executed: list[Executed] = []


class GpuRecord(msgspec.Struct):
    machine: dict[str, str]
    rows: list[GpuRow]


def summary(rows: Sequence[GpuRow]) -> str:
    """One line: verdicts by target, kernels and spills by chip."""
    words = []
    for chip in _named([c.chip for r in rows for c in r.compiled]):
        of_chip = [c for r in rows for c in r.compiled if c.chip == chip]
        good = [c for c in of_chip if not c.refused]
        spilling = sum(c.spilling for c in good)
        words.append(
            f"{chip}: {len(good)} of {len(of_chip)} compile, {sum(c.kernels for c in good)} kernels of which {spilling} spill"
        )
    for target in _named([e.target for r in rows for e in r.executed]):
        verdicts = Counter(e.verdict for r in rows for e in r.executed if e.target == target)
        words.append(f"{target}: " + ", ".join(f"{verdicts[v]} {v}" for v in ("right", "wrong", "refused")))
    return "; ".join(words) + "."


def page(record: GpuRecord, listed: int) -> str:
    """The page as Markdown. `listed`: number of models of the list."""
    machine = ", ".join(f"{k} {v}" for k, v in record.machine.items())
    lines = ["# Trained models on GPU targets", ""]
    missing = listed - len(record.rows)
    intro = "Written by `python -m benchmarks.real.gpu`, which needs no GPU: nothing here says how fast a kernel is."
    lines += [intro + (f" {missing} of the list's {listed} models are not in this record." if missing else ""), ""]
    lines += [f"**{summary(record.rows)}**", "", HOW, "", f"Machine: {machine}.", ""]
    chips = _named([c.chip for r in record.rows for c in r.compiled])
    targets = _named([e.target for r in record.rows for e in r.executed])
    head = ["model", "kind"]
    head += [word for c in chips for word in (f"kernels, {c}", "registers", "spills")]
    head += [word for t in targets for word in (f"error, {t}", "own")]
    lines += [_line(head), _line(["---"] * len(head))]
    for row in record.rows:
        compiled = {c.chip: c for c in row.compiled}
        executed = {e.target: e for e in row.executed}
        cells = [row.name, row.kind]
        cells += [cell for c in chips for cell in _compiled(compiled.get(c))]
        cells += [cell for t in targets for cell in _executed(executed.get(t))]
        lines.append(_line(cells))
    told = [
        f"- **{r.name}**, {where}: {' '.join(said.split())[:300]}"
        for r in record.rows
        for where, said in ((*((c.chip, c.refused) for c in r.compiled), *((e.target, e.refused) for e in r.executed)))
        if said
    ]
    if told:
        lines += ["", "## What the others were told", "", *told]
    return "\n".join(lines) + "\n"


def _compiled(compiled: Compiled | None) -> tuple[str, str, str]:
    if compiled is None:
        return "", "", ""
    if compiled.refused:
        return "refused", "", ""
    spills = f"{compiled.spilling} ({compiled.spill_bytes} B)" if compiled.spilling else ""
    return str(compiled.kernels), str(compiled.registers), spills


def _executed(executed: Executed | None) -> tuple[str, str]:
    if executed is None:
        return "", ""
    if executed.refused:
        return "refused", ""
    wrong = "" if executed.verdict == "right" else " wrong"
    error = "" if executed.error is None else f"{executed.error:.1e}"
    return error + wrong, f"{executed.own:.1e}"


def _named(names: Sequence[str]) -> list[str]:
    """Each name once, in the order of its first appearance."""
    return list(dict.fromkeys(names))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
