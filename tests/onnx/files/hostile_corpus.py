"""A corpus of hostile ONNX files, each opened and lowered in a process of its own: 10 s and 1 GB of memory, and nothing
but a diagnostic or a program may come out.

`python -m tests.onnx.files.hostile_corpus` runs all of it; tests/onnx/files/test_hostile.py a fixed part.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SECONDS = 10
"""Limit of the child's processor time, in seconds; a child that waits is ended after this many minutes."""
BYTES = 1 << 30
FLIPS = 200
FLOAT = TensorProto.FLOAT
OPSETS = [helper.make_opsetid("", 18)]


def port(name: str, *shape: int | str, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], *tensors: onnx.TensorProto) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, [port("y", "A", "B")], list(tensors))
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=9)


def small() -> onnx.ModelProto:
    """A product, a branch and a loop: every kind of thing a file can hold."""
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    out = [port("t", "A", "B")]
    branches = {
        f"{name}_branch": helper.make_graph([helper.make_node(op, ["m"], ["t"])], name, [], out)
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "s"], ["s1"]), helper.make_node("Identity", ["go"], ["go1"])],
        "body",
        [port("i", kind=TensorProto.INT64), port("go", kind=TensorProto.BOOL), port("s", "A", 3)],
        [port("go1", kind=TensorProto.BOOL), port("s1", "A", 3)],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("If", ["c"], ["b"], **branches),
        helper.make_node("Loop", ["n", "", "b"], ["y"], body=body),
    ]
    count = numpy_helper.from_array(np.array(3, np.int64), "n")
    return model(nodes, [port("x", "N", 4), port("c", kind=TensorProto.BOOL)], weight, count)


def corpus(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every file, written when it is asked for."""

    def put(name: str, data: bytes | onnx.ModelProto) -> tuple[str, Path]:
        path = folder / f"{name}.onnx"
        path.write_bytes(data if isinstance(data, bytes) else data.SerializeToString())
        return name, path

    whole = small().SerializeToString()
    for end in range(0, len(whole), 10):
        yield put(f"truncated-{end}", whole[:end])
    rng = random.Random(0)
    for i in range(FLIPS):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        yield put(f"flipped-{i}", bytes(data))
    for name, made in (*_oversized(), *_cyclic(), *_nested(), *_named()):
        yield put(name, made)
    yield from _external(folder)


def _oversized() -> Iterator[tuple[str, onnx.ModelProto]]:
    relu = [helper.make_node("Relu", ["x"], ["y"])]
    for name, shape in (("huge", (1 << 62, 8)), ("product", (1 << 31, 1 << 31)), ("negative", (-5, 2)), ("rank", (1,) * 400)):
        yield f"dimension-{name}", model(relu, [port("x", *shape)])
    for name, dims, data in (("short", (1 << 20, 4), b"1234"), ("overflow", (1 << 62, 1 << 62), b""), ("minus", (-1, 4), b"")):
        tensor = TensorProto(name="x", data_type=FLOAT, raw_data=data)
        tensor.dims.extend(dims)
        yield f"payload-{name}", model(relu, [], tensor)
    for name, size in (("shape", 1 << 40), ("minus", -7)):
        shape = numpy_helper.from_array(np.array([size, 1 << 20], np.int64), "s")
        yield f"constant-of-{name}", model([helper.make_node("ConstantOfShape", ["s"], ["y"])], [], shape)
    for op, value in (("Expand", 1 << 45), ("Tile", 1 << 40), ("Reshape", 1 << 50)):
        wanted = numpy_helper.from_array(np.array([value, 3], np.int64), "s")
        yield f"operand-{op}", model([helper.make_node(op, ["x", "s"], ["y"])], [port("x", 1, 3)], wanted)
    limits = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (("a", 0), ("b", 1 << 60), ("c", 1))]
    yield "range", model([helper.make_node("Range", ["a", "b", "c"], ["y"])], [], *limits)
    trips = numpy_helper.from_array(np.array(1 << 62, np.int64), "n")
    loop = small()
    loop.graph.initializer[1].CopyFrom(trips)
    yield "loop-forever", loop
    bomb = [helper.make_node("Concat", ["x", "x"], ["t0"], axis=0)]
    bomb += [helper.make_node("Concat", [f"t{i}"] * 2, [f"t{i + 1}" if i < 59 else "y"], axis=0) for i in range(60)]
    yield "doubling", model(bomb, [port("x", 1 << 10, 1 << 10)])
    kernel = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1 << 40] * 4, strides=[1, 1])
    weight = numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w")
    yield "pads", model([kernel], [port("x", 1, 1, 4, 4)], weight)


def _cyclic() -> Iterator[tuple[str, onnx.ModelProto]]:
    def relu(a: str, b: str) -> onnx.NodeProto:
        return helper.make_node("Relu", [a], [b])

    yield "cycle-self", model([relu("y", "y")], [port("x", 2, 2)])
    yield "cycle-two", model([relu("a", "y"), relu("y", "a")], [port("x", 2, 2)])
    yield "disorder", model([relu("a", "y"), relu("x", "a")], [port("x", 2, 2)])
    yield "twice", model([relu("x", "y"), relu("x", "y")], [port("x", 2, 2)])
    yield "nothing", model([], [port("x", 2, 2)])
    recursive = model([helper.make_node("F", ["x"], ["y"], domain="own")], [port("x", 2, 2)])
    sets = [*OPSETS, helper.make_opsetid("own", 1)]
    recursive.opset_import.append(sets[1])
    for other in ("F", "G"):
        inside = helper.make_node("G" if other == "F" else "F", ["a"], ["b"], domain="own")
        recursive.functions.append(helper.make_function("own", other, ["a"], ["b"], [inside], sets))
    yield "functions", recursive


def _nested() -> Iterator[tuple[str, onnx.ModelProto]]:
    for kind, depth in (("If", 5), ("If", 12), ("If", 14), ("Loop", 20)):
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [port("y", 2, 2)])
        node = graph.node[0]
        for i in range(depth):
            if kind == "If":
                other = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], f"o{i}", [], [port("y", 2, 2)])
                node = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph if depth == 14 else other)
                graph = helper.make_graph([node], f"g{i}", [], [port("y", 2, 2)])
            else:
                truth = helper.make_node("Identity", [f"go{i}"], [f"more{i}"])
                ports = [port(f"i{i}", kind=TensorProto.INT64), port(f"go{i}", kind=TensorProto.BOOL)]
                inner = helper.make_graph([truth, *graph.node], f"b{i}", ports, [port(f"more{i}", kind=TensorProto.BOOL)])
                node = helper.make_node("Loop", ["n", ""], [], body=inner)
                graph = helper.make_graph([node], f"g{i}", [], [])
        inputs = [port("x", 2, 2), port("c", kind=TensorProto.BOOL), port("n", kind=TensorProto.INT64)]
        yield f"nested-{kind}-{depth}", model([node], inputs)
    chain = [helper.make_node("Relu", ["x" if i == 0 else f"t{i}"], [f"t{i + 1}" if i < 1999 else "y"]) for i in range(2000)]
    yield "chain", model(chain, [port("x", 2, 2)])


NAMES = (
    'x"); system("touch evil"); //',
    "a\nint evil(void) { return 1; }\n",
    "*/ int evil; /*",
    "%s%n%p",
    "../../etc/passwd",
    "$(touch evil)`id`",
    "k" * 10_000,
    "main",
    "",
)


def _named() -> Iterator[tuple[str, onnx.ModelProto]]:
    for i, name in enumerate(NAMES):
        nodes = [
            helper.make_node("Add", [f"x{name}", f"x{name}"], [f"t{name}"], name=name),
            helper.make_node("Relu", [f"t{name}"], ["y"], name=name),
        ]
        made = model(nodes, [port(f"x{name}", name or "N", 2)])
        made.graph.name, made.producer_name, made.doc_string = name, name, name
        yield f"name-{i}", made
        strange = model([helper.make_node(name or "Nothing", ["x"], ["y"], domain=name)], [port("x", 2, 2)])
        strange.opset_import.append(helper.make_opsetid(name, 1))
        yield f"operator-{i}", strange


def _external(folder: Path) -> Iterator[tuple[str, Path]]:
    secret = folder / "secret.bin"
    secret.write_bytes(bytes(64))
    home = folder / "home"
    home.mkdir()
    (home / "own.bin").write_bytes(bytes(16))
    (home / "link.bin").symlink_to(secret)
    (home / "dir").symlink_to(folder)
    os.link(secret, home / "hard.bin")
    os.mkfifo(home / "fifo.bin")
    places = {
        "good": "own.bin", "parent": "../secret.bin", "detour": "a/../../secret.bin", "absolute": str(secret),
        "symlink": "link.bin", "symlink-folder": "dir/secret.bin", "hard-link": "hard.bin", "fifo": "fifo.bin",
        "device": "/dev/zero", "folder": ".", "missing": "none.bin", "empty": "", "null": "a\0b", "backslash": "..\\secret.bin",
    }  # fmt: skip
    attacks = [(name, {"location": place}) for name, place in places.items()]
    attacks += [
        (f"entry-{i}", {"location": "own.bin", **more})
        for i, more in enumerate(
            ({"offset": "8"}, {"offset": "-1"}, {"length": "99"}, {"offset": "x"}, {"length": str(1 << 62)})
        )
    ]
    for name, entries in attacks:
        tensor = TensorProto(name="w", data_type=FLOAT, data_location=TensorProto.EXTERNAL)
        tensor.dims.extend([2, 2])
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        path = home / f"external-{name}.onnx"
        made = model([helper.make_node("Add", ["x", "w"], ["y"])], [port("x", 2, 2)], tensor)
        path.write_bytes(made.SerializeToString())
        yield f"external-{name}", path


def judge(path: Path) -> str:
    """The outcome of a file, found by a child under the limits: "program", "refused KIND …" or a fault."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _limited(path, write)
    os.close(write)
    with os.fdopen(read) as answers:
        text = answers.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"fault: more than {SECONDS} s" if number in (signal.SIGPROF, signal.SIGALRM) else f"fault: signal {number}"
    return text or "fault: no answer"


def _limited(path: Path, write: int) -> None:
    """The child's part: set the limits, do the work, write one line of answer. Never returns."""
    from tatami.api import prepare
    from tatami.core.diagnostic import TatamiError

    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(60 * SECONDS)
    try:
        _ = prepare(path, target="cpu:generic").stages["c"]
        answer = "program"
    except TatamiError as error:
        clear = all(d.at and d.why and d.suggestion and d.kind != "InternalError" for d in error.diagnostics)
        kinds = " ".join(sorted({d.kind for d in error.diagnostics}))
        answer = f"refused {kinds}" if clear else f"fault: {error}"
    except BaseException as error:
        answer = f"fault: {type(error).__name__}: {error}"
    os.write(write, answer[:2000].encode("utf-8", "replace"))
    os._exit(0)


def run(every: int = 1, prefix: str = "") -> dict[str, str]:
    """The verdict of each `every`-th file whose name begins with `prefix`."""
    import tatami.api  # the children share what is imported here
    import tatami.onnx.load
    import tatami.pipeline

    assert tatami.api and tatami.onnx.load and tatami.pipeline
    with tempfile.TemporaryDirectory() as name:
        files = [(title, path) for title, path in corpus(Path(name)) if title.startswith(prefix)]
        return {title: judge(path) for title, path in files[::every]}


def summary(verdicts: dict[str, str]) -> str:
    """A row per kind of file, named by the first word of the files, and the kinds of diagnostics."""
    rows: dict[str, Counter[str]] = {}
    kinds: Counter[str] = Counter()
    for name, verdict in verdicts.items():
        outcome, *more = verdict.split()
        for row in (name.split("-")[0], "together"):
            rows.setdefault(row, Counter())[outcome.strip(":")] += 1
        kinds.update(more if outcome == "refused" else [])
    lines = ["| files | number | refused | compiled | faults |", "|---|---|---|---|---|"]
    rows["together"] = rows.pop("together", Counter())
    lines += [f"| {n} | {r.total()} | {r['refused']} | {r['program']} | {r['fault']} |" for n, r in rows.items()]
    return "\n".join([*lines, "", "Diagnostics: " + ", ".join(f"{k} {n}" for k, n in kinds.most_common()) + "."])


def main() -> int:
    verdicts = run()
    faults = {n: v for n, v in verdicts.items() if v.startswith("fault")}
    print(summary(verdicts))
    print("\n".join(f"{name}: {fault}" for name, fault in faults.items()))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
