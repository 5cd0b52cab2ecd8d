"""Models with one or two fields damaged: every operator version of `operator_versions`, and what a file may do to it.

`python -m tests.onnx.files.damaged_models COUNT SEED` tries so many and prints what left the importer as a Python error.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator

import onnx
from onnx import TensorProto, helper

from tests.onnx.files.hostile_corpus import small
from tests.onnx.versions.operator_versions import RECIPES, versions
from tests.onnx.versions.version_case import model_of

NUMBERS = (-(2**63), -(2**31) - 1, -7, -2, -1, 0, 1, 2, 3, 5, 17, 2**31, 2**40, 2**62, 2**63 - 1)
FLOATS = (float("nan"), float("inf"), float("-inf"), 0.0, -1.0, 0.5, 1e-40, 3e38)


def originals() -> list[onnx.ModelProto]:
    made = [small()]
    for op, version in versions():
        for case in RECIPES[op](op, version) if op in RECIPES else ():
            made.append(model_of(op, version, case)[0])
    return made


def damaged(model: onnx.ModelProto, rng: random.Random) -> bytes:
    """The bytes of a copy with a fault or two."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _ in range(rng.choice((1, 1, 1, 2))):
        _FAULTS[rng.randrange(len(_FAULTS))](copy, rng)
    data = bytearray(copy.SerializeToString())
    if rng.random() < 0.2:
        for _ in range(rng.choice((1, 2, 4))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _attributes(model: onnx.ModelProto) -> list[onnx.AttributeProto]:
    return [a for n in model.graph.node for a in n.attribute]


def _number(model: onnx.ModelProto, rng: random.Random) -> None:
    for a in _attributes(model):
        if a.type == onnx.AttributeProto.INT:
            a.i = rng.choice(NUMBERS)
        elif a.type == onnx.AttributeProto.INTS and a.ints:
            a.ints[rng.randrange(len(a.ints))] = rng.choice(NUMBERS)
        elif a.type == onnx.AttributeProto.FLOAT:
            a.f = rng.choice(FLOATS)
        elif a.type == onnx.AttributeProto.FLOATS and a.floats:
            a.floats[rng.randrange(len(a.floats))] = rng.choice(FLOATS)


def _length(model: onnx.ModelProto, rng: random.Random) -> None:
    for a in _attributes(model):
        for values in (a.ints, a.floats, a.strings):
            if len(values):
                del values[rng.randrange(len(values)) :]
                if rng.random() < 0.3:
                    values.extend([1, 2] * 3 if values is not a.strings else [b"x"])


def _word(model: onnx.ModelProto, rng: random.Random) -> None:
    for a in _attributes(model):
        if a.type == onnx.AttributeProto.STRING:
            a.s = rng.choice((b"", b"SAME_UPPER", b"linear", b"\xff\xfe", b"a,b->c", b"->", b"...", b"ab,b"))


def _kind(model: onnx.ModelProto, rng: random.Random) -> None:
    every = _attributes(model)
    if every:
        rng.choice(every).type = rng.choice(onnx.AttributeProto.AttributeType.values())


def _less(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    for values in rng.sample([node.attribute, node.input, node.output], 2):
        if len(values):
            del values[rng.randrange(len(values))]


def _more(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    names = [p.name for p in (*model.graph.input, *model.graph.output)] + ["", "nothing"]
    node.input.insert(rng.randrange(len(node.input) + 1), rng.choice(names))


def _other_operator(model: onnx.ModelProto, rng: random.Random) -> None:
    rng.choice(model.graph.node).op_type = rng.choice(sorted(RECIPES))


def _dtype(model: onnx.ModelProto, rng: random.Random) -> None:
    if rng.random() < 0.5 and model.graph.initializer:
        rng.choice(model.graph.initializer).data_type = rng.randrange(0, 30)
    elif model.graph.input:
        rng.choice(model.graph.input).type.tensor_type.elem_type = rng.randrange(0, 70)


def _shape(model: onnx.ModelProto, rng: random.Random) -> None:
    if rng.random() < 0.5 and model.graph.initializer:
        tensor = rng.choice(model.graph.initializer)
        dims = [rng.choice(NUMBERS) for _ in range(rng.randrange(4))]
        del tensor.dims[:]
        tensor.dims.extend(dims)
    elif model.graph.input:
        dims = rng.choice(model.graph.input).type.tensor_type.shape.dim
        if dims and rng.random() < 0.6:
            dim = rng.choice(dims)
            if rng.random() < 0.5:
                dim.dim_value = rng.choice(NUMBERS)
            else:
                dim.dim_param = rng.choice(("N", "?", "", "-1", "N M", "S_1"))
        elif dims and rng.random() < 0.5:
            del dims[0]
        else:
            dims.add(dim_value=rng.choice(NUMBERS))


def _content(model: onnx.ModelProto, rng: random.Random) -> None:
    """Axes, shapes and counts with other numbers."""
    for tensor in model.graph.initializer:
        count = rng.choice((0, 1, 2, 4, 5))
        if tensor.data_type == TensorProto.INT64:
            tensor.CopyFrom(
                helper.make_tensor(tensor.name, TensorProto.INT64, [count], [rng.choice(NUMBERS) for _ in range(count)])
            )
        elif tensor.data_type == TensorProto.FLOAT and len(tensor.dims) < 2:
            tensor.CopyFrom(
                helper.make_tensor(tensor.name, TensorProto.FLOAT, [count], [rng.choice(FLOATS) for _ in range(count)])
            )


def _opset(model: onnx.ModelProto, rng: random.Random) -> None:
    model.opset_import[0].version = rng.choice((-3, 0, 1, 5, 7, 9, 10, 11, 13, 18, 21, 28, 99))


def _name(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    if node.output:
        node.output[0] = rng.choice([p.name for p in model.graph.input] + ["", "y0", "t1", "other"])


_FAULTS: tuple[Callable[[onnx.ModelProto, random.Random], None], ...] = (
    _number, _number, _length, _word, _kind, _less, _more, _other_operator, _dtype, _shape, _content, _opset, _name,
)  # fmt: skip


def judge(data: bytes) -> str:
    """The outcome: "module", "refused KIND" or the Python error."""
    from tatami.core.diagnostic import TatamiError
    from tatami.core.files.data_files import ModelFile
    from tatami.onnx.load import load_file

    try:
        load_file(ModelFile("damaged.onnx", data))
    except TatamiError as error:
        first = error.diagnostics[0]
        unforeseen = first.kind == "InvalidDocument" and "do not fit together: " in first.why
        return f"unforeseen {first.why}" if unforeseen else f"refused {first.kind}"
    except Exception as error:  # the fault looked for
        import traceback

        return f"fault {type(error).__name__}: {error} " + traceback.format_exc().strip().split("\n")[-3].strip()
    return "module"


def trials(count: int, seed: int) -> Iterator[tuple[bytes, str]]:
    rng = random.Random(seed)
    models = originals()
    for _ in range(count):
        data = damaged(rng.choice(models), rng)
        yield data, judge(data)


def main() -> int:
    count, seed = (int(w) for w in sys.argv[1:3])
    found: dict[str, int] = {}
    for _, verdict in trials(count, seed):
        found[verdict] = found.get(verdict, 0) + 1
    for verdict, number in sorted(found.items(), key=lambda f: -f[1]):
        print(number, verdict.replace("\n", " ")[:300])
    return any(v.startswith("fault") for v in found)


if __name__ == "__main__":
    sys.exit(main())
