"""The elaboration of one graph: its inputs, its statements in order, its results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypedDict, TypeVar, assert_never, get_args

from tatami.core.algebra.size_forms import settled_size
from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import Diagnostic, TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, expr, shape_text, var
from tatami.core.faults.size_fault import size_fault
from tatami.core.signature import Role
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.operation import is_legal_symbol
from tatami.harp import ir
from tatami.harp.elaboration.constants import Constants
from tatami.harp.elaboration.expressions import Expressions
from tatami.harp.elaboration.scope import UNKNOWN, Scope, Skipped, near
from tatami.harp.elaboration.values import DTYPES, Results, Value, describe, dtype_name
from tatami.harp.source import Span

_EFFECTS = ("update", "assume")
N = TypeVar("N", bound=ir.Node)


class _InputOptions(TypedDict, total=False):
    """Named arguments of `Graph.input` that stand as words before a parameter."""

    mutability: Literal["mutable"]
    storage: Literal["const_pool"]
    role: Role


class Body:
    """The construction of `graph` from its declaration `declared`; `scope` has no names yet."""

    def __init__(self, declared: ir.Graph, graph: Graph, scope: Scope, constants: Constants) -> None:
        self.declared = declared
        self.graph = graph
        self.scope = scope
        self.expressions = Expressions(self.scope, constants)
        self.faults: list[Diagnostic] = []
        self.is_incomplete = False
        """A value was skipped because of a fault that is reported elsewhere."""
        self._returned: ir.Return | None = None
        self._is_declared = False

    def announce(self) -> None:
        """Declare inputs and results, so that graphs can call this one before it is built."""
        self._declare()
        for result in self.declared.results if not self.faults else ():
            self._guard(self._promise, result)

    def _declare(self) -> None:
        if self._is_declared:
            return
        self._is_declared = True
        for size in self.declared.sizes:
            self._guard(self._size, size)
        for parameter in self.declared.parameters:
            self.scope.names.setdefault(parameter.name.name, UNKNOWN)
        for parameter in self.declared.parameters:
            self._guard(self._input, parameter)

    def _promise(self, result: ir.Result) -> None:
        dtype, shape = self._type(result.type)
        with self.scope.at(result.at):
            self.graph.promise("output" if result.name is None else result.name.name, shape, dtype)

    def build(self) -> list[Diagnostic]:
        """Build the graph; the faults that were found, one per faulty declaration or statement."""
        self._declare()
        for statement in self.declared.body:
            self._guard(self._statement, statement)
        if self.declared.results and not any(isinstance(s, ir.Return) for s in self.declared.body):
            self._guard(self._no_return, self.declared)
        for size in self.declared.sizes if not self.faults else ():
            if size.default is not None and size.name.name not in self.scope.learned:
                self.graph.size(size.name.name, size.default)
        return self.faults

    def _guard(self, action: Callable[[N], None], node: N) -> None:
        try:
            action(node)
        except TatamiError as error:
            self.faults += error.diagnostics
            self.is_incomplete = True
        except Skipped:
            self.is_incomplete = True

    def _refuse(self, kind: str, at: Span, why: str, suggestion: str) -> TatamiError:
        return self.scope.refuse(kind, at, why, suggestion)

    # -- declarations --------------------------------------------------------------------------------
    def _size(self, size: ir.Size) -> None:
        name = size.name.name
        if name in self.scope.sizes:
            raise self._refuse("DuplicateId", size.at, f"{name!r} is declared twice", "keep one of them")
        self.scope.sizes[name] = UNKNOWN
        if not is_legal_symbol(name) or (name.startswith("idx") and name[3:].isdigit()):
            why = f"{name!r} cannot name a size: it is a word of index expressions"
            raise self._refuse("InvalidSymbol", size.at, why, f"choose another name, such as {name}_")
        if size.default is not None and (fault := size_fault(expr(size.default))) is not None:
            why = f"the default of {name} is {str(size.default)[:80]}"
            raise self._refuse("InvalidSymbol", size.extent, why, fault.suggestion)
        self.scope.sizes[name] = var(name)

    def _input(self, p: ir.Parameter) -> None:
        name = p.name.name
        if name in self.scope.sizes:
            raise self._refuse("DuplicateId", p.at, f"{name!r} is a size variable", f"choose another name, such as {name}_")
        if self.scope.names[name] is not UNKNOWN:
            raise self._refuse("DuplicateId", p.at, f"two inputs are called {name!r}", f"choose another name, such as {name}_2")
        options = self._words(p)
        dtype, shape = self._type(p.type)
        with self.scope.at(p.at):
            self.scope.names[name] = self.graph.input(name, shape, dtype, **options)

    def _words(self, p: ir.Parameter) -> _InputOptions:
        out: _InputOptions = {}
        for word in p.words:
            found: _InputOptions
            match word.name:
                case "mut":
                    found = {"mutability": "mutable"}
                case "pool":
                    found = {"storage": "const_pool"}
                case other:
                    role: Role | None = next((r for r in get_args(Role) if r == other), None)
                    if role is None:
                        known = ["mut", "pool", *get_args(Role)]
                        how = near(other, known) or f"the words are {', '.join(known)}"
                        raise self._refuse("InvalidAttribute", word.at, f"{other!r} is not a kind of input", how)
                    found = {"role": role}
            if found.keys() & out.keys():
                raise self._refuse(
                    "InvalidAttribute", word.at, f"{word.name!r} says what another word says", "keep one of them"
                )
            out.update(found)
        return out

    def _type(self, t: ir.Type) -> tuple[DType, Shape]:
        if t.dtype.name not in DTYPES:
            known = f"the dtypes are {', '.join(DTYPES)}"
            how = near(t.dtype.name, DTYPES) or known
            raise self._refuse("UnsupportedDType", t.at, f"{t.dtype.name!r} is not a dtype", how)
        return DTYPES[t.dtype.name], tuple(self._extent(e) for e in t.shape)

    def _extent(self, e: ir.Expression) -> Expr:
        names: list[object] = [e]
        while names:  # names of sizes only: other faults are found when the expression is evaluated
            node = names.pop()
            if isinstance(node, ir.Name) and node.name not in self.scope.sizes:
                raise self.scope.undeclared_size(node)
            if isinstance(node, ir.Binary):
                names += [node.right, node.left]
            elif isinstance(node, ir.Unary | ir.Group):
                names.append(node.operand if isinstance(node, ir.Unary) else node.inner)
        value = self.expressions.value(e)
        if isinstance(value, bool) or not isinstance(value, int | Expr):
            raise self._refuse("InvalidSymbol", e.at, f"a size is not {describe(value)}", "write an integer or a size variable")
        size = expr(value)
        if (fault := size_fault(size)) is not None:
            raise self._refuse("InvalidSymbol", e.at, *fault)
        return size

    # -- statements ----------------------------------------------------------------------------------
    def _statement(self, s: ir.Statement) -> None:
        if self._returned is not None and not isinstance(s, ir.Return):
            line, _ = self.scope.source.place(self._returned.at)
            raise self._refuse(
                "AfterReturn", s.at, f"the graph returns on line {line}", "put it before the return, or remove it"
            )
        match s:
            case ir.Assign():
                self._assign((s.target,), s.value, None)
            case ir.Destructure():
                self._assign(s.targets, s.value, s.at)
            case ir.Return():
                self._return(s)
            case ir.Do():
                self._do(s)
            case _:
                assert_never(s)

    def _assign(self, targets: tuple[ir.Name, ...], value: ir.Expression, several: Span | None) -> None:
        try:
            for target in targets:
                if target.name in self.scope.sizes:
                    why = f"{target.name!r} is a size variable"
                    raise self._refuse("DuplicateId", target.at, why, f"choose another name, such as {target.name}_")
            for k, target in enumerate(targets):
                if target.name in (t.name for t in targets[:k]):
                    why = f"{target.name!r} would name two of the results"
                    raise self._refuse("DuplicateId", target.at, why, f"give each a name of its own, such as {target.name}_2")
            before = len(self.graph.nodes)
            whole = isinstance(value, ir.Call) and value.callee.name == "constant"
            self.expressions.calls.target = targets[0].name if whole else None
            found = self.expressions.value(value)
            values = [found] if several is None else self._taken_apart(found, targets, several, value)
            for target, v in zip(targets, values, strict=True):
                self._name(v, target.name, before)
            self.scope.names.update(zip((t.name for t in targets), values, strict=True))
        except (TatamiError, Skipped):
            self.scope.names.update((t.name, UNKNOWN) for t in targets)
            raise

    def _name(self, value: Value, name: str, before: int) -> None:
        """Give the result of the last node the name of the variable."""
        if isinstance(value, Tensor) and len(self.graph.nodes) > before and value.name in self.graph.nodes[-1].outputs:
            self.graph.rename(value, name)

    def _taken_apart(self, value: Value, targets: tuple[ir.Name, ...], at: Span, e: ir.Expression) -> list[Value]:
        if isinstance(value, Results) and len(value.tensors) == len(targets):
            return list(value.tensors)
        gives = len(value.tensors) if isinstance(value, Results) else 1
        of = value.of if isinstance(value, Results) else describe(value)
        why = f"{len(targets)} names for {gives} result{'s' * (gives != 1)} of {of}"
        how = f"write one name per result: {_names(gives)} = …"
        raise self._refuse("ResultCount", at, why, how)

    def _do(self, s: ir.Do) -> None:
        name = s.call.callee.name
        arguments = s.call.arguments
        if name not in _EFFECTS:
            if name in self.scope.names or not (near(name, _EFFECTS) or self._is_callable(name)):
                raise self.expressions.calls.unknown_function(s.call.callee)
            how = near(name, _EFFECTS) or f"name it: y = {name}(…)"
            raise self._refuse("UnknownOp", s.call.at, f"the result of {name} is not used", how)
        if len(arguments) != 2 or any(a.name is not None for a in arguments):
            example = "update(cache, value)" if name == "update" else "assume(N, 2*M)"
            why = f"{name} has {len(arguments)} arguments"
            raise self._refuse("InvalidAttribute", s.call.at, why, f"write {example}")
        left, right = arguments
        if name == "assume":
            sizes = [self._extent(a.value) for a in (left, right)]
            with self.scope.at(s.call.at):
                self.graph.assume(*sizes)
            return
        target = self._input_of(left.value)
        value = self.expressions.calls.as_tensor(self.expressions.value(right.value), right.at, target.dtype)
        self._check_type(value, target.dtype, target.shape, right.value.at, target.name)
        with self.scope.at(s.call.at):
            self.graph.update(target, value)

    def _is_callable(self, name: str) -> bool:
        return name in self.scope.graphs or self.expressions.calls.is_operation(name)

    def _input_of(self, e: ir.Expression) -> Tensor:
        """The input that an update names, also after its name was assigned again."""
        declared = {p.name.name: p for p in self.declared.parameters}
        if not isinstance(e, ir.Name) or e.name not in declared:
            known = [n for n, p in declared.items() if any(w.name == "mut" for w in p.words)]
            how = (near(e.name, known) if isinstance(e, ir.Name) else "") or "name an input declared with mut"
            raise self._refuse("UnknownName", e.at, "only an input can be updated", how)
        if not any(w.name == "mut" for w in declared[e.name].words):
            how = f"declare it: mut {e.name}: …"
            raise self._refuse("InvalidAttribute", e.at, f"{e.name!r} is not a mutable input", how)
        if self.scope.names[e.name] is UNKNOWN:
            raise Skipped
        return Tensor(self.graph, e.name)

    # -- results -------------------------------------------------------------------------------------
    def _no_return(self, declared: ir.Graph) -> None:
        names = [r.name.name for r in declared.results if r.name is not None] or ["y"]
        why = f"graph {declared.name.name} has no return; it declares {_count(len(declared.results), 'result')}"
        raise self._refuse("MissingReturn", declared.end, why, f"end it with: return {', '.join(names)}")

    def _return(self, s: ir.Return) -> None:
        if self._returned is not None:
            line, _ = self.scope.source.place(self._returned.at)
            raise self._refuse("ResultCount", s.at, f"the graph already returns on line {line}", "keep one return")
        self._returned = s
        values: list[tuple[Value, ir.Expression]] = []
        incomplete = False
        for e in s.values:
            try:
                values += [(v, e) for v in self._spread(self.expressions.value(e), len(s.values))]
            except TatamiError as error:
                self.faults += error.diagnostics
                incomplete = True
            except Skipped:
                incomplete = True
        if incomplete:
            raise Skipped
        results = self.declared.results
        if len(values) != len(results):
            why = f"{_count(len(values), 'value')} for {_count(len(results), 'declared result')}"
            names = ", ".join(r.name.name if r.name else "output" for r in results) or "nothing"
            raise self._refuse("ResultCount", s.extent, why, f"return one value for each of: {names}")
        for result, (value, e) in zip(results, values, strict=True):
            self._guard(partial(self._output, value=value, e=e), result)

    def _spread(self, value: Value, count: int) -> list[Value]:
        return list(value.tensors) if isinstance(value, Results) and count == 1 else [value]

    def _output(self, result: ir.Result, value: Value, e: ir.Expression) -> None:
        name = "output" if result.name is None else result.name.name
        if name in self.scope.sizes:
            raise self._refuse(
                "DuplicateId", result.at, f"{name!r} is a size variable", f"choose another name, such as {name}_"
            )
        dtype, shape = self._type(result.type)
        tensor = self.expressions.calls.as_tensor(value, e.at, dtype)
        self._check_type(tensor, dtype, shape, e.at, name)
        with self.scope.at(e.at):
            tensor = self._as_declared(tensor, shape)
        with self.scope.at(result.at if result.name is not None else e.at):
            self.graph.output(name, tensor)

    def _check_type(self, tensor: Tensor, dtype: DType, shape: Shape, at: Span, name: str) -> None:
        """Compare the declared type with the tensor's; sizes of which neither is proved equal nor different are assumed
        equal."""
        if tensor.dtype not in (dtype, DType.unknown):
            why = f"{name} is declared {dtype_name(dtype)}, the value is {dtype_name(tensor.dtype)}"
            raise self._refuse("DTypeMismatch", at, why, f"cast({dtype_name(dtype)}), or declare {dtype_name(tensor.dtype)}")
        differ = len(tensor.shape) != len(shape)
        for have, declared in zip(tensor.shape, shape):
            difference = (have - declared).as_int()
            decided_by_data = have != declared and bool(free_vars(have) & self.scope.learned)
            differ = differ or difference not in (0, None) or decided_by_data
        if differ:
            why = f"{name} is declared {shape_text(shape)}, the value has shape {shape_text(tensor.shape)}"
            raise self._refuse("AxisAlignmentMismatch", at, why, f"declare {dtype_name(dtype)}{shape_text(tensor.shape)}")
        for have, declared in zip(tensor.shape, shape, strict=True):
            if have != declared:
                with self.scope.at(at):
                    self.graph.assume(have, declared)

    def _as_declared(self, tensor: Tensor, shape: Shape) -> Tensor:
        """The tensor with sizes as declared, since callers see these: the rows of ``concat([x[:1], x[1:-1], x[-1:]])`` are N
        if declared so."""
        return tensor.reshape(shape) if tensor.shape != shape == tuple(map(settled_size, tensor.shape)) else tensor


def _count(n: int, what: str) -> str:
    return f"{n or 'no'} {what}{'s' * (n != 1)}"


def _names(n: int) -> str:
    letters = ", ".join("abcdefgh"[k % 8] for k in range(n))
    return letters if n == 1 else f"({letters})"
