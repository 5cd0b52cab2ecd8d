"""An IndexBook as text: per value its axes and its reads.

n8    i0:M i1:N | r0:K               n7[i0, i1, r0]  acc fp32
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tatami.core.expr import Expr
from tatami.core.lines import Line, ended, split_lines, text_of
from tatami.core.module import Module
from tatami.indexbook.ir import Axis, Gathered, Guard, IndexBook, IndexInfo, Operand, Piece


def show(module: Module[IndexBook]) -> str:
    """Every program as text, main first."""
    return text_of(show_lines(module))


def show_lines(module: Module[IndexBook]) -> Iterator[Line]:
    """The same by lines, each of a value."""
    return ended(_book(name, book) for name, book in module.programs.items())


def _book(name: str, book: IndexBook) -> Iterator[Line]:
    yield Line(name)
    for ident, info in book.values.items():
        yield from split_lines(_line(ident, info), (name, ident))


def _line(ident: str, info: IndexInfo) -> str:
    axes = " ".join(_axis(a) for a in info.axes) or "scalar"
    if info.reduced:
        axes += " | " + " ".join(_axis(a) for a in info.reduced)
    reads = [_operand(o) for o in info.operands]
    if info.gathered is not None:
        reads.insert(0, _gathered(info.gathered))
    if info.scattered is not None:
        reads.append(f"at [{_entries(info.scattered)}]")
    notes = "view " if info.is_movement else ""
    tail = "" if info.acc_dtype is None else f"  acc {info.acc_dtype}"
    flags = "".join(f"  {f}" for f in info.flags)
    return f"{ident:<5} {axes:<36} {notes}{'  '.join(reads) or 'leaf'}{tail}{flags}"


def _axis(axis: Axis) -> str:
    return f"{axis.name}:{_size(axis.size)}" + ("'" if axis.kind == "broadcast" else "")


def _size(size: Expr) -> str:
    text = str(size)
    return f"({text})" if " " in text else text


def _operand(operand: Operand) -> str:
    if len(operand.pieces) == 1:
        return _piece(operand.pieces[0])
    return "(" + " else ".join(_piece(p) for p in operand.pieces) + ")"


def _piece(piece: Piece) -> str:
    value = str(piece.fill) if piece.read is None else f"{piece.read.value}[{', '.join(map(str, piece.read.map))}]"
    if not piece.guards:
        return value
    return f"{value} if {' and '.join(_guard(g) for g in piece.guards)}"


def _guard(guard: Guard) -> str:
    return f"0 <= {guard.index} < {guard.size}"


def _gathered(gathered: Gathered) -> str:
    return f"{gathered.value}[{_entries(gathered.map)}]"


def _entries(entries: Sequence[Expr | None]) -> str:
    return ", ".join("*" if e is None else str(e) for e in entries)
