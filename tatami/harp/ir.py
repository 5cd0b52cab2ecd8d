"""The syntax tree of a `.harp` text. Inert: `elaborate.py` gives a program its meaning.

    File = source, graphs, comments
    Graph = name, sizes, parameters, results, body of statements
    Statement = Assign | Destructure | Return | Do
    Expression = Name | Integer | Real | String | Truth | Group | Tuple | Array | Unary | Binary | Call | Method | Index | Fused

Every node has `at`, the token that names it (an operator, a name, a bracket), and `extent`, all of its text. Both are
left out of comparisons: two texts that differ in layout only have equal trees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tatami.harp.source import Source, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The part that all nodes share: the places of a node in the text."""

    at: Span = field(compare=False, repr=False)
    extent: Span = field(compare=False, repr=False)


# -- expressions -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Name(Node):
    """The name of a value, a graph or an operation."""

    name: str


@dataclass(frozen=True, slots=True)
class Integer(Node):
    """A number without a point or an exponent."""

    value: int


@dataclass(frozen=True, slots=True)
class Real(Node):
    """A number with a point or an exponent, in its own spelling."""

    text: str


@dataclass(frozen=True, slots=True)
class String(Node):
    """A text in double quotes, its escapes resolved."""

    value: str


@dataclass(frozen=True, slots=True)
class Truth(Node):
    """One of the words ``true`` and ``false``."""

    value: bool


@dataclass(frozen=True, slots=True)
class Group(Node):
    """An expression in parentheses: ``(inner)``."""

    inner: Expression


@dataclass(frozen=True, slots=True)
class Tuple(Node):
    """``(a, b)``, with two items or more."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Array(Node):
    """``[items]``, an array that may be nested."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """``op operand``, a prefix operator."""

    op: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """``left op right``, an infix operator."""

    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Argument(Node):
    """``value`` or ``name=value``."""

    name: Name | None
    value: Expression


@dataclass(frozen=True, slots=True)
class Call(Node):
    """``callee(arguments)``: an operation, a graph, or one of the language's own forms."""

    callee: Name
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Method(Node):
    """``receiver.callee(arguments)``."""

    receiver: Expression
    callee: Name
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Slice(Node):
    """``start:stop:step``; each may be absent."""

    start: Expression | None
    stop: Expression | None
    step: Expression | None


@dataclass(frozen=True, slots=True)
class Rest(Node):
    """``...``: all axes that the other items leave out."""


@dataclass(frozen=True, slots=True)
class Index(Node):
    """``base[items]``, an index or slice."""

    base: Expression
    items: tuple[Item, ...]


FusedKind: TypeAlias = Literal["fused", "fused_reduce", "fused_cumulative"]


@dataclass(frozen=True, slots=True)
class Fused(Node):
    """``kind(arguments) { body }``: inputs first, then axis= and op=."""

    kind: FusedKind
    arguments: tuple[Argument, ...]
    body: Expression


LEVELS: tuple[tuple[str, ...], ...] = (
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "<=", ">=", "<", ">"),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%", "@"),
)
"""Binary operators, loosest first; each level associates to the left. Tighter: the prefixes `-` and `!`, then `**`."""

Expression: TypeAlias = (
    Name | Integer | Real | String | Truth | Group | Tuple | Array | Unary | Binary | Call | Method | Index | Fused
)
Item: TypeAlias = Expression | Slice | Rest


# -- statements --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Assign(Node):
    """``target = value``, one name assigned."""

    target: Name
    value: Expression


@dataclass(frozen=True, slots=True)
class Destructure(Node):
    """``(a, b) = value``, with two names or more."""

    targets: tuple[Name, ...]
    value: Expression


@dataclass(frozen=True, slots=True)
class Return(Node):
    """``return values``, one per declared result."""

    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Do(Node):
    """A call for its effect: ``update(cache, value)``."""

    call: Call


Statement: TypeAlias = Assign | Destructure | Return | Do


# -- graphs ------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Type(Node):
    """``f32[B, 2*N]``; rank 0 without sizes."""

    dtype: Name
    shape: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Size(Node):
    """``N=8`` of ``graph<N=8>``; without a default an input has to decide it."""

    name: Name
    default: int | None


@dataclass(frozen=True, slots=True)
class Parameter(Node):
    """``mut cache: f32[B, N]``: words before the name state the kind of input."""

    words: tuple[Name, ...]
    name: Name
    type: Type


@dataclass(frozen=True, slots=True)
class Result(Node):
    """A declared output. The name is absent in the bare form ``-> f32[N]``, whose one output is called `output`."""

    name: Name | None
    type: Type


@dataclass(frozen=True, slots=True)
class Graph(Node):
    """``graph<sizes> name(parameters) -> results { body }``."""

    name: Name
    sizes: tuple[Size, ...]
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    body: tuple[Statement, ...]
    end: Span = field(compare=False, repr=False)
    """The place of the closing brace."""


@dataclass(frozen=True, slots=True)
class Comment(Node):
    """``// …`` up to the end of its line; `text` begins with the slashes."""

    text: str


@dataclass(frozen=True, slots=True)
class File:
    """All graphs and comments of a text."""

    source: Source = field(compare=False, repr=False)
    graphs: tuple[Graph, ...]
    comments: tuple[Comment, ...] = field(compare=False, repr=False)
