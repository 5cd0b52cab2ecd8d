"""Files, names and surroundings of an adversary: one diagnostic each, nothing run, nothing left behind."""

from __future__ import annotations

import copy
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import tatami as tt
from tatami.api import prepare
from tatami.bench.inputs import gather_inputs
from tatami.cli import main
from tatami.core.diagnostic import TatamiError
from tatami.core.document import content_sha256, parse_document, read_bytes
from tatami.core.files.data_files import DataFiles, read_model, read_part
from tatami.frontend.graph import Graph
from tatami.models import open_model
from tatami.runtime.building import cache, compiler
from tatami.storage.dump import to_document

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
QUICK = settings(
    max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

HOSTILE = (
    'x"); system("touch /tmp/tatami-was-here"); //',
    "a\nint evil(void) { return 1; }\n",
    "*/ int evil; /*",
    "%s%n%p",
    "../../etc/passwd",
    "$(touch evil)`id`",
    "\\x22); //",
    "??/\n",
    "名前\u202e.c",
    "k" * 10_000,
)
C_WORDS = ("int", "main", "for", "sizes", "pool", "tatami_entry", "NULL", "s0", "p0")


def tatami(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env=environment)


def command(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen(
        [sys.executable, "-m", "tatami", *arguments],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a background job begins with it ignored
    )


def refuses(result: Result, kind: str) -> str:
    """The command ended with exit code 1 and one diagnostic of `kind` on stderr; returns it."""
    assert result.exit_code == 1, result.output
    assert f" {kind} at " in result.stderr
    assert "suggestion: " in result.stderr
    assert "Traceback" not in result.output + result.stderr
    return result.stderr


def is_clear(error: TatamiError) -> None:
    for d in error.diagnostics:
        assert d.code and d.kind and d.at and d.why and d.suggestion
        assert "Traceback" not in str(d)


def survives(make: Any) -> None:
    """`make` gives a value, or a diagnostic that is complete and does not blame Tatami."""
    try:
        make()
    except TatamiError as error:
        is_clear(error)
        assert all(d.kind != "InternalError" for d in error.diagnostics), str(error)


# -- names -----------------------------------------------------------------------------------------


def hostile_model(name: str) -> onnx.ModelProto:
    """relu(x @ w + w0) where everything that can have a name has `name`."""
    w = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), f"the_w{name}")
    nodes = [
        helper.make_node("MatMul", [f"the_x{name}", f"the_w{name}"], [f"the_m{name}"], name=f"the_n{name}"),
        helper.make_node("Relu", [f"the_m{name}"], [f"the_y{name}"], name=f"the_n2{name}"),
    ]
    graph = helper.make_graph(
        nodes,
        f"the_g{name}",
        [helper.make_tensor_value_info(f"the_x{name}", TensorProto.FLOAT, [f"the_d{name}", 4])],
        [helper.make_tensor_value_info(f"the_y{name}", TensorProto.FLOAT, [f"the_d{name}", 3])],
        [w],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("name", (*HOSTILE, *C_WORDS), ids=range(len(HOSTILE) + len(C_WORDS)))
def test_a_hostile_name_never_reaches_code_and_the_program_runs(name: str, tmp_path: Path) -> None:
    f = tt.compile(hostile_model(name))
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    result = f({f"the_x{name}": x})[f"the_y{name}"]
    np.testing.assert_allclose(result, np.maximum(x @ np.arange(12, dtype=np.float32).reshape(4, 3), 0), rtol=1e-5)
    source = f.compilation.stages["c"].main
    text = "\n".join([source.entry, *source.units, *(u.text for u in source.units.values())])
    for word in (
        f"the_x{name}",
        f"the_w{name}",
        f"the_y{name}",
        f"the_g{name}",
        f"the_d{name}",
        *([name] if name in HOSTILE else []),
    ):
        assert word not in text or word in ("s0", "p0")


def test_hostile_names_never_reach_cuda_code() -> None:
    for name in HOSTILE:
        g = Graph(name)
        a, b = g.input(f"a{name}", (64, 32), tt.fp16), g.input(f"b{name}", (32, 64), tt.fp16)
        g.output(f"the_y{name}", (a @ b).relu())
        source = prepare(g, target="sm80").stages["cu"].main
        assert name not in "\n".join([*(u.text for u in source.units), *(u.symbol for u in source.units), *source.headers])


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_size_symbol_is_refused_by_name(name: str) -> None:
    with pytest.raises(TatamiError) as error:
        Graph("g").input("x", (name,), tt.fp32)
    is_clear(error.value)


@pytest.mark.parametrize("name", ["%s%n.onnx", "a b;touch evil.onnx", "-o.onnx", "\u202e名.onnx", "it's.onnx"])
def test_a_hostile_file_name_is_only_a_file_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(hostile_model("n").SerializeToString())
    result = tatami("compile", f"./{name}", "-o", "out", "--dump", "frontend")
    assert result.exit_code == 0, result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, "out"])
    assert all(p.name.replace("_", "").replace(".", "").replace("-", "").isalnum() for p in (tmp_path / "out").rglob("*"))


def test_messages_show_control_characters_instead_of_sending_them() -> None:
    result = tatami("run", str(DIGITS), "--input", "\x1b[2Jx=shape:1")
    assert "\x1b" not in refuses(result, "UnknownName")


@pytest.mark.parametrize("stage", ["loop", "execution", "gpu"])
def test_documents_cannot_name_kernels_and_registers_as_they_like(stage: str) -> None:
    """Every word of a body is replaced by C code in turn: refused, or it never reaches the text."""
    target = "sm80" if stage == "gpu" else "cpu"
    body, text_of = documents(target)[stage], "cu" if stage == "gpu" else "c"
    evil = "a; evil(); int b"
    rng = random.Random(stage)
    places = list(strings(body["programs"]))
    for place in rng.sample(places, min(len(places), 60)):
        changed = copy.deepcopy(body)
        put(changed["programs"], place, evil)
        try:
            source = prepare(changed, target=target).stages[text_of].main
        except TatamiError as error:
            is_clear(error)
            continue
        units = source.units.values() if isinstance(source.units, dict) else source.units
        names = list(source.units) if isinstance(source.units, dict) else [u.symbol for u in units]
        assert "evil" not in "\n".join([*names, *(u.text for u in units), getattr(source, "entry", "")]), place


# -- damaged documents -----------------------------------------------------------------------------

_DOCUMENTS: dict[str, dict[str, Any]] = {}


def documents(target: str = "cpu") -> dict[str, Any]:
    """A document of every stage of a small program, each with the earlier ones it needs inside."""
    if target not in _DOCUMENTS:
        g = Graph("g")
        dtype = tt.fp32 if target == "cpu" else tt.fp16
        x, w = g.input("x", ("B", 32), dtype), g.constant(np.ones((32, 64), "float32" if target == "cpu" else "float16"))
        h = (x @ w).relu()
        g.output("y", h.softmax(1) if target == "cpu" else h)
        compilation = prepare(g, target=target)
        made: dict[str, Any] = {}
        from tatami.core.document import InputRef, content_sha256, document_text, parse_document
        from tatami.stages import stage

        for name, value in compilation.values().items():
            inputs = {
                n: InputRef(sha256=content_sha256(parse_document(made[n])), document=made[n])
                for n in stage(name).needs
                if n in made
            }
            document = to_document(name, value, compilation.target, inputs=inputs)
            made[name] = json.loads(document_text(document))
        _DOCUMENTS[target] = made
    return _DOCUMENTS[target]


STAGES = (
    "frontend", "tiny@imported", "tiny", "indexbook", "poly_view", "region@explicit", "region", "poly_core", "plan", "loop",
    "execution",
)  # fmt: skip
JUNK: tuple[Any, ...] = (
    None, 3, -1, 0, 2.5, "", "zz", "i0 %", "M*", "B//0", [], [1], ["x"], {}, {"a": 1}, True, 10**30, -(10**30), "INF", [[0, 0]],
    "(" * 5000, "n0",
)  # fmt: skip


def strings(value: Any, place: tuple[Any, ...] = ()) -> Any:
    """The places of all strings."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        if isinstance(inner, str):
            yield (*place, key)
        else:
            yield from strings(inner, (*place, key))


def put(value: Any, place: tuple[Any, ...], new: Any) -> None:
    for key in place[:-1]:
        value = value[key]
    value[place[-1]] = new


def damage(document: Any, rng: random.Random) -> None:
    """One place of the programs deleted, doubled, moved by a little, or replaced by junk."""
    where = document["programs"]
    while True:
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        if not keys:
            return
        key = rng.choice(keys)
        inner = where[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.85:
            where = inner
            continue
        action = rng.random()
        if action < 0.15:
            del where[key]
        elif action < 0.25 and isinstance(where, list):
            where.insert(key, copy.deepcopy(inner))
        elif action < 0.4 and isinstance(inner, int):
            where[key] = int(inner) + rng.choice((-1, 1, 7, 1000))
        else:
            where[key] = copy.deepcopy(rng.choice(JUNK))
        return


@pytest.mark.parametrize("stage", STAGES)
def test_a_document_with_a_damaged_field_is_refused_or_means_something(stage: str) -> None:
    for i in range(24):
        document = copy.deepcopy(documents()[stage])
        damage(document, random.Random(f"{stage}/{i}"))
        survives(lambda d=document: prepare(d).stages["c"])


@pytest.mark.parametrize("stage", STAGES)
def test_a_torn_or_flipped_document_gives_a_diagnostic(stage: str, tmp_path: Path) -> None:
    data = json.dumps(documents()[stage]).encode()
    rng = random.Random(stage)
    path = tmp_path / "document.json"
    for cut in [0, 1, len(data) // 2, len(data) - 1, *(rng.randrange(len(data)) for _ in range(4))]:
        path.write_bytes(data[:cut])
        with pytest.raises(TatamiError) as error:
            open_model(path)
        is_clear(error.value)
    for _ in range(12):
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        survives(lambda: open_model(path))


def test_inputs_of_setup_are_constants() -> None:
    document = copy.deepcopy(documents()["execution"])
    (setup,) = (p for n, p in document["programs"].items() if n == "setup")
    for buffer in setup["buffers"]:
        if buffer["kind"] == "constant":
            buffer["kind"] = "input"
    with pytest.raises(TatamiError, match="InvalidExecution"):
        prepare(document)


def test_an_earlier_stage_that_changed_is_noticed(tmp_path: Path) -> None:
    assert tatami("compile", str(DIGITS), "-o", str(tmp_path), "--dump", "all").exit_code == 0
    tiny = tmp_path / "2_tiny.json"
    tiny.write_text(tiny.read_text() + "\n")
    refuses(tatami("run", str(tmp_path / "3_indexbook.json")), "InvalidDocument")
    assert tatami("run", str(tiny)).exit_code == 0


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[" * 100_000 + "]" * 100_000, "InputTooLarge"),
        ('{"uops": {"nodes": ' + "[" * 100_000, "InputTooLarge"),
        ('{"tatami": 1, "stage": "tiny", "programs": {}}', "InvalidDocument"),
        ('{"tatami": 1, "stage": "tiny", "programs": {"main": {"nodes": 1}}}', "InvalidDocument"),
        ('{"tatami": 1e999}', "ParseError"),
        ('{"tatami": NaN}', "ParseError"),
        ('{"tatami": 1, "tatami": 1}', "ParseError"),
        ('{"tatami": ' + "9" * 10_000 + "}", "ParseError"),
        ("\ufeff{}", "InvalidDocument"),
        ("{} {}", "ParseError"),
        ('"\ud800"'.encode("utf-8", "surrogatepass"), "ParseError"),
        (b"\xff\xfe", "ParseError"),
        (b"\x00" * 100, "ParseError"),
    ],
    ids=range(13),
)
def test_hostile_json(text: str | bytes, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    refuses(tatami("run", str(path)), kind)


@pytest.mark.parametrize(
    "size", ["(" * 100_000 + "B" + ")" * 100_000, "B" + "+1" * 50_000, "B*" * 3000 + "B", "-" * 100_000 + "B"]
)
def test_a_size_expression_of_any_length_is_read_or_refused(size: str) -> None:
    begin = time.process_time()
    survives(lambda: Graph("g").input("x", (size,), tt.fp32))
    document = copy.deepcopy(documents()["tiny"])
    document["programs"]["main"]["signature"]["inputs"][0]["shape"][0] = size
    survives(lambda: prepare(document))
    assert time.process_time() - begin < 10


def test_a_document_that_claims_a_huge_constant_is_refused_before_memory_is_taken() -> None:
    document = copy.deepcopy(documents()["frontend"])
    for ref in document["constants"].values():
        ref["shape"] = [1 << 40, 1 << 40]
    with pytest.raises(TatamiError, match="InvalidDocument"):
        open_model(document)


def test_a_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    for name in ("model.json", "model.onnx"):
        with open(tmp_path / name, "wb") as file:
            file.truncate((2 << 30) + 1)
        refuses(tatami("run", str(tmp_path / name)), "InputTooLarge")


@pytest.mark.parametrize("name", ["model.json", "model.onnx"])
def test_what_is_no_regular_file_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    refuses(tatami("run", str(path)), "FileUnreadable")
    path.unlink()
    path.symlink_to("/dev/zero")
    refuses(tatami("run", str(path)), "FileUnreadable")
    path.unlink()
    path.mkdir()
    refuses(tatami("run", str(path)), "FileUnreadable")


def test_code_documents_need_trust(tmp_path: Path) -> None:
    assert tatami("compile", str(DIGITS), "-o", str(tmp_path), "--dump", "c").exit_code == 0
    document = next(tmp_path.glob("*_c.json"))
    refuses(tatami("run", str(document)), "Untrusted")
    assert tatami("run", str(document), "--trust").exit_code == 0
    carried = json.loads(document.read_text())
    inside = {
        "tatami": 1,
        "stage": "tiny",
        "programs": {},
        "inputs": {"c": {"sha256": content_sha256(parse_document(carried)), "document": carried}},
    }
    (tmp_path / "inside.json").write_text(json.dumps(inside))
    refuses(tatami("run", str(tmp_path / "inside.json")), "Untrusted")


def test_trusted_code_still_stays_in_its_folder_and_version(tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    assert tatami("compile", str(DIGITS), "-o", str(out), "--dump", "c", "--embed").exit_code == 0
    document = json.loads(next(out.glob("*_c.json")).read_text())
    source = document["programs"]["main"]
    path = tmp_path / "edited_c.json"
    for units, abi in (
        ({**source["units"], "../../escaped.c": {"text": ""}}, source["abi"]),
        ({**source["units"], "/tmp/escaped.c": {"text": ""}}, source["abi"]),
        (source["units"], "0" * 16),
        (source["units"], ""),
    ):
        path.write_text(json.dumps({**document, "programs": {"main": {**source, "units": units, "abi": abi}}}))
        refuses(tatami("compile", str(path), "-o", str(other), "--trust"), "InvalidDocument")
    assert not other.exists()


def test_a_document_that_contains_itself_ends(tmp_path: Path) -> None:
    text = '{"tatami": 1, "stage": "tiny", "programs": {}, "inputs": {"tiny": {"sha256": "", "path": "a.json"}}}'
    (tmp_path / "a.json").write_text(text)
    refuses(tatami("run", str(tmp_path / "a.json")), "InvalidDocument")


# -- damaged ONNX ----------------------------------------------------------------------------------


@QUICK
@given(st.integers(0, 10**9), st.integers(0, 255), st.booleans())
def test_flipped_bytes_of_a_model(position: int, value: int, header: bool) -> None:
    data = bytearray(DIGITS.read_bytes())
    data[position % (600 if header else len(data))] = value
    path = Path(os.environ["TMPDIR_OF_TEST"]) / "flipped.onnx"
    path.write_bytes(data)
    survives(lambda: prepare(path).stages["tiny"])


@QUICK
@given(st.integers(0, 10**9))
def test_truncated_models(length: int) -> None:
    data = DIGITS.read_bytes()
    path = Path(os.environ["TMPDIR_OF_TEST"]) / "short.onnx"
    path.write_bytes(data[: length % len(data)])
    survives(lambda: prepare(path).stages["tiny"])


@pytest.fixture(autouse=True)
def folder_of_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR_OF_TEST", str(tmp_path))


def model_with(*nodes: onnx.NodeProto, initializers: Any = (), inputs: Any = None) -> onnx.ModelProto:
    x = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])] if inputs is None else inputs
    graph = helper.make_graph(
        list(nodes), "g", x, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["p", "q"])], initializers
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def tensor(dims: list[int], data: bytes, dtype: int = TensorProto.FLOAT) -> onnx.TensorProto:
    made = TensorProto(name="w", data_type=dtype, raw_data=data)
    made.dims.extend(dims)
    return made


BAD_MODELS = {
    "cycle": model_with(helper.make_node("Add", ["x", "y"], ["z"]), helper.make_node("Relu", ["z"], ["y"])),
    "undefined input": model_with(helper.make_node("Relu", ["nothing"], ["y"])),
    "defined twice": model_with(helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"])),
    "unknown op": model_with(helper.make_node("Frobnicate", ["x"], ["y"])),
    "unknown domain": model_with(helper.make_node("Relu", ["x"], ["y"], domain="evil.example")),
    "negative size": model_with(helper.make_node("Add", ["x", "w"], ["y"]), initializers=[tensor([-5], b"")]),
    "huge size": model_with(helper.make_node("Add", ["x", "w"], ["y"]), initializers=[tensor([1 << 62, 8], b"")]),
    "short data": model_with(helper.make_node("Add", ["x", "w"], ["y"]), initializers=[tensor([2, 2], b"1234")]),
    "strings": model_with(helper.make_node("Identity", ["w"], ["y"]), initializers=[helper.make_tensor("w", TensorProto.STRING, [1], [b"a"])]),
    "no output": helper.make_model(helper.make_graph([], "g", [], [])),
    "empty": onnx.ModelProto(),
    "missing attribute": model_with(helper.make_node("Concat", ["x", "x"], ["y"])),
    "wrong attribute": model_with(helper.make_node("Softmax", ["x"], ["y"], axis=7)),
    "wrong shapes": model_with(helper.make_node("MatMul", ["x", "w"], ["y"]), initializers=[tensor([3, 2], bytes(24))]),
    "wrong dtypes": model_with(helper.make_node("Add", ["x", "w"], ["y"]), initializers=[tensor([2, 2], bytes(32), TensorProto.INT64)]),
    "bad permutation": model_with(helper.make_node("Transpose", ["x"], ["y"], perm=[0, 0])),
    "bad reshape": model_with(
        helper.make_node("Reshape", ["x", "w"], ["y"]), initializers=[tensor([1], np.int64(5).tobytes(), TensorProto.INT64)]
    ),
    "no rank": model_with(helper.make_node("Relu", ["x"], ["y"]), inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, None)]),
    "not a tensor": model_with(
        helper.make_node("SequenceAt", ["x", "w"], ["y"]),
        inputs=[helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2])],
        initializers=[tensor([], np.int64(0).tobytes(), TensorProto.INT64)],
    ),
    "conv of rank 2": model_with(helper.make_node("Conv", ["x", "x"], ["y"])),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_MODELS)
def test_a_bad_model_gives_a_diagnostic(name: str, tmp_path: Path) -> None:
    with pytest.raises(TatamiError) as error:
        prepare(BAD_MODELS[name]).stages["region"]
    is_clear(error.value)
    assert all(d.kind != "InternalError" for d in error.value.diagnostics), str(error.value)


def test_deeply_nested_subgraphs_end_in_a_diagnostic(tmp_path: Path) -> None:
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "inner", [], [out])
    for depth in range(30):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], f"g{depth}", [], [out])
        if graph.ByteSize() > 1 << 22:
            break
    node.CopyFrom(graph.node[0])
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    model = helper.make_model(helper.make_graph([node], "g", ports, [out]), opset_imports=[helper.make_opsetid("", 17)])
    begin = time.process_time()
    survives(lambda: prepare(model).stages["tiny"])
    assert time.process_time() - begin < 20


def external(tmp_path: Path, location: str, **more: str) -> Path:
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    w.dims.extend([2, 2])
    for key, value in {"location": location, **more}.items():
        w.external_data.add(key=key, value=value)
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    path = folder / "m.onnx"
    path.write_bytes(model_with(helper.make_node("Add", ["x", "w"], ["y"]), initializers=[w]).SerializeToString())
    return path


def test_external_data_inside_the_folder_is_read(tmp_path: Path) -> None:
    path = external(tmp_path, "sub/w.bin", offset="16")
    (path.parent / "sub").mkdir()
    (path.parent / "sub" / "w.bin").write_bytes(bytes(16) + np.full(4, 2, np.float32).tobytes())
    y = tt.compile(path)(x=np.ones((2, 2), np.float32))["y"]
    assert (y == 3).all()


@pytest.mark.parametrize(
    "location", ["../secret.bin", "a/../../secret.bin", "/etc/passwd", "", "link.bin", "linked/secret.bin", "hard.bin", "pipe", "no.bin",
                 "sub\\..\\secret.bin", "/dev/zero", "bad\x00name"],
)  # fmt: skip
def test_external_data_stays_in_the_folder(location: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(16))
    path = external(tmp_path, location)
    (path.parent / "link.bin").symlink_to(secret)
    (path.parent / "linked").symlink_to(tmp_path)
    os.link(secret, path.parent / "hard.bin")
    os.mkfifo(path.parent / "pipe")
    with pytest.raises(TatamiError) as error:
        open_model(path)
    is_clear(error.value)


def test_a_data_file_that_is_exchanged_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain file that becomes a FIFO, or a link out of the folder, between the check and the read."""
    monkeypatch.setattr("tatami.core.files.data_files._contained", lambda at, folder, location: folder / location)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(__file__)
    for name in ("pipe", "link"):
        with pytest.raises(TatamiError, match="FileUnreadable at w"):
            DataFiles(tmp_path).read("w", name, 0, 4)
    for read in (read_model, partial(read_part, first=0, size=4), read_bytes):
        with pytest.raises(TatamiError, match="it is not a regular file"):
            read(tmp_path / "pipe")


@pytest.mark.parametrize(
    "more", [{"offset": "-4"}, {"length": str(1 << 60)}, {"offset": "x"}, {"offset": str(1 << 62)}, {"offset": "²"}]
)
def test_external_data_has_legal_numbers(more: dict[str, str], tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin", **more)
    (path.parent / "w.bin").write_bytes(bytes(16))
    with pytest.raises(TatamiError) as error:
        open_model(path)
    is_clear(error.value)


def test_numpy_files_are_read_without_objects(tmp_path: Path) -> None:
    f = tt.compile(hostile_model("n"))
    head = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 4), }"
    files = {
        "objects.npy": None,
        "claims.npy": head.ljust(127) + b"\n",
        "torn.npy": b"\x93NUMPY\x01",
        "text.npy": b"hello",
        "zip.npy": b"PK\x03\x04",
        "empty.npy": b"",
    }
    for name, data in files.items():
        path = tmp_path / name
        if data is None:
            np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
        else:
            path.write_bytes(data)
        with pytest.raises(TatamiError) as error:
            gather_inputs(f.signature, f.arguments, [f"the_xn={path}"], {})
        assert error.value.diagnostics[0].kind in ("FileUnreadable", "OutOfMemory"), str(error.value)


# -- the surroundings ------------------------------------------------------------------------------


def script(folder: Path, body: str) -> str:
    path = folder / "fakecc"
    path.write_text(f'#!/bin/sh\ncase "$1" in --version) echo fake 1.0; exit 0;; esac\n{body}\n')
    path.chmod(0o755)
    return str(path)


COMPILERS = {
    "missing": ("/no/such/compiler", "CompilerMissing"),
    "unreadable": ("'", "CompilerMissing"),
    "false": ("/bin/false", "CompilerFailed"),
    "fails": ("exit 3", "CompilerFailed"),
    "hangs": ("sleep 60", "CompilerFailed"),
    "floods": ("head -c 100000000 /dev/zero; exit 1", "CompilerFailed"),
    "makes nothing": ("exit 0", "CompilerFailed"),
    "makes rubbish": (
        'for a; do last=$prev; prev=$a; case "$last" in -o) echo junk > "$a";; esac; done; exit 0',
        "CompilerFailed",
    ),
    "crashes": ("kill -SEGV $$", "CompilerFailed"),
}


@pytest.mark.parametrize("name", COMPILERS)
def test_a_bad_compiler_is_one_diagnostic(name: str, tmp_path: Path) -> None:
    body, kind = COMPILERS[name]
    cc = body if body[0] in "/'" else script(tmp_path, body)
    begin = time.monotonic()
    result = tatami(
        "run", str(DIGITS), CC=cc, TATAMI_CACHE_DIR=str(tmp_path / "cache"), TATAMI_COMPILE_SECONDS="0.5", TMPDIR=str(tmp_path)
    )
    text = refuses(result, kind)
    assert len(text) < 12_000
    assert time.monotonic() - begin < 20
    assert not list(tmp_path.glob("tatami-*"))


def test_interrupting_leaves_no_child_and_a_valid_cache(tmp_path: Path) -> None:
    cc = script(tmp_path, f"echo $$ >> {tmp_path}/pids; sleep 60")
    process = command("run", str(DIGITS), CC=cc, TATAMI_CACHE_DIR=str(tmp_path / "cache"))
    deadline = time.monotonic() + 60
    while not (tmp_path / "pids").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Interrupted" in errors
    assert "Traceback" not in errors
    time.sleep(0.1)
    for pid in (tmp_path / "pids").read_text().split():
        assert not Path(f"/proc/{pid}/cmdline").exists() or b"fakecc" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]


def test_a_full_disk_costs_the_cache_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path / "cache"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    x = np.ones((2, 4), np.float32)
    assert tt.compile(hostile_model("full"))(the_xfull=x)["the_yfull"].shape == (2, 3)
    assert cache.default_cache().diagnostics[0].kind == "CacheUnusable"
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]


def test_a_full_temporary_folder_is_one_diagnostic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.raises(TatamiError, match="FileUnwritable"):
        tt.compile(hostile_model("tmp"))


def test_an_output_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/sub"):
        refuses(tatami("compile", str(DIGITS), "-o", str(tmp_path / place), "--dump", "all"), "FileUnwritable")
    refuses(tatami("run", str(DIGITS), "--output", str(tmp_path / "file" / "o.npz")), "FileUnwritable")
    refuses(tatami("run", str(DIGITS), "--output", str(tmp_path)), "FileUnwritable")
    assert (tmp_path / "file").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_an_output_folder_one_may_not_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tatami.storage.dump.os.access", lambda *_: False)  # root may write anywhere
    refuses(tatami("compile", str(DIGITS), "-o", str(tmp_path / "out")), "FileUnwritable")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "o.npz"
    out.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tatami.storage.dump.os.replace", full)
    refuses(tatami("run", str(DIGITS), "--output", str(out)), "FileUnwritable")
    assert out.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["o.npz"]


def test_a_compiler_of_another_search_path_is_another_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    before = compiler.find_compiler().fingerprint
    for name in ("CPATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX"):
        with monkeypatch.context() as m:
            m.setenv(name, "/nowhere/")
            assert compiler.find_compiler().fingerprint != before


# -- the command line ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        (["run", "--input", "nope=shape:1"], "UnknownName", "the inputs are image"),
        (["run", "--input", "image"], "UnknownName", "no '='"),
        (["run", "--input", "image=shape:2x3"], "InputMismatch", "pass an array of rank 4"),
        (["run", "--input", "image=shape:2x1x8x9"], "AxisAlignmentMismatch", "axis 3 of image"),
        (["run", "--input", "image=shape:axb"], "InputMismatch", "shape:2x3"),
        (["run", "--input", "image=shape:²x1x8x8"], "InputMismatch", "shape:2x3"),
        (["run", "--input", "image=nothing.npy"], "FileUnreadable", "nothing.npy"),
        (["run", "--input", "image=/"], "FileUnreadable", "directory"),
        (["run", "-D", "Q=3"], "UnboundSymbol", "its symbols are N"),
        (["run", "-D", "N=-1"], "InvalidSymbol", "-D B=32"),
        (["run", "-D", "N=²"], "InvalidSymbol", "-D B=32"),
        (["run", "-D", "N=" + "9" * 5000], "InvalidSymbol", "-D B=32"),
        (["run", "-D", "N=999999999999999"], "OutOfMemory", "smaller"),
        (["run", "--fetch", "nope"], "UnknownName", "some names"),
        (["compile", "--dump", "nope", "-o", "/nowhere"], "UnknownName", "frontend"),
        (["run", "--target", "tpu"], "UnknownTarget", "cpu:avx2"),
        (["run", "--decisions", "nothing.json"], "FileUnreadable", "nothing.json"),
    ],
    ids=range(17),
)
def test_a_wrong_option_is_explained(arguments: list[str], kind: str, says: str) -> None:
    assert says in refuses(tatami(arguments[0], str(DIGITS), *arguments[1:]), kind)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("missing.onnx", "FileUnreadable"),
        ("missing.json", "FileUnreadable"),
        ("missing", "FileUnreadable"),
        ("folder", "FileUnreadable"),
        ("folder.onnx", "FileUnreadable"),
        ("empty.onnx", "FileUnreadable"),
        ("empty.json", "FileUnreadable"),
        ("model.pt", "UnknownFormat"),
        ("k" * 300 + ".onnx", "FileUnreadable"),
    ],
)
def test_a_wrong_model_file_is_explained(name: str, kind: str, tmp_path: Path) -> None:
    if name.startswith("folder"):
        (tmp_path / name).mkdir()
    elif name.startswith(("empty", "model")):
        (tmp_path / name).touch()
    for verb in ("run", "explain", "playback"):
        refuses(tatami(verb, str(tmp_path / name)), kind)


def test_arrays_of_the_wrong_dtype_name_the_conversion(tmp_path: Path) -> None:
    np.save(tmp_path / "double.npy", np.zeros((1, 1, 8, 8)))
    np.save(tmp_path / "words.npy", np.full((1, 1, 8, 8), "a"))
    text = refuses(tatami("run", str(DIGITS), "--input", f"image={tmp_path}/double.npy"), "InputMismatch")
    assert "astype('float32')" in text
    text = refuses(tatami("run", str(DIGITS), "--input", f"image={tmp_path}/words.npy"), "InputMismatch")
    assert "pass numbers" in text


def test_an_input_file_is_refused_before_its_data_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numpy.lib.format.read_array", lambda *_, **__: 1 // 0)
    path = tmp_path / "image.npy"
    given = ("run", str(DIGITS), "--input", f"image={path}")
    np.save(path, np.zeros(1, np.float32))
    header = path.read_bytes()[:128]
    path.write_bytes(header.replace(b"(1,), }" + b" " * 10, b"(1<<40, 8, 8), }"))
    refuses(tatami(*given), "FileUnreadable")  # an expression is not a shape
    path.write_bytes(header.replace(b"(1,), }" + b" " * 12, b"(1099511627776,), }"))
    assert "its header speaks of" in refuses(tatami(*given), "FileUnreadable")
    os.truncate(path, 128 + (4 << 40))  # now the data are there, and take no room on the disk
    refuses(tatami(*given), "OutOfMemory")
    path.unlink()
    os.mkfifo(path)
    assert "it is not a regular file" in refuses(tatami(*given), "FileUnreadable")


def test_a_fault_of_ours_is_one_diagnostic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tatami.bench.inputs.generate", lambda *_: 1 // 0)
    monkeypatch.delenv("TATAMI_LOG", raising=False)
    assert "TATAMI_LOG=debug" in refuses(tatami("run", str(DIGITS)), "InternalError")


def test_the_command_itself_exits_1_without_traceback() -> None:
    process = command("run", "missing.onnx")
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert errors.startswith("E1701 FileUnreadable at ")
