"""The grammar of index expressions: ``2*ho + kh - 1``, ``(i0 + 3)//4``, ``floor(i0/4)``, ``min(M, 8)``, ``i % 4``.

Only this small grammar is read, by precedence climbing. The values are the caller's: `expr.parse_expr` makes `Expr`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Generic, Literal, TypeAlias, TypeVar

Operation: TypeAlias = Literal["+", "-", "*", "//", "%", "negative", "min", "max"]
E = TypeVar("E")

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_']*)|(//|[-+*/%(),]))")
_MAX_LENGTH = 4096


class ExprSyntaxError(ValueError):
    """The text is not an index expression; the message says where."""


def read(text: str, leaf: Callable[[int | str], E], apply: Callable[[Operation, Sequence[E]], E]) -> E:
    """The value of one expression: `leaf` gives that of a number or name, `apply` that of an operation.

    Raises ExprSyntaxError with the position of the fault.
    """
    if len(text) > _MAX_LENGTH:
        raise ExprSyntaxError(f"index expression of {len(text)} characters; the limit is {_MAX_LENGTH}")
    parser = _Parser(text, leaf, apply)
    try:
        result = parser.sum()
    except RecursionError:
        raise ExprSyntaxError("index expression is nested too deeply") from None
    except ZeroDivisionError:
        raise ExprSyntaxError(f"division by zero in {text!r}") from None
    except ExprSyntaxError:
        raise
    except ValueError as error:
        raise ExprSyntaxError(f"{error} in {text!r}") from None
    if parser.token is not None:
        raise parser.fault("an operator")
    return result


class _Parser(Generic[E]):
    def __init__(self, text: str, leaf: Callable[[int | str], E], apply: Callable[[Operation, Sequence[E]], E]) -> None:
        self.text = text
        self.leaf = leaf
        self.apply = apply
        self.pos = 0
        self.token: str | None = None
        self.advance()

    def fault(self, wanted: str) -> ExprSyntaxError:
        found = "the end" if self.token is None else repr(self.token)
        return ExprSyntaxError(f"expected {wanted} but found {found} at {self.pos} in {self.text!r}")

    def advance(self) -> None:
        m = _TOKEN.match(self.text, self.pos)
        if m is None:
            rest = self.text[self.pos :].strip()
            if rest:
                raise ExprSyntaxError(f"unexpected {rest[0]!r} at {self.pos} in {self.text!r}")
            self.token = None
            return
        self.pos = m.end()
        self.token = m.group(m.lastindex or 1)

    def take(self, symbol: str) -> None:
        if self.token != symbol:
            raise self.fault(repr(symbol))
        self.advance()

    def sum(self) -> E:
        left = self.term()
        while self.token in ("+", "-"):
            op: Operation = "+" if self.token == "+" else "-"
            self.advance()
            left = self.apply(op, (left, self.term()))
        return left

    def term(self) -> E:
        left = self.unary()
        while self.token in ("*", "/", "//", "%"):
            op: Operation = "*" if self.token == "*" else "%" if self.token == "%" else "//"
            self.advance()
            left = self.apply(op, (left, self.unary()))
        return left

    def unary(self) -> E:
        if self.token == "-":
            self.advance()
            return self.apply("negative", (self.unary(),))
        return self.primary()

    def primary(self) -> E:
        token = self.token
        if token is None:
            raise self.fault("a number, a name or '('")
        if token.isdigit():
            self.advance()
            return self.leaf(int(token))
        if token == "(":
            self.advance()
            inner = self.sum()
            self.take(")")
            return inner
        if not (token[0].isalpha() or token[0] == "_"):
            raise self.fault("a number, a name or '('")
        self.advance()
        if token in ("min", "max", "floor") and self.token == "(":
            self.advance()
            args = [self.sum()]
            while self.token == ",":
                self.advance()
                args.append(self.sum())
            self.take(")")
            if token == "floor":
                if len(args) != 1:
                    raise ExprSyntaxError(f"floor takes one argument, got {len(args)} in {self.text!r}")
                return args[0]
            return self.apply("min" if token == "min" else "max", args)
        return self.leaf(token)
