"""Lay out `.harp` text (`tatami fmt`): the same words in the same order, every comment kept, lines of at most 100 columns.

The work is done on words, not on the syntax tree: nothing but white space and the comma after the last entry of a
broken list can change, so neither can the meaning. Applied to its own result it changes nothing.

>>> print(format_text("graph main(x:f32[4])->f32[4]{y=x*2.0 return -y // turned\\n}"), end="")
graph main(x: f32[4]) -> f32[4] {
    y = x * 2.0
    return -y  // turned
}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tatami.harp.ir import LEVELS
from tatami.harp.parse import parse
from tatami.harp.writing.layout import Broken, Comment, Doc, Group, Line, Nest, render

WIDTH = 100
"""Maximum number of columns of a line, if it can be broken."""

_WORD = re.compile(
    r"""(?P<blank>[ \t\r\n]+) | (?P<comment>//[^\n]*) | (?P<string>"(?:\\[^\n]|[^"\\\n])*")
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?) | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>->|==|!=|<=|>=|<<|>>|\*\*|\.\.\.|\S)""",
    re.VERBOSE,
)
_CLOSE = {"(": ")", "[": "]", "{": "}", "<": ">"}
_OPERATORS = frozenset(op for level in LEVELS for op in level)
"""Binary operators, at the loosest of which a line breaks. `**` binds tighter than a sign and has no space around it."""


@dataclass
class Remark:
    """A comment on a line of its own."""

    text: str
    blank_before: bool
    """True if an empty line precedes it."""


@dataclass
class Word:
    """One token, with the comments on lines of their own before it and the comments after it on its line."""

    kind: str
    text: str
    before: list[Remark] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    newline_before: bool = False
    blank_before: bool = False


@dataclass
class Bracket:
    """A pair of brackets and what is inside."""

    open: Word
    inside: list[Item]
    close: Word


Item = Word | Bracket


def words(text: str) -> list[Word]:
    """The tokens of `text`; the last is empty and carries the comments at the end."""
    out: list[Word] = []
    remarks: list[Remark] = []
    lines = blank = 0
    for match in _WORD.finditer(text):
        kind, piece = match.lastgroup or "sign", match.group()
        if kind == "blank":
            blank = piece.count("\n")
            lines += blank
        elif kind == "comment":
            piece = piece.rstrip()
            if lines == 0 and out:
                out[-1].after.append(piece)
            else:
                remarks.append(Remark(piece, blank > 1))
            blank = 0
        else:
            out.append(Word(kind, piece, remarks, [], lines > 0, blank > 1))
            remarks, lines, blank = [], 0, 0
    out.append(Word("end", "", remarks, [], True))
    return out


def format_source(text: str, name: str) -> str:
    """The text laid out; `name` stands in diagnostics. Raises TatamiError unless it is a program."""
    parse(text, name)
    return format_text(text)


def format_text(text: str) -> str:
    """`text` laid out; it must be a well-formed program."""
    found = words(text)
    doc: list[Doc] = []
    for graph in _graphs(found[:-1]):
        doc += [*([Line("")] if doc else []), *_remarks(_first(graph[0])), _graph(graph), Line("")]
    end = found[-1]
    doc += [*([Line("")] if doc and end.before and end.before[0].blank_before else []), *_remarks(end)]
    return aligned(render(doc, WIDTH).strip("\n").split("\n")) if doc else ""


def aligned(lines: list[str]) -> str:
    """The lines with comments after code on neighbouring lines aligned, where no line gets too long."""
    out: list[str] = []
    run: list[tuple[str, str]] = []

    def flush() -> None:
        column = max((len(code) for code, _ in run), default=0)
        if any(column + 2 + len(note) > WIDTH for _, note in run):
            column = 0
        out.extend(f"{code:<{column}}  {note}" for code, note in run)
        run.clear()

    for line in lines:
        code, note = split_comment(line)
        indent = len(code) - len(code.lstrip())
        if run and (not note or not code.strip() or indent != len(run[-1][0]) - len(run[-1][0].lstrip())):
            flush()
        if note and code.strip():
            run.append((code.rstrip(), note))
        else:
            out.append(line)
    flush()
    return "\n".join(out) + "\n"


def split_comment(line: str) -> tuple[str, str]:
    """Code and comment of one line."""
    for match in _WORD.finditer(line):
        if match.lastgroup == "comment":
            return line[: match.start()], line[match.start() :]
    return line, ""


# -- structure -----------------------------------------------------------------------------------------


def _graphs(found: list[Word]) -> Iterator[list[Item]]:
    """The items of each graph: `graph`, its sizes, name, parameters, `->`, results, body."""
    at = 0
    while at < len(found):
        items: list[Item] = []
        while at < len(found):
            at, item = _item(found, at, angles=len(items) == 1)
            items.append(item)
            if isinstance(item, Bracket) and item.open.text == "{":
                break
        yield items


def _item(found: list[Word], at: int, angles: bool = False) -> tuple[int, Item]:
    """(the position after the item that begins at word `at`, the item)."""
    word = found[at]
    if word.kind != "sign" or word.text not in _CLOSE or (word.text == "<" and not angles):
        return at + 1, word
    inside: list[Item] = []
    at += 1
    while found[at].text != _CLOSE[word.text] or found[at].kind != "sign":
        at, item = _item(found, at)
        inside.append(item)
    return at + 1, Bracket(word, inside, found[at])


def _first(item: Item) -> Word:
    return item.open if isinstance(item, Bracket) else item


def _last(item: Item) -> Word:
    return item.close if isinstance(item, Bracket) else item


def _is(item: Item, *texts: str) -> bool:
    return isinstance(item, Word) and item.kind in ("sign", "name") and item.text in texts


def _split(items: list[Item], *separators: str) -> list[tuple[list[Item], Word | None]]:
    """The parts between separators, each with the separator after it."""
    out: list[tuple[list[Item], Word | None]] = []
    part: list[Item] = []
    for item in items:
        if _is(item, *separators):
            assert isinstance(item, Word)
            out.append((part, item))
            part = []
        else:
            part.append(item)
    return [*out, (part, None)] if part else out


def _statements(items: list[Item]) -> list[list[Item]]:
    """The items of each statement: it begins where a name follows a complete expression, or a parenthesis on another line
    does."""
    out: list[list[Item]] = []
    for item in items:
        previous = out[-1][-1] if out else None
        complete = previous is not None and not (
            isinstance(previous, Word) and (previous.kind == "sign" or previous.text == "return")
        )
        begins = isinstance(item, Word) and item.kind != "sign"
        begins |= isinstance(item, Bracket) and item.open.text == "(" and item.open.newline_before
        if previous is None or (complete and begins):
            out.append([item])
        else:
            out[-1].append(item)
    return out


# -- layout --------------------------------------------------------------------------------------------


def _remarks(word: Word) -> list[Doc]:
    """The comments on lines of their own before `word`, and the empty lines between them (at most one each)."""
    out: list[Doc] = []
    for k, remark in enumerate(word.before):
        out += [*([Line("")] if k and remark.blank_before else []), Comment(remark.text, True), Line("")]
    return [*out, Line("")] if out and word.blank_before else out


def _graph(items: list[Item]) -> Doc:
    """The layout of a graph: the parameters break first, one per line; the results only if they do not fit on a line of their
    own."""
    *header, body = items
    assert isinstance(body, Bracket)
    arrow = next(k for k, item in enumerate(header) if _is(item, "->"))
    name: list[Doc] = [_word(header[0], leading=False)]
    for item in header[1 : arrow - 1]:
        space = "" if isinstance(item, Bracket) else " "
        name += [space, _bracket(item) if isinstance(item, Bracket) else _word(item)]
    is_plain = not any(map(_has_comments, header[arrow:]))
    results: Doc = _items(header[arrow + 1 :])
    if is_plain:
        flat = render(Group(results), 1 << 30)
        results = flat if len(flat) < WIDTH - 8 else results
    return [*name, _items(header[arrow - 1 : arrow]), " ", _word(header[arrow]), " ", results, " ", _block(body)]


def _block(body: Bracket) -> Doc:
    inner: list[Doc] = []
    for k, statement in enumerate(_statements(body.inside)):
        first = _first(statement[0])
        gap = k > 0 and (first.before[0].blank_before if first.before else first.blank_before)
        inner += [Line("")] if gap else []
        for j, remark in enumerate(first.before):
            inner += [Line("")] if j and remark.blank_before else []
            inner += [Line(""), Comment(remark.text, True)]
        inner += [Line("")] if first.before and first.blank_before else []
        inner += [Line(""), _statement(statement)]
    for j, remark in enumerate(body.close.before):
        inner += [Line("")] if remark.blank_before and (j or body.inside) else []
        inner += [Line(""), Comment(remark.text, True)]
    lines: list[Doc] = [Nest(inner), Line("")] if inner or body.open.after else []
    return [_word(body.open), *lines, _word(body.close, leading=False)]


def _statement(items: list[Item]) -> Doc:
    if _is(items[0], "return"):
        last = _last(items[-1])
        notes, last.after = last.after, []
        parts = _split(items[1:], ",")
        values = Group(Nest(_entries(parts)) if len(parts) > 1 else _entries(parts))
        return [_word(items[0], leading=False), " ", values, *(Comment(t, False) for t in notes)]
    for k, item in enumerate(items):
        if _is(item, "="):
            return [_items(items[:k], leading=False), " ", _word(item), " ", _grouped(items[k + 1 :])]
    return _grouped(items, leading=False)


def _word(item: Item, leading: bool = True, trailing: bool = True) -> Doc:
    """A token with its comments. leading=False: comments before it are printed elsewhere."""
    assert isinstance(item, Word)
    out: list[Doc] = [Comment(r.text, True) for r in item.before] if leading else []
    out.append(item.text)
    return [*out, *(Comment(t, False) for t in item.after)] if trailing else out


def _items(items: list[Item], leading: bool = True) -> Doc:
    """The items next to each other, with spaces between names."""
    out: list[Doc] = []
    for k, item in enumerate(items):
        lead = leading or k > 0
        names = k > 0 and _last(items[k - 1]).kind != "sign" and _first(item).kind != "sign"
        out.append(" " if names or _first(item).text == "{" else "")
        out.append(_word(item, lead) if isinstance(item, Word) else _bracket(item, lead))
    return out


def _bracket(item: Bracket, leading: bool = True) -> Doc:
    opened, closed = _word(item.open, leading), _word(item.close, leading=False)
    last: list[Doc] = [Comment(r.text, True) for r in item.close.before]
    if not item.inside:
        return [opened, Nest(last), closed]
    if item.open.text == "{":
        return Group([opened, Nest([Line(" "), _expression(item.inside), *last]), Line(" "), closed])
    parts = _split(item.inside, ",")
    only = parts[0][0] if len(parts) == 1 else []
    if len(only) == 1 and isinstance(only[0], Bracket) and not item.open.before and not _is_remarked(item):
        return [opened, _bracket(only[0]), closed]  # f([…]): the inner brackets break
    if len(parts) > 4 and all(_is_number(p) for p, _ in parts) and not item.open.before and not _is_remarked(item):
        filled: list[Doc] = []
        for k, (part, _) in enumerate(parts):
            filled += ["," if k else "", Group(Line(" ")) if k else "", _expression(part)]
        return Group([opened, Nest([Line(""), *filled, Broken(","), *last]), Line(""), closed])
    return Group([opened, Nest([Line(""), *_entries(parts, ","), *last]), Line(""), closed])


def _entries(parts: list[tuple[list[Item], Word | None]], final: str = "") -> list[Doc]:
    """Entries with commas, `final` after the last if they stand on lines of their own. Comments after an entry follow its
    comma."""
    out: list[Doc] = []
    for k, (part, comma) in enumerate(parts):
        is_last = k == len(parts) - 1
        last = _last(part[-1])
        held, last.after = last.after, []
        out.append(_entry(part))
        if not is_last:
            out.append(",")
        elif len(parts) > 1 and final:
            out.append(Broken(final))
        if comma is not None:
            held = [*held, *(r.text for r in comma.before), *comma.after]
        out += [Comment(t, False) for t in held]
        if not is_last:
            out.append(Line(" "))
    return out


def _entry(items: list[Item]) -> Doc:
    """The layout of an argument, parameter, size variable, index or array element."""
    for k, item in enumerate(items):
        if _is(item, "=") and k == 1:
            return [_items(items[:1]), _word(item), _grouped(items[2:])]
        if _is(item, ":"):
            if k and _is_type(items[k + 1 :]) and not any(isinstance(i, Bracket) for i in items[:k]):
                return [_items(items[:k]), _word(item), " ", _items(items[k + 1 :])]
            slices: list[Doc] = []
            for part, colon in _split(items, ":"):
                slices += [_grouped(part) if part else "", _word(colon) if colon else ""]
            return slices
    return _grouped(items)


def _is_type(items: list[Item]) -> bool:
    """True if the items are a type such as `f32[N, 4]`."""
    return len(items) == 2 and isinstance(items[0], Word) and items[0].kind == "name" and isinstance(items[1], Bracket)


def _grouped(items: list[Item], leading: bool = True) -> Doc:
    """An expression as a group of its own. Comments at its ends stand outside it, so that they do not break its lines."""
    first, last = _first(items[0]), _last(items[-1])
    before: list[Doc] = [Comment(r.text, True) for r in first.before] if leading else []
    after, last.after = last.after, []
    return [*before, Group(_expression(items, leading=False)), *(Comment(t, False) for t in after)]


def _expression(items: list[Item], leading: bool = True) -> Doc:
    """Operands and operators; a line breaks before the loosest operators."""
    between = [k for k, item in enumerate(items) if k and _is(item, *_OPERATORS) and not _is_operator(items[k - 1])]
    for level in LEVELS:
        at = [k for k in between if _is(items[k], *level)]
        if at:
            out: list[Doc] = [_grouped(items[: at[0]], leading)]
            rest: list[Doc] = []
            for start, end in pairwise([*at, len(items)]):
                rest += [Line(" "), _word(items[start]), " ", _grouped(items[start + 1 : end])]
            return [*out, Nest(rest)]
    return _items(items, leading)


def _is_operator(item: Item) -> bool:
    return isinstance(item, Word) and item.kind == "sign" and item.text != "..."


def _is_number(items: list[Item]) -> bool:
    *sign, last = items
    return isinstance(last, Word) and last.kind == "number" and all(_is(s, "-") for s in sign)


def _has_comments(item: Item) -> bool:
    """True if there are comments before, inside or after the item."""
    return bool(_last(item).after) or bool(_first(item).before) or (isinstance(item, Bracket) and _is_remarked(item))


def _is_remarked(item: Bracket) -> bool:
    """True if there are comments inside the brackets."""
    return bool(item.open.after or item.close.before) or any(map(_has_comments, item.inside))
