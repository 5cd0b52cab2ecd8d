"""Text to `Formula`: ``d = input0 - input1; d * d + 2 * ridx0``.

    formula     = { name "=" expression ";" } expression [ ";" ]
    expression  = numbers, placeholders, names defined before, parentheses, calls ``max(a, b)``, casts ``fp32(x)``
    operators   from loose to tight:  ||  &&  (== != < <= > >=, not chained)  |  ^  &  (<< >>)  (+ -)  (* / %)
                unary - ! ~  **

Calls are the scalar ops of `core/ops.py` by name (min and max take two or more operands), ``where(condition, yes, no)``
among them; `%` is `mod`, `**` is `pow`. `inf`, `nan`, `pi`, `true`, `false` are numbers; ``//`` begins a comment.
Nothing is evaluated: what is not in this grammar is a diagnostic with its line, column and a suggestion.
"""

from __future__ import annotations

import difflib
import math
import re
from functools import lru_cache

from tatami.core.custom.formula import Apply, Convert, Formula, Number, Placeholder, Spot, Term, fault
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.ops import OPS
from tatami.core.scalar import scalar

MAX_LENGTH = 16384
"""Maximum characters of a formula."""
MAX_DEPTH = 60
"""Maximum nesting of a formula, so that reading it never reaches Python's limit of recursion."""
_TOKEN = re.compile(
    r"(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<mark>\|\||&&|==|!=|<=|>=|<<|>>|\*\*|[-+*/%<>=!~|^&(),;])",
    re.ASCII,
)
_SPACE = re.compile(r"(?:\s|//[^\n]*)*")
_PLACEHOLDER = re.compile(r"(input|ridx|shape)(0|[1-9]\d{0,5})\Z")
_RESERVED = re.compile(r"(input|ridx|shape|output)\d*\Z")
_CONSTANTS = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "true": True, "false": False}
_DTYPES = {d.value: d for d in DType if d != DType.unknown}
_LEVELS: tuple[dict[str, str], ...] = (
    {"||": "or"},
    {"&&": "and"},
    {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"},
    {"|": "bitor"},
    {"^": "bitxor"},
    {"&": "bitand"},
    {"<<": "shl", ">>": "shr"},
    {"+": "add", "-": "sub"},
    {"*": "mul", "/": "div", "%": "mod"},
)
_LEVEL = {mark: (level, fn) for level, row in enumerate(_LEVELS) for mark, fn in row.items()}
_COMPARE = 2
_UNARY = {"-": "neg", "!": "not", "~": "bitnot"}


@lru_cache(maxsize=1024)
def parse_formula(text: str, at: str) -> Formula:
    """Read one formula; `at` names it in diagnostics. Raises ParseError, UnknownName, UnknownOp, DuplicateId."""
    return _Parser(text, at).formula()


class _Parser:
    def __init__(self, text: str, at: str) -> None:
        self.text = text
        self.at = at
        if len(text) > MAX_LENGTH:
            raise fault(
                "InputTooLarge", Spot(at, text), f"{len(text)} characters; the limit is {MAX_LENGTH}", "use several kernels"
            )
        self.position = 0
        self.start = 0
        self.kind = ""
        self.token = ""
        self.depth = 0
        self.terms: list[Term] = []
        self.places: list[int] = []
        self.local: dict[str, int] = {}
        self.advance()

    # -- tokens ----------------------------------------------------------------------------------
    def advance(self) -> None:
        self.start = self.after_space(self.position)
        found = _TOKEN.match(self.text, self.start)
        if found is None:
            if self.start < len(self.text):
                raise self.fault(f"{self.text[self.start]!r} means nothing here", "write operators, names, numbers and calls")
            self.kind = self.token = ""
            return
        self.kind = found.lastgroup or ""
        self.token = found[self.kind]
        self.position = found.end()

    def after_space(self, position: int) -> int:
        found = _SPACE.match(self.text, position)
        return found.end() if found is not None else position

    def fault(self, why: str, suggestion: str, kind: str = "ParseError", place: int | None = None) -> TatamiError:
        return fault(kind, Spot(self.at, self.text, self.start if place is None else place), why, suggestion)

    def expected(self, what: str) -> TatamiError:
        found = repr(self.token) if self.kind else "the end"
        return self.fault(f"expected {what}, found {found}", f"write {what} here")

    def take(self, mark: str) -> None:
        if self.kind != "mark" or self.token != mark:
            raise self.expected(repr(mark))
        self.advance()

    def add(self, term: Term, place: int) -> int:
        self.terms.append(term)
        self.places.append(place)
        return len(self.terms) - 1

    # -- grammar ---------------------------------------------------------------------------------
    def formula(self) -> Formula:
        while True:
            value = self.statement()
            if value is not None:
                break
        if self.kind == "mark" and self.token == ";":
            self.advance()
        if self.kind:
            raise self.expected("an operator, or ';' after a definition 'name = …'")
        self.add(self.terms[value], self.places[value])  # the value is the last term
        return Formula(self.text, tuple(self.terms), tuple(self.places))

    def statement(self) -> int | None:
        """Define a name and return None, or return the value of the formula."""
        if self.kind == "name":
            ahead = _TOKEN.match(self.text, self.after_space(self.position))
            if ahead is not None and ahead["mark"] == "=":
                self.definition()
                return None
        return self.expression()

    def definition(self) -> None:
        name, place = self.token, self.start
        if _RESERVED.match(name) or name in OPS or name in _CONSTANTS or name in _DTYPES:
            raise self.fault(f"{name!r} has a meaning already", f"choose another name, such as {name}_", "DuplicateId")
        if name in self.local:
            raise self.fault(f"{name!r} is defined twice", f"choose another name, such as {name}2", "DuplicateId")
        self.advance()
        self.take("=")
        self.local[name] = self.expression()
        if self.kind != "mark" or self.token != ";":
            raise self.fault(
                f"the definition of {name!r} does not end", "end it with ';' and write the value after it", place=place
            )
        self.advance()

    def expression(self, least: int = 0) -> int:
        """Operators of level `least` and tighter, by precedence climbing."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fault("nested too deeply", "name parts of it: t = …;", "InputTooLarge")
        left = self.unary()
        compared = False
        while self.kind == "mark" and self.token in _LEVEL and _LEVEL[self.token][0] >= least:
            level, fn = _LEVEL[self.token]
            if level == _COMPARE and compared:
                raise self.fault("comparisons do not chain", "join two of them with &&")
            compared = level == _COMPARE
            place = self.start
            self.advance()
            left = self.add(Apply(fn, (left, self.expression(level + 1))), place)
        self.depth -= 1
        return left

    def unary(self) -> int:
        signs: list[tuple[str, int]] = []
        while self.kind == "mark" and self.token in _UNARY:
            signs.append((_UNARY[self.token], self.start))
            self.advance()
        value = self.power()
        for fn, place in reversed(signs):
            value = self.add(Apply(fn, (value,)), place)
        return value

    def power(self) -> int:
        base = self.primary()
        if self.kind == "mark" and self.token == "**":
            place = self.start
            self.advance()
            base = self.add(Apply("pow", (base, self.expression(len(_LEVELS)))), place)
        return base

    def primary(self) -> int:
        place = self.start
        if self.kind == "number":
            text = self.token
            self.advance()
            whole = text.isdigit()
            if whole and (len(text) > 19 or int(text) >= 1 << 63):
                raise self.fault("more than an i64 holds", f"write a fraction: {text[:24]}.0", place=place)
            return self.add(Number(scalar(int(text) if whole else float(text))), place)
        if self.kind == "mark" and self.token == "(":
            self.advance()
            value = self.expression()
            self.take(")")
            return value
        if self.kind != "name":
            raise self.expected("a value")
        name = self.token
        self.advance()
        return self.call(name, place) if self.kind == "mark" and self.token == "(" else self.named(name, place)

    def named(self, name: str, place: int) -> int:
        if name in self.local:
            return self.local[name]
        if name in _CONSTANTS:
            return self.add(Number(scalar(_CONSTANTS[name])), place)
        found = _PLACEHOLDER.match(name)
        if found is not None:
            return self.add(Placeholder(found[1], int(found[2])), place)  # type: ignore[arg-type]
        if name == "output":
            raise self.fault(
                "a formula gives its value and does not read `output`", "write the value alone", "UnknownName", place
            )
        if name in OPS or name in _DTYPES:
            raise self.fault(f"{name!r} is a function", f"write {name}(…)", "UnknownName", place)
        known = [*self.local, *_CONSTANTS, "input0", "input1", "ridx0", "ridx1", "shape0", "shape1"]
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else "the names are input0…, ridx0…, shape0… and what you define before"
        raise self.fault(f"nothing is called {name[:80]!r}", hint, "UnknownName", place)

    def call(self, name: str, place: int) -> int:
        self.advance()
        args = [self.expression()]
        while self.kind == "mark" and self.token == ",":
            self.advance()
            args.append(self.expression())
        self.take(")")
        if name in _DTYPES:
            if len(args) != 1:
                raise self.fault(f"{name} casts one value, {len(args)} are given", f"write {name}(x)", place=place)
            return self.add(Convert(_DTYPES[name], args[0]), place)
        if name not in OPS:
            near = difflib.get_close_matches(name, [*OPS, *_DTYPES], 1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"the functions are {', '.join(OPS)}; casts are {', '.join(_DTYPES)}"
            )
            raise self.fault(f"there is no function {name[:80]!r}", hint, "UnknownOp", place)
        arity = OPS[name].arity
        while name in ("min", "max") and len(args) > 2:
            args = [self.add(Apply(name, (args[0], args[1])), place), *args[2:]]
        if len(args) != arity:
            takes = f"{name} takes {arity} operand{'s' if arity > 1 else ''}, {len(args)} given"
            raise self.fault(takes, f"write {name}({', '.join('xyz'[:arity])})", place=place)
        return self.add(Apply(name, tuple(args)), place)
