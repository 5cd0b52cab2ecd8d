"""The text of a custom kernel's body: C or CUDA that a user wrote, and the placeholders in it (spec 1 "Kernel").

    input0, input1        the operands' first elements      input1_shape0   size of axis 0 of operand 1
    output0 (or output)   the results' first elements       output1_shape0  size of axis 0 of result 1
    shape0                size of axis 0 of result 0        ridx0           an int64_t to count with

`bound_text` replaces them, as whole tokens only, by names of ours; everything else passes through as it is. Strings,
comments, members (``s.input0``) and longer identifiers are left alone, and every line keeps its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from tatami.core.custom.formula import Spot, absent_placeholder, fault
from tatami.core.custom.verbatim import VerbatimCode, rewritten

MAX_LENGTH = 1 << 20
"""Maximum characters of a body."""
_TOKEN = re.compile(
    r"(?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z))"
    r'|(?P<raw>\b(?:u8|[uUL])?R"(?P<fence>[^\s()\\]{0,16})\(.*?\)(?P=fence)")'
    r'|(?P<string>"(?:\\.|[^"\\\n])*"?|' + r"'(?:\\.|[^'\\\n])*'?)"
    r"|(?P<number>\.?[0-9](?:[eEpP][-+]|[\w.])*)"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<mark>->|.)",
    re.ASCII | re.DOTALL,
)
_N = r"(0|[1-9][0-9]{0,5})"
_PLACEHOLDER = re.compile(rf"(?:(input){_N}|(output){_N}?)(?:_shape{_N})?\Z|(shape|ridx){_N}\Z")
_OURS = re.compile(r"\btatami_(in|out|i)(\d+)(?:_n(\d+))?\b")


class Ranks(msgspec.Struct, frozen=True):
    """Number of axes of each operand and each result."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def counters(self) -> int:
        """Number of counters (ridx) that a body may use."""
        return max((*self.inputs, *self.outputs), default=0)


def bound_text(text: VerbatimCode, ranks: Ranks, at: str) -> VerbatimCode:
    """The body with our names: tatami_in0, tatami_out0, tatami_in1_n0 (a size), tatami_i0 (a counter).

    Raises UnknownValue for a placeholder that the kernel does not have, InvalidAttribute for a name of ours.
    """
    if len(text) > MAX_LENGTH:
        raise fault(
            "InputTooLarge", Spot(at, text), f"{len(text)} characters; the limit is {MAX_LENGTH}", "use several kernels"
        )

    def change(text: str) -> str:
        return "".join(
            _bound(word, ranks, Spot(at, text, place)) if is_name else word for place, word, is_name in _tokens(text)
        )

    return rewritten(text, change)


def user_text(text: str) -> str:
    """A compiler's message about a body, with the placeholders that the user wrote."""

    def back(m: re.Match[str]) -> str:
        kind, index, axis = m[1], m[2], m[3]
        if kind == "i":
            return f"ridx{index}"
        name = f"{'input' if kind == 'in' else 'output'}{index}"
        return f"shape{axis}" if axis is not None and name == "output0" else name if axis is None else f"{name}_shape{axis}"

    return _OURS.sub(back, text)


def counters_in(bound: str, ranks: Ranks) -> list[int]:
    """The counters (ridx) that a bound body uses."""
    used = {word for _, word, is_name in _tokens(bound) if is_name}
    return [k for k in range(ranks.counters) if f"tatami_i{k}" in used]


def _tokens(text: str) -> Iterator[tuple[int, str, bool]]:
    """(position, text, True if it is a name of its own) of every token; together they are the whole text."""
    previous = ""
    for found in _TOKEN.finditer(text):
        word = found[0]
        yield found.start(), word, found.lastgroup == "word" and previous not in (".", "->")
        if not (word.isspace() or found["comment"] is not None):
            previous = word


def _bound(word: str, ranks: Ranks, spot: Spot) -> str:
    if word.startswith("tatami_"):
        hint = "choose a name that does not begin with tatami_"
        raise fault("InvalidAttribute", spot, f"{word[:80]!r} is a name of generated code", hint)
    found = _PLACEHOLDER.match(word)
    if found is None:
        return word

    def within(index: int, count: int, stem: str, what: str) -> None:
        if index >= count:
            raise fault("UnknownValue", spot, *absent_placeholder(word, stem, count, what))

    if found[6] is not None:
        index = int(found[7])
        if found[6] == "ridx":
            within(index, ranks.counters, "ridx", "axis")
            return f"tatami_i{index}"
        within(0, len(ranks.outputs), "output", "result")
        within(index, ranks.outputs[0], "shape", "axis")
        return f"tatami_out0_n{index}"
    kind, own, index = ("input", ranks.inputs, int(found[2])) if found[1] else ("output", ranks.outputs, int(found[4] or 0))
    within(index, len(own), kind, "operand" if kind == "input" else "result")
    short = "in" if kind == "input" else "out"
    if found[5] is None:
        return f"tatami_{short}{index}"
    axis = int(found[5])
    within(axis, own[index], f"{kind}{index}_shape", "axis")
    return f"tatami_{short}{index}_n{axis}"
