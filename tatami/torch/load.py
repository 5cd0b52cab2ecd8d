"""A PyTorch module, or an exported program of torch.export, as a frontend module.

Parameters and buffers become constants; a buffer that the model writes becomes a mutable input of its name, which the
caller passes and which is updated in place. Inputs keep the names of `forward`; a torch.export.Dim names its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._pytree import tree_flatten

from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, var
from tatami.core.module import Module
from tatami.frontend import ir
from tatami.frontend.specialise import specialise
from tatami.torch.decompose import decompositions, whole_interpolation
from tatami.torch.import_graph import import_graph
from tatami.torch.imported import Frame, described
from tatami.torch.sizes import shape_of


def load_module(module: torch.nn.Module, example_inputs: object = None, dynamic_shapes: object = None) -> Module[ir.Graph]:
    """Export `module` for inputs like `example_inputs` (a tuple of arguments, or a mapping by name) and import it."""
    args, kwargs = arguments(example_inputs)
    training = module.training
    try:
        with torch.no_grad():
            exported = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    except (torch._dynamo.exc.TorchDynamoException, RuntimeError, TypeError, ValueError, AssertionError) as error:
        why = " ".join(str(error).split())[:300]
        advice = "give example_inputs that the module takes, and make what torch.export names exportable"
        raise fail("UnsupportedModel", type(module).__name__, f"torch.export refuses it: {why}", advice) from error
    finally:
        module.train(training)
    return load_exported(exported, dims=dim_names(args, kwargs, dynamic_shapes))


def arguments(example_inputs: object) -> tuple[tuple[object, ...], dict[str, object]]:
    """Positional and named arguments. Raises InputMismatch."""
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,), {}
    if isinstance(example_inputs, list | tuple):
        return tuple(example_inputs), {}
    raise fail(
        "InputMismatch",
        "example_inputs",
        "a PyTorch module is exported by running it, and there is nothing to run it with",
        "pass example_inputs=(tensor, …), or a mapping by the names of forward",
    )


def load_exported(
    program: ExportedProgram, example_inputs: object = None, dims: Mapping[tuple[int, int], str] | None = None
) -> Module[ir.Graph]:
    """Import an exported program. `dims`: names of sizes by (input tensor, axis)."""
    with whole_interpolation():
        program = program.run_decompositions(decompositions())
    signature = program.graph_signature
    held = {**program.state_dict, **program.constants}
    updated = {s.target for s in signature.output_specs if s.kind == OutputKind.BUFFER_MUTATION}
    position = {s.arg.name: k for k, s in enumerate(signature.input_specs)}
    by_target = {s.target: k for k, s in enumerate(signature.input_specs) if s.target is not None}
    names: dict[int, str] = {}
    constants: dict[int, torch.Tensor] = {}
    users: list[int] = []
    for k, spec in enumerate(signature.input_specs):
        name = str(spec.target or spec.arg.name)
        names[k] = spec.arg.name if name in names.values() else name
        if spec.kind == InputKind.USER_INPUT:
            users.append(k)
        elif spec.target in held and spec.target not in updated:
            constants[k] = held[spec.target]
    updates: dict[int, int] = {}
    results: list[int] = []
    for k, spec in enumerate(signature.output_specs):
        if spec.kind == OutputKind.BUFFER_MUTATION:
            updates[k] = by_target[spec.target]
        elif spec.kind == OutputKind.USER_INPUT_MUTATION:
            updates[k] = position[spec.target]
        else:
            results.append(k)
    outputs = {k: "output" if len(results) == 1 else f"output_{n}" for n, k in enumerate(results)}
    imported = import_graph(program.graph_module, Frame(names, constants, updates, outputs, logical=True, raises=False))
    if imported.unsupported:
        raise fail(
            "UnsupportedModel",
            "torch.export",
            described(imported.unsupported),
            'use torch.compile(module, backend="tatami"), which leaves these operators to PyTorch',
        )
    return specialise(imported.module(), _renamed(program, users, dims or {}))


def _renamed(program: ExportedProgram, users: Sequence[int], dims: Mapping[tuple[int, int], str]) -> dict[str, Expr]:
    """PyTorch's symbols → the caller's names of their sizes."""
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    out: dict[str, Expr] = {}
    for (k, axis), name in dims.items():
        value = placeholders[users[k]].meta.get("val") if k < len(users) else None
        if isinstance(value, torch.Tensor) and axis < value.dim():
            symbol = shape_of(value)[axis].as_name()
            if symbol is not None:
                out.setdefault(symbol, var(name))
    return out


def dim_names(args: tuple[object, ...], kwargs: Mapping[str, object], dynamic_shapes: object) -> dict[tuple[int, int], str]:
    """(input tensor, axis) → the name of its torch.export.Dim."""
    if not isinstance(dynamic_shapes, Mapping | list | tuple):
        return {}
    given: list[object] = [*args, *kwargs.values()]
    if isinstance(dynamic_shapes, Mapping):
        by_name = list(dynamic_shapes.values())
        said = [dynamic_shapes.get(k) for k in kwargs] if kwargs and not args else by_name
    else:
        said = list(dynamic_shapes)
    out: dict[tuple[int, int], str] = {}
    first = 0
    for value, spec in zip(given, said, strict=False):
        leaves = tree_flatten(value)[0]
        if len(leaves) == 1 and isinstance(leaves[0], torch.Tensor) and spec is not None:
            axes = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
            for axis, dim in axes:
                name = getattr(dim, "__name__", None)
                if isinstance(name, str) and name.isidentifier():
                    out[first, axis] = name
        first += len(leaves)
    return out
