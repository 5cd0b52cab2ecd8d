"""Text to `Expr`: ``2*ho + kh - 1``, ``(i0 + 3)//4``, ``floor(i0/4)``, ``min(M, 8)``, ``i % 4``.

`parse_expr(str(e)) == e`. Only this small grammar is read, by precedence climbing; nothing is evaluated.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tatami.core.expr import Expr, expr, floordiv, maximum, minimum, mod, var

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_']*)|(//|[-+*/%(),]))")
_MAX_LENGTH = 4096


class ExprSyntaxError(ValueError):
    """The text is not an index expression; the message says where."""


@lru_cache(maxsize=16384)
def parse_expr(text: str) -> Expr:
    """Read one expression. Raises ExprSyntaxError with the position of the fault."""
    if len(text) > _MAX_LENGTH:
        raise ExprSyntaxError(f"index expression of {len(text)} characters; the limit is {_MAX_LENGTH}")
    parser = _Parser(text)
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


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
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

    def sum(self) -> Expr:
        left = self.term()
        while self.token in ("+", "-"):
            op = self.token
            self.advance()
            right = self.term()
            left = left + right if op == "+" else left - right
        return left

    def term(self) -> Expr:
        left = self.unary()
        while self.token in ("*", "/", "//", "%"):
            op = self.token
            self.advance()
            right = self.unary()
            left = left * right if op == "*" else mod(left, right) if op == "%" else floordiv(left, right)
        return left

    def unary(self) -> Expr:
        if self.token == "-":
            self.advance()
            return -self.unary()
        return self.primary()

    def primary(self) -> Expr:
        token = self.token
        if token is None:
            raise self.fault("a number, a name or '('")
        if token.isdigit():
            self.advance()
            return expr(int(token))
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
            return minimum(*args) if token == "min" else maximum(*args)
        return var(token)
