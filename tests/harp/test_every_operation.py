"""Every operation of the table, in every way the frontend's cases use it, has the same name in the language.

Each case is written node by node in the one general form, `result = operation(operands, attribute=value)`, and read back.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Iterable
from typing import Any

import pytest

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr
from tatami.core.module import Module
from tatami.core.scalar import number
from tatami.frontend.graph import Graph
from tatami.frontend.ir import Graph as Program
from tatami.frontend.ir import Node, TensorType
from tatami.frontend.operation import attributes
from tatami.frontend.ops import OPS
from tatami.harp.elaboration.parameters import GRAPH_METHODS, TENSOR_METHODS, attributes_of, graph_method, tensor_method
from tatami.harp.elaboration.values import dtype_name
from tatami.harp.load import parse
from tests.frontend.cases import CASES


def written(module: Module[Program]) -> str:
    return "\n".join(_graph(module, name) for name in reversed(list(module.programs)))


def _graph(module: Module[Program], name: str) -> str:
    g = module.programs[name]
    names = {"": "none"}
    for i in g.signature.inputs:
        names[i.tensor] = i.tensor
    sizes = {s for t in g.tensors.values() for size in t.shape for s in free_vars(size)}
    sizes -= {str(n.attrs["size"]) for n in g.graph if "size" in n.attrs}
    head = ", ".join(f"{s}={g.signature.defaults[s]}" if s in g.signature.defaults else s for s in sorted(sizes))
    lines = []
    passed = []
    for i in g.signature.inputs:
        if i.storage == "const_pool":
            lines.append(f'{i.tensor} = constant({_type(i.dtype, i.shape)}, "{i.tensor}")')
        else:
            words = f"{'mut ' * (i.mutability == 'mutable')}{i.role + ' ' if i.role != 'data' else ''}"
            passed.append(f"{words}{i.tensor}: {_type(i.dtype, i.shape)}")
    for k, node in enumerate(g.graph):
        results = [f"v{k}_{j}" for j in range(len(node.outputs))]
        operands = [names[i] for i in node.inputs]
        names.update(zip(node.outputs, results))
        left = results[0] if len(results) == 1 else f"({', '.join(results)})"
        lines.append(f"{left} = {node.op}({', '.join([*operands, *_attributes(node, module)])})")
    lines += [f"update({o.updates}, {names[o.tensor]})" for o in g.signature.outputs if o.updates]
    outputs = [o for o in g.signature.outputs if not o.updates]
    declared = ", ".join(f"{o.tensor}: {_type(o.dtype, o.shape)}" for o in outputs)
    lines.append(f"return {', '.join(names[o.tensor] for o in outputs)}")
    return f"graph{f'<{head}>' * bool(head)} {name}({', '.join(passed)}) -> ({declared}) {{\n" + "\n".join(lines) + "\n}"


def _type(dtype: DType, shape: Iterable[Expr]) -> str:
    return f"{dtype_name(dtype)}[{', '.join(_size(s) for s in shape)}]"


def _size(size: Expr) -> str:
    return str(size).replace("//", "/")


def _attributes(node: Node, module: Module[Program]) -> list[str]:
    struct = attributes(OPS[node.op], node)
    given = [p for p in attributes_of(node.op) if p.name in node.attrs]
    return [f"{p.name}={_value(getattr(struct, p.name), p.hint, node, module)}" for p in given]


def _value(value: Any, hint: Any, node: Node, module: Module[Program]) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_value(v, None, node, module) for v in value) + "]"
    if isinstance(value, DType):
        return dtype_name(value)
    if isinstance(value, TensorType):
        return _type(value.dtype, value.shape)
    if isinstance(value, Expr):
        text = _size(value)
        if node.op == "view":
            for k in range(8):
                text = text.replace(f"i{k}", f"idx{k}")
        return text
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and {float, str} <= set(typing.get_args(hint)):
        return str(number(value))
    if isinstance(value, str):
        return value if value in module.programs else json.dumps(value)
    return "none" if value is None else repr(value)


def said(module: Module[Program]) -> dict[str, Any]:
    """A module with values by number, without names and places."""
    out = {}
    for name, g in module.programs.items():
        number = {"": "none"} | {i.tensor: f"input {i.tensor}" for i in g.signature.inputs}
        nodes = []
        for node in g.graph:
            number.update((o, f"value {len(number)}") for o in node.outputs)
            struct = attributes(OPS[node.op], node)
            attrs = [repr(getattr(struct, f)) for f in struct.__struct_fields__]
            types = [repr(g.tensors[o]) for o in node.outputs]
            nodes.append((node.op, [number[i] for i in node.inputs], types, attrs))
        outputs = [(number[o.tensor], o.dtype, o.shape, o.updates) for o in g.signature.outputs]
        ports = sorted(map(repr, g.signature.inputs))
        out[name] = (ports, nodes, outputs, g.signature.defaults, sorted(repr((e.lhs, e.rhs)) for e in g.signature.assumptions))
    return {**out, "constants": dict(module.constants)}


@pytest.mark.parametrize("name", CASES)
def test_a_case_in_the_language_is_the_case_of_the_api(name: str) -> None:
    build, _, sizes = CASES[name]
    g = Graph(name)
    results = build(g)
    for k, result in enumerate(results if isinstance(results, tuple | list) else (results,)):
        g.output(f"out{k}", result)
    for symbol, value in sizes.items():
        g.size(symbol, value)
    module = g.module()
    text = written(module)
    assert said(parse(text, {n: t.array for n, t in module.constants.items()}, trust=True)) == said(module), text


def test_every_operation_has_a_case() -> None:
    used = set()
    for build, _, _ in CASES.values():
        g = Graph("all")
        build(g)
        used |= {n.op for h in (g, *g._graphs.values()) for n in h.nodes}
    assert OPS.keys() - used <= {"contiguous"}


@pytest.mark.parametrize("name", sorted(TENSOR_METHODS))
def test_every_method_of_a_tensor_is_a_method_of_the_language(name: str) -> None:
    """Parameters of the language's method are those of the API; a missing one is named with its place."""
    method = tensor_method(name)
    assert method is not None
    assert all(p.hint is not inspect.Parameter.empty for p in method.parameters)
    with pytest.raises(TatamiError) as info:
        parse(f"graph main(x: f32[2, 3]) -> f32[2, 3] {{\n  y = x.{name}(no_such_parameter=1)\n  return x }}", name="m.harp")
    (found,) = info.value.diagnostics
    assert found.at == f"m.harp:2:{10 + len(name)}" and "no_such_parameter" in found.why


@pytest.mark.parametrize("name", sorted(GRAPH_METHODS))
def test_every_function_of_a_graph_is_a_function_of_the_language(name: str) -> None:
    method = graph_method(name)
    assert method is not None
    assert all(p.hint is not inspect.Parameter.empty for p in method.parameters)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("x.softmax(1)", "softmax(x, axis=1)"),
        ("x.sum(1)", "sum(x, dim=1)"),
        ("x.sum(axis=[0, 1], keepdims=true)", "reduce_sum(x, [0, 1], true)"),
        ("x.permute([1, 0])", "permute(x, [1, 0])"),
        ("x.permute(1, 0)", "x.transpose()"),
        ("x.clamp(0.0, 1.0)", "clamp(x, 0.0, 1.0)"),
        ("x.maximum(0.5)", "max(x, .5)"),
        ("x.square()", "x.abs_square()"),
        ("x.tile(0, 3)", "x.tile([3, 1])"),
        ("x.tile(axis=-1, times=N)", "tile(x, [1, N])"),
        ("x ** 2", "x.powi(2)"),
        ("2.0 ** x", "pow(2.0, x)"),
        ("x.take(i, 0)", "take(x, i, axis=0)"),
        ("x.gather(axis=1, index=i)", "gather(x, i, 1)"),
        ("x[i]", "take(x, i)"),
        ("x.reshape([-1])", "x.reshape([6])"),
        ("concat([x, x], 1)", "concat(x, x, axis=1)"),
        ("x.pad([(1, 1), (0, N)], mode=edge)", 'pad(x, [[1, 1], [0, N]], "edge")'),
        ("x.cast(f16)", "cast(x, to=f16)"),
        ("x.view_expr([N, 2], idx0 + idx1)", "x.view([N, 2], linear=idx0 + idx1)"),
        ("x @ x.transpose()", "matmul(x, x.permute(1, 0))"),
        ("-x", "neg(x)"),
        ("!(x > 1.0)", "not(gt(x, 1.0))"),
        ("x.argmax()", "argmax(x, axis=-1)"),
        ("x.contiguous()", "contiguous(x)"),
        ("full([2, min(N, 3)], 1.0, f32)", "full(shape=[2, min(3, N)], value=1.0, dtype=f32)"),
    ],
)
def test_two_ways_to_say_one_operation(left: str, right: str) -> None:
    def nodes(text: str) -> Any:
        program = parse(f"graph<N=4> main(x: f32[2, 3], i: i64[2, 3]) -> f32[2, 3] {{ y = {text} return x }}").main
        return [(n.op, n.attrs, [program.tensors[o] for o in n.outputs]) for n in program.graph]

    assert nodes(left) == nodes(right)


def test_numbers_and_arrays_become_what_the_attribute_has() -> None:
    module = parse("graph main(x: f32[2, 3]) -> f32[3] { return reduce_sum(x, 0) + reduce_sum(x, axes=[0]) }")
    assert [n.attrs for n in module.main.graph[:2]] == [{"axes": [0]}, {"axes": [0]}]
    assert expr(3) == module.main.signature.outputs[0].shape[0]


def test_a_text_with_a_c_body_needs_trust() -> None:
    text = """graph main(x: f32[2]) -> f32[2] {
  return kernel_body(x, outputs=[f32[2]], c="for (ridx0 = 0; ridx0 < shape0; ++ridx0) output[ridx0] = input0[ridx0];")
}"""
    with pytest.raises(TatamiError) as info:
        parse(text, name="m.harp")
    (found,) = info.value.diagnostics
    assert (found.kind, found.at) == ("Untrusted", "m.harp:2:10") and "trust=True" in found.suggestion
    assert [n.op for n in parse(text, trust=True).main.graph] == ["kernel_body"]
