"""Every kind of diagnostic: raised through the public API, complete, and gone when its suggestion is followed.

One function per kind. It does the wrong thing, or, with `fixed`, what the suggestion says instead.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import tatami as tt
from tatami.api import Compilation, prepare
from tatami.cli import main
from tatami.core.diagnostic import Diagnostic, TatamiError
from tatami.core.document import document_text
from tatami.core.faults.diagnostics_table import TABLE
from tatami.frontend.graph import Graph
from tatami.region.rules.reduces import distribute
from tatami.storage.dump import to_document
from tests.region.rules.test_rules import products

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
SPEC = ROOT / "examples" / "spec"
RETIRED = {"NegativeStrideUnsupported"}

Maker = Callable[[bool], Any]
CASES: dict[str, tuple[Maker, str, str]] = {}
"""kind -> (what to do, words of `at`, words of the suggestion)"""


def case(kind: str, at: str, suggestion: str) -> Callable[[Maker], Maker]:
    def register(maker: Maker) -> Maker:
        assert kind not in CASES
        CASES[kind] = (maker, at, suggestion)
        return maker

    return register


# -- small programs and documents --------------------------------------------------------------------


def inputs(*shapes: tuple[Any, ...], dtype: Any = None) -> Any:
    g = Graph("g")
    return g, *(g.input(n, s, dtype or tt.fp32) for n, s in zip("xyzuvw", shapes))


def compiled(g: Graph, y: Any, **options: Any) -> Any:
    g.output("out", y)
    return tt.compile(g, **options)


def mlp(dtype: Any = None) -> Graph:
    g, x = inputs(("B", 8), dtype=dtype)
    w = g.constant(np.ones((8, 16), np.float16 if dtype == tt.fp16 else np.float32), "w")
    g.output("y", (x @ w).relu())
    return g


def stage_of(g: Any, stage: str, target: str = "cpu") -> dict[str, Any]:
    """The document of a stage, with the region or tiny program it needs inside."""
    from tatami.core.document import InputRef, content_sha256, parse_document
    from tatami.stages import stage as find

    compilation = prepare(g, target=target)
    values = compilation.values()
    made: dict[str, Any] = {}
    for name, value in values.items():
        refs = {
            n: InputRef(sha256=content_sha256(parse_document(made[n])), document=made[n]) for n in find(name).needs if n in made
        }
        made[name] = json.loads(document_text(to_document(name, value, compilation.target, inputs=refs)))
        if name == stage:
            return made[name]
    raise AssertionError(stage)


def all_stages(document: Any, **options: Any) -> Compilation:
    compilation = prepare(document, **options)
    compilation.values()
    return compilation


def uops(*nodes: dict[str, Any], x: Any = ("M", "N"), out: str = "y", dtype: str = "fp32") -> dict[str, Any]:
    first = {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": dtype, "shape": list(x)}}
    return {"signature": {"inputs": [{"tensor": "x"}], "outputs": [{"tensor": out}]}, "uops": [first, *nodes]}


def spec(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((SPEC / f"{name}.json").read_text())
    return value


def cli(*arguments: str, **environment: str) -> None:
    """A command in this process; its diagnostic becomes the error again."""
    result = CliRunner().invoke(main, list(arguments), env=environment)
    found = re.match(r"(\w\d{4}) (\w+) at (.*?): (.*)\n  suggestion: (.*)", result.stderr, re.S)
    assert "Traceback" not in result.output + result.stderr
    if found is not None and result.exit_code:
        code, kind, at, said, suggestion = (part.strip() for part in found.groups())
        raise TatamiError(Diagnostic(code, kind, at, said, suggestion))
    assert result.exit_code == 0, result.output


def in_own_process(before: str, line: str, **environment: str) -> tuple[str, str]:
    """The diagnostic of `line` in another Python, as JSON or "", and the text on its standard error."""
    script = f"""{before}
import tatami as tt
try:
    {line}
except tt.TatamiError as error:
    print(tt.core.codec.dump_text(tt.core.codec.to_builtins(error.diagnostics[0])))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environment}, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def raise_again(diagnostic: str) -> None:
    if diagnostic:
        raise TatamiError(Diagnostic(**json.loads(diagnostic)))


def model(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 2]) for n in "xy"]
    return helper.make_model(
        helper.make_graph(list(nodes), "g", ports[:1], ports[1:]), opset_imports=[helper.make_opsetid("", 17)]
    )


# -- shapes and types --------------------------------------------------------------------------------


@case("BroadcastMismatch", "test_diagnostics.py", "expand")
def broadcast(fixed: bool) -> None:
    g, x, b = inputs(("N", 4), (4,))
    compiled(g, x + (b.expand(("N", 4)) if fixed else b))


@case("AxisSizeMismatch", "reshape", "same number of elements")
def reshape(fixed: bool) -> None:
    g, x = inputs((6, 4))
    compiled(g, x.reshape((3, 8) if fixed else (5, 5)))


@case("InvalidPermutation", "permute", "exactly once")
def permute(fixed: bool) -> None:
    g, x = inputs((6, 4))
    compiled(g, x.permute((1, 0) if fixed else (1, 1)))


@case("AccDtypeMissing", "y", "dtype")
def reduce_without_dtype(fixed: bool) -> None:
    all_stages(
        uops(
            {
                "id": "y",
                "uop": "REDUCE",
                "src": ["x"],
                "arg": {"op": "SUM", "axes": [1], **({"dtype": "fp32"} if fixed else {})},
            }
        )
    )


@case("AmbiguousAxis", "y", "give the position: 0 or 1")
def ambiguous(fixed: bool) -> None:
    arg = {"op": "SUM", "axes": [0] if fixed else ["M"], "dtype": "fp32"}
    all_stages(uops({"id": "y", "uop": "REDUCE", "src": ["x"], "arg": arg}, x=("M", "M")))


@case("DTypeMismatch", "add", "cast")
def dtypes(fixed: bool) -> None:
    g, x = inputs((4,))
    i = g.input("i", (4,), tt.i32)
    compiled(g, x + (i.cast(tt.fp32) if fixed else i))


@case("UnsupportedDType", "sqrt", "cast(to=fp32)")
def square_root_of_a_bool(fixed: bool) -> None:
    g, x = inputs((4,), dtype=tt.bool)
    compiled(g, (x.cast(tt.fp32) if fixed else x).sqrt())


@case("AxisOutOfRange", "softmax", "0..1")
def axis(fixed: bool) -> None:
    g, x = inputs((4, 4))
    compiled(g, x.softmax(1 if fixed else 2))


@case("InvalidAttribute", "test_diagnostics.py", "axis")
def attribute(fixed: bool) -> None:
    g, x = inputs((4, 4))
    compiled(g, g.op("softmax", x, **({"axis": 1} if fixed else {"axes": 1})))


@case("UnknownDType", "test_diagnostics.py", "g.number(v, dtype)")
def undecided_dtype(fixed: bool) -> None:
    g = Graph("g")
    g.output("y", g.number(3, tt.fp32) if fixed else g.number(3))
    tt.compile(g)


# -- views and index expressions -----------------------------------------------------------------------


def view(index: str) -> Compilation:
    arg = {"result_shape": ["M", "N"], "index_map": [index, "i1"]}
    return all_stages(uops({"id": "y", "uop": "VIEW", "src": ["x"], "arg": arg}))


@case("NonAffineView", "y", "floordiv")
def product_of_axes(fixed: bool) -> None:
    view("i0" if fixed else "i0*i1")


@case("MissingDivGuard", "y", "E - q*(E//q)")
def remainder(fixed: bool) -> None:
    arg = {"result_shape": [4, 3], "index_map": ["i0 - 2*(i0//2)" if fixed else "i0 % 2", "i1"]}
    all_stages(uops({"id": "y", "uop": "VIEW", "src": ["x"], "arg": arg}, x=(4, 3)))


@case("IndexSyntax", "y", "+ - * //")
def syntax(fixed: bool) -> None:
    view("i0" if fixed else "i0 +* 2")


# -- symbols and sizes -----------------------------------------------------------------------------------


@case("UnboundSymbol", "K", "sizes={'K'")
def unbound(fixed: bool) -> None:
    g, x = inputs(("N",))
    g.output("out", x.reshape((1, "N")).expand(("K", "N")))
    f = tt.compile(g, sizes={"K": 3} if fixed else None)
    assert f(x=np.ones(2, np.float32))["out"].shape == (3, 2)


@case("AxisAlignmentMismatch", "axis 0 of y", "agree")
def disagreeing_sizes(fixed: bool) -> None:
    g, x, y = inputs(("N",), ("N",))
    compiled(g, x + y)(x=np.ones(2, np.float32), y=np.ones(2 if fixed else 3, np.float32))


@case("InvalidSymbol", "test_diagnostics.py", "letter")
def symbol(fixed: bool) -> None:
    g, x = inputs(("N" if fixed else "i0",))
    compiled(g, x.relu())


# -- regions ---------------------------------------------------------------------------------------------


@case("UnguardedAccess", "y_acc", "Select(Within(")
def unguarded(fixed: bool) -> None:
    value = spec("3-6.8.2-conv")
    product = value["region"]["lets"][0]["expr"]["reduce"]["body"]["mul"]
    if not fixed:
        product[1] = product[1]["select"]["then"]
    prepare(value)


@case("NonAssociativeTransform", "s", "integer sums")
def distribution(fixed: bool) -> None:
    distribute(products(tt.i32 if fixed else tt.fp32), "s")


@case("NeutralInvalid", "y_acc", "neutral element of sum")
def not_neutral(fixed: bool) -> None:
    value = spec("3-6.8.2-conv")
    value["region"]["lets"][0]["expr"]["reduce"]["body"]["mul"][1]["select"]["else"] = 0.0 if fixed else 1.0
    prepare(value)


@case("InvalidRegion", "gemm_bias_relu", "one entry per")
def region_form(fixed: bool) -> None:
    value = spec("3-6.8.1-gemm-bias-relu")
    body = value["region"]["lets"][0]["expr"]["reduce"]["body"]["mul"]
    if not fixed:
        body[0]["read"]["map"].append("k")
    prepare(value)


# -- plans and targets -------------------------------------------------------------------------------------


def plan_of(g: Graph, target: str = "cpu:avx2") -> tuple[str, dict[str, Any]]:
    from tatami.core.codec import to_builtins

    (region,) = prepare(g, target=target).stages["plan"].main.regions
    return region.key, to_builtins(region.choices[-1].plan)


@case("InvalidPlan", "r0", "axes: ")
def plan(fixed: bool) -> None:
    g, x = inputs(("N", 4))
    g.output("y", x.softmax(1))
    key, document = plan_of(g)
    phase = document["phases"][0]
    phase["outer"] = [*phase["outer"]] if fixed else ["nothing"]
    prepare(g, target="cpu:avx2", decisions={"plans": {key: document}}).stages["plan"]


@case("ResourceExceeded", "r0", "smaller tile")
def resources(fixed: bool) -> None:
    g, a, b = inputs((96, 96), (96, 96))
    g.output("out", a @ b)
    key, document = plan_of(g)
    assert document["kind"] == "cpu_contraction"
    document |= {} if fixed else {"mr": 8 * document["mr"], "mc": 8 * document["mc"]}
    prepare(g, target="cpu:avx2", decisions={"plans": {key: document}}).stages["plan"]


@case("LayoutMismatch", "A", "power of two")
def alignment(fixed: bool) -> None:
    value = spec("3-6.8.1-gemm-bias-relu")
    value["region"]["inputs"][0]["memref"]["alignment"] = 64 if fixed else 100
    prepare(value)


@case("UnknownTarget", "target", "cpu:avx2")
def target(fixed: bool) -> None:
    prepare(mlp(), target="cpu:avx2" if fixed else "tpu")


@case("TokenHazard", "k0", "load, commit")
def hazard(fixed: bool) -> None:
    g, a, b = inputs((64, 64), (64, 64), dtype=tt.fp16)
    g.output("out", a @ b)
    value = stage_of(g, "gpu", "sm80")

    def without_waits(body: list[Any]) -> list[Any]:
        out = []
        for s in body:
            ((name, fields),) = s.items()
            if "body" in fields:
                fields["body"] = without_waits(fields["body"])
            if name not in ("Wait", "SyncThreads"):
                out.append(s)
        return out

    if not fixed:
        for kernel in value["programs"]["main"]["kernels"]:
            kernel["body"] = without_waits(kernel["body"])
    prepare(value, target="sm80")


# -- graphs and documents ------------------------------------------------------------------------------------


@case("UnknownOp", "test_diagnostics.py", "did you mean 'relu'")
def operation(fixed: bool) -> None:
    g, x = inputs((4,))
    compiled(g, g.op("relu" if fixed else "reluu", x))


@case("UnknownValue", "y", "define")
def value(fixed: bool) -> None:
    all_stages(uops({"id": "y", "uop": "NEG", "src": ["x" if fixed else "nothing"]}))


@case("DuplicateId", "y", "its own id")
def duplicate(fixed: bool) -> None:
    all_stages(uops({"id": "y", "uop": "NEG", "src": ["x"]}, {"id": "z" if fixed else "y", "uop": "NEG", "src": ["x"]}))


@case("CyclicGraph", "y", "")
def cycle(fixed: bool) -> None:
    all_stages(uops({"id": "y", "uop": "NEG", "src": ["x" if fixed else "y"]}))


@case("InvalidDocument", "document", "tatami")
def document_form(fixed: bool) -> None:
    document = stage_of(mlp(), "frontend")
    document["tatami"] = 1 if fixed else 99
    prepare(document)


@case("UnsupportedModel", "strange", "give the model a function Frobnicate")
def unsupported(fixed: bool) -> None:
    prepare(model(helper.make_node("Relu" if fixed else "Frobnicate", ["x"], ["y"], name="strange")))


@case("RecursionDepth", "", "loop")
def recursion(fixed: bool) -> None:
    document = stage_of(two_graphs(), "frontend")
    if not fixed:
        document["programs"]["f"]["graph"][0] |= {"op": "call", "attrs": {"graph": "f"}}
    prepare(document)


def two_graphs() -> Graph:
    g, x = inputs((4,))
    f = g.subgraph("f")
    f.output("r", f.input("a", (4,), tt.fp32).relu())
    g.output("y", g.call(f, x))
    return g


@case("UnknownFormat", "model.pt", ".onnx")
def suffix(fixed: bool) -> None:
    path = Path(os.environ["FOLDER"]) / ("model.onnx" if fixed else "model.pt")
    path.write_bytes(DIGITS.read_bytes())
    prepare(path)


@case("ParseError", "model.json:1:", "repair the text")
def text(fixed: bool) -> None:
    path = Path(os.environ["FOLDER"]) / "model.json"
    path.write_text(json.dumps(stage_of(mlp(), "frontend"))[: None if fixed else 20])
    prepare(path)


@case("Untrusted", "document", "trust=True")
def trust(fixed: bool) -> None:
    prepare(stage_of(mlp(), "c"), trust=fixed)


@case("UnknownName", "fetch", "did you mean probability")
def fetch(fixed: bool) -> None:
    cli("run", str(DIGITS), "--fetch", "probability" if fixed else "probabilities")


@case("NoMain", "text.harp:1:7", "rename Main to main")
def no_main(fixed: bool) -> None:
    tt.parse(f"graph {'main' if fixed else 'Main'}(x: f32[3]) -> f32[3] {{ return x }}")


@case("MissingReturn", "text.harp:2:1", "return y")
def no_return(fixed: bool) -> None:
    tt.parse(f"graph main(x: f32[3]) -> f32[3] {{ y = x + 1.0 {'return y' * fixed}\n}}")


@case("AfterReturn", "text.harp:", "put it before the return")
def after_return(fixed: bool) -> None:
    body = ("y = x.exp()", "return x")
    tt.parse(f"graph main(x: f32[3]) -> f32[3] {{\n    {chr(10).join(body if fixed else body[::-1])}\n}}")


@case("Unsayable", "graph main", "letters, digits and _")
def unsayable(fixed: bool) -> None:
    g, x = inputs(("N" if fixed else "N'", 4))
    g.output("out", x.exp())
    tt.decompile(g)


@case("ResultCount", "text.harp:1:35", "(a, b) = …")
def result_count(fixed: bool) -> None:
    names = "(a, b)" if fixed else "(a, b, c)"
    tt.parse(f"graph main(x: f32[3]) -> f32[3] {{ {names} = x.sort() return a }}")


# -- files and environment -------------------------------------------------------------------------------------


@case("FileUnreadable", "model.onnx", "check the path")
def missing(fixed: bool) -> None:
    cli("explain", str(DIGITS) if fixed else "/nowhere/model.onnx")


@case("FileUnwritable", "taken", "-o DIR")
def unwritable(fixed: bool) -> None:
    folder = Path(os.environ["FOLDER"])
    (folder / "taken").write_text("")
    cli("compile", str(DIGITS), "-o", str(folder / ("free" if fixed else "taken")))


@case("CompilerMissing", "CC", "gcc or clang")
def no_compiler(fixed: bool) -> None:
    cli("run", str(DIGITS), CC="" if fixed else "/no/such/compiler")


@case("CompilerFailed", "false", "$CC --version")
def failing_compiler(fixed: bool) -> None:
    cli("run", str(DIGITS), CC="" if fixed else "/bin/false")


@case("MissingPackage", "onnx", "tatami[onnx]")
def package(fixed: bool) -> None:
    hidden = "" if fixed else "sys.modules['onnx'] = None"
    diagnostic, _ = in_own_process(f"import sys\n{hidden}\nfrom tatami.api import prepare", f"prepare({str(DIGITS)!r})")
    raise_again(diagnostic)


@case("SanitizerMissing", "TATAMI_SANITIZE", "LD_PRELOAD=")
def sanitizer(fixed: bool) -> None:
    cli("run", str(DIGITS), TATAMI_SANITIZE="0" if fixed else "1")


@case("InputTooLarge", "model.json", "200")
def nesting(fixed: bool) -> None:
    path = Path(os.environ["FOLDER"]) / "model.json"
    document = stage_of(mlp(), "frontend")
    path.write_text(json.dumps(document) if fixed else "[" * 100_000)
    prepare(path)


# -- execution -------------------------------------------------------------------------------------------------


@case("InputMismatch", "x", "astype('float32')")
def wrong_dtype(fixed: bool) -> None:
    x = np.ones((2, 8))
    tt.compile(mlp())(x=x.astype("float32") if fixed else x)


@case("InvalidExecution", "main", "in order")
def execution(fixed: bool) -> None:
    document = stage_of(mlp(), "execution")
    if not fixed:
        launches = [i["op"] for i in document["programs"]["main"]["instructions"]]
        launches[0]["args"].pop(0)
    prepare(document, trust=True).stages["c"]


@case("OutOfMemory", "memory", "smaller sizes")
def memory(fixed: bool) -> None:
    g, x = inputs(("N",))
    g.output("out", x.reshape(("N", 1)).expand(("N", "K")))
    f = tt.compile(g, sizes={"K": 4 if fixed else 1 << 44})
    f(x=np.ones(1 << 10, np.float32))


@case("IndexOutOfRange", "test_diagnostics.py", "index tensor")
def gather(fixed: bool) -> None:
    g, x = inputs((4, 2))
    i = g.input("i", (3,), tt.i64)
    f = compiled(g, x.take(i, 0))
    f(x=np.ones((4, 2), np.float32), i=np.array([0, 1, 3 if fixed else 4]))


@case("DivisionByZero", "div", "divisor")
def division_by_zero(fixed: bool) -> None:
    torch = pytest.importorskip("torch")
    compiled_divide = torch.compile(lambda a, b: torch.div(a, b, rounding_mode="floor"), backend="tatami")
    compiled_divide(torch.tensor([4, 6]), torch.tensor([2, 1 if fixed else 0]))


@case("HostFault", "r", "trip count")
def trip_count(fixed: bool) -> None:
    g, s = inputs((3,))
    body = g.subgraph("body")
    i = body.input("i", (), tt.i64)
    body.input("c", (), tt.bool)
    state = body.input("s", (3,), tt.fp32)
    body.output("go", i < (100 if fixed else 1))
    body.output("next", state + 1.0)
    body.output("row", state * 2.0)
    last, rows = g.loop(body, [s], trip=4)
    g.output("last", last)
    g.output("rows", rows)
    assert tt.compile(g)(x=np.ones(3, np.float32))["rows"].shape == (4, 3)


def own_kernel(meaning: Any = None, body: str = "output[0] = input0[0] * 2;") -> Graph:
    g, x = inputs((1,))
    g.output("out", g.kernel_body(body, x, outputs=[(tt.fp32, (1,))], meaning=meaning))
    return g


@case("MeaningMissing", "kernel_body", "meaning=function")
def meaning(fixed: bool) -> None:
    x = {"x": np.ones(1, np.float32)}
    assert prepare(own_kernel(np.square if fixed else None)).reference_run(x, {})["out"] == 1


@case("OutOfBounds", "r0", "mend the line")
def outside(fixed: bool) -> None:
    from tatami.runtime.building.compiler import find_compiler
    from tatami.runtime.building.sanitizer import sanitizer_library

    try:
        library = sanitizer_library(find_compiler())
    except TatamiError:
        pytest.skip("the C compiler has no AddressSanitizer")
    body = f"output[{0 if fixed else 1}] = input0[0];"
    options = "detect_leaks=0:halt_on_error=0"
    environment = {"LD_PRELOAD": library, "TATAMI_SANITIZE": "1", "ASAN_OPTIONS": options}
    diagnostic, said = in_own_process(
        "import numpy as np\nfrom tests.api.test_diagnostics import own_kernel",
        f"tt.compile(own_kernel(body={body!r}))(x=np.ones(1, np.float32))",
        **environment,
    )
    assert ("body:1" in said) != fixed
    raise_again(diagnostic)


def cuda_kernel(body: str, count: int, fixed: str | None) -> None:
    """A CUDA body over `count` elements on an emulated GPU; `fixed` replaces it."""
    g, x = inputs((count,))
    g.output("out", g.kernel_body(None, x, outputs=[(tt.fp32, (count,))], cuda=fixed or body, meaning=np.copy))
    tt.compile(g, target="emulated-sm80")(x=np.ones(count, np.float32))


@case("KernelRace", "r0", "order the two accesses")
def race(fixed: bool) -> None:
    cuda_kernel("output[0] = input0[ridx0];", 4, "output[ridx0] = input0[ridx0];" if fixed else None)


@case("KernelDeadlock", "r0", "all lanes")
def deadlock(fixed: bool) -> None:
    body = "if (ridx0 == 0) tt_uniform(1); output[ridx0] = input0[ridx0];"
    cuda_kernel(body, 32, "tt_uniform(1); output[ridx0] = input0[ridx0];" if fixed else None)


@case("KernelMisuse", "r0", "what the instruction allows")
def misuse(fixed: bool) -> None:
    cuda_kernel(
        "if (ridx0 % 2) tt_store_global_v2(output + ridx0, 0u, 0u);",
        4,
        "if (ridx0 % 2 == 0) tt_store_global_v2(output + ridx0, 0u, 0u);" if fixed else None,
    )


@case("DeviceFault", "k0", "nvidia-smi")
def device_fault(fixed: bool) -> None:
    import cuda.bindings.driver as real

    from tests.cuda.emulated_gpu import emulated_gpu
    from tests.cuda.programs import doubled, on_gpu

    with emulated_gpu() as gpu:
        f = on_gpu(gpu, doubled())
        if not fixed:
            gpu.fail_next["cuGraphAddKernelNode"] = real.CUresult.CUDA_ERROR_INVALID_VALUE
        f(x=np.zeros((3, 8), np.float32))


@case("Interrupted", "command", "run it again")
def interrupted(fixed: bool) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as m:
        if not fixed:
            m.setattr("tatami.cli.run_commands.build", stop)
        cli("run", str(DIGITS))


@case("InternalError", "", "TATAMI_LOG=debug")
def internal(fixed: bool) -> None:
    with pytest.MonkeyPatch.context() as m:
        m.delenv("TATAMI_LOG", raising=False)
        if not fixed:
            m.setattr("tatami.tiny.lower.lower", lambda _: 1 // 0)
        prepare(mlp()).stages["tiny"]


# -- warnings ----------------------------------------------------------------------------------------------------


@case("ExcessivePiecewise", "n", "PAD")
def pieces(fixed: bool) -> Compilation:
    g, x = inputs((4,))
    for k in range(24):
        x = x.pad(((1, 1),), value=0.0 if fixed else float(k))
    g.output("y", x.relu())
    return all_stages(g)


@case("LostContraction", "n", "alone")
def lost(fixed: bool) -> Compilation:
    g, x, y = inputs((16, 8), (8, 16))
    product = x.reshape((16, 8, 1)).expand((16, 8, 16)) * y.reshape((1, 8, 16)).expand((16, 8, 16))
    g.output("s", product.sum(1))
    if not fixed:
        g.output("p", product)
    return all_stages(g)


@case("GuardNotNeutral", "y_acc", "neutral element of sum")
def guard(fixed: bool) -> Compilation:
    value = stage_of(spec("3-6.8.2-conv"), "region")
    (let,) = value["programs"]["main"]["body"][0]["lets"]
    let["expr"]["body"]["y"]["other"]["value"] = 0.0 if fixed else 1.0
    return all_stages(value)


@case("StaleDecision", "@", "remove it")
def stale(fixed: bool) -> Compilation:
    key, document = plan_of(mlp())
    plans = {key if fixed else f"{'0' * 64}@{key.partition('@')[2]}": document}
    return all_stages(mlp(), target="cpu:avx2", decisions={"plans": plans})


@case("PrecisionKept", "precision", '"bf16!"')
def kept(fixed: bool) -> Compilation:
    return all_stages(mlp(), target="cpu:avx2", precision="bf16!" if fixed else "bf16")


@case("UnusedLayout", "r0", "write row_major")
def unused_layout(fixed: bool) -> Compilation:
    g, x = inputs(("B", 64))
    g.output("y", x.exp())
    document = stage_of(g, "region")
    if not fixed:
        document["programs"]["main"]["body"][0]["inputs"][0]["memref"]["layout"] = {"kind": "swizzled", "swizzle": "xor32"}
    return all_stages(document, target="cpu:generic")


@case("UnknownDecision", "partitions", "remove it")
def unknown_decision(fixed: bool) -> Compilation:
    return all_stages(mlp(), decisions={"partitions": {} if fixed else {"0" * 64: {"groups": []}}})


@case("ModelRepaired", "strange", "export the model again")
def repaired_model(fixed: bool) -> Compilation:
    return prepare(model(helper.make_node("Relu", ["x"], ["y"], name="strange", **({} if fixed else {"colour": "red"}))))


@case("CheckedKernel", "main.tatami_", "undo the edit")
def edited_kernel(fixed: bool) -> Compilation:
    g, x = inputs(("B",))
    g.output("y", x.exp())
    document = stage_of(g, "loop", "cpu:generic")
    (kernel,) = document["programs"]["main"]["kernels"].values()
    if not fixed:
        kernel["body"] = kernel["body"][:-1]
    return prepare(document)


@case("CollectiveFailed", "all_reduce", "torch.distributed")
def exchange_alone(fixed: bool) -> None:
    g, x = inputs((4,))
    g.output("y", x.all_reduce(1 if fixed else 2))
    tt.compile(g, target="reference")(x=np.zeros(4, np.float32))


@case("CacheUnusable", "cache", "TATAMI_CACHE_DIR")
def cache(fixed: bool) -> list[Diagnostic]:
    from tatami.runtime.building.cache import default_cache

    folder = Path(os.environ["FOLDER"]) / f"cache{fixed}"
    folder.mkdir(mode=0o700)
    folder.chmod(0o700 if fixed else 0o777)
    with pytest.MonkeyPatch.context() as m:
        m.setenv("TATAMI_CACHE_DIR", str(folder))
        tt.compile(mlp())
        return default_cache().diagnostics


# -- the tests ---------------------------------------------------------------------------------------------------


def found_by(maker: Maker, fixed: bool) -> tuple[Diagnostic, ...]:
    """The diagnostics of an error, or the warnings of what was made."""
    try:
        made = maker(fixed)
    except TatamiError as error:
        return error.diagnostics
    return tuple(made.warnings if isinstance(made, Compilation) else made or ())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDER", str(tmp_path))


@pytest.mark.parametrize("kind", CASES)
def test_the_diagnostic_is_complete_and_following_it_helps(kind: str) -> None:
    maker, at, suggestion = CASES[kind]
    found = [d for d in found_by(maker, False) if d.kind == kind]
    assert found, [str(d) for d in found_by(maker, False)]
    d = found[0]
    assert d.code == TABLE[kind].code
    assert d.is_warning == d.code.startswith("W")
    assert at in d.at
    assert len(d.why) > 8
    assert suggestion in d.suggestion
    assert d.at and "\n" not in d.at
    repaired = [x for x in found_by(maker, True) if x.kind == kind or not x.is_warning]
    assert repaired == [], [str(x) for x in repaired]


def test_every_kind_of_the_table_has_a_case() -> None:
    assert CASES.keys() == TABLE.keys() - RETIRED


def test_codes_are_unique_and_tell_warnings_from_errors() -> None:
    codes = [k.code for k in TABLE.values()]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[EW]\d{4}", c) for c in codes)


def test_a_diagnostic_prints_as_two_lines_and_travels_as_json() -> None:
    (d,) = found_by(axis, False)
    assert str(d).splitlines()[0] == f"{d.code} {d.kind} at {d.at}: {d.why}"
    assert str(d).splitlines()[1] == f"  suggestion: {d.suggestion}"
    import msgspec

    value = msgspec.json.decode(msgspec.json.encode(d))
    assert {"code", "kind", "at", "why", "suggestion"} <= value.keys()


def test_every_code_has_its_section_in_the_manual() -> None:
    text = (ROOT / "docs" / "diagnostics.md").read_text()
    sections = re.findall(r"^### ([EW]\d{4}) (\w+)$", text, re.M)
    assert sections == sorted(sections)
    assert {kind: code for code, kind in sections} == {kind: row.code for kind, row in TABLE.items()}


def patched(document: Any, d: Diagnostic) -> Any:
    """RFC 6902: the document after the operations of the diagnostic's patch."""
    assert d.patch is not None
    document = copy.deepcopy(document)
    for op in d.patch.ops:
        *path, last = op["path"].strip("/").split("/")
        where = document
        for key in path:
            where = where[int(key) if isinstance(where, list) else key]
        if isinstance(where, list) and op["op"] == "add":
            where.insert(int(last), op["value"])
        else:
            where[int(last) if isinstance(where, list) else last] = op["value"]
    return document


PATCHED = {
    "AccDtypeMissing": uops({"id": "y", "uop": "REDUCE", "src": ["x"], "arg": {"op": "SUM", "axes": [1]}}),
    "DTypeMismatch": uops(
        {"id": "h", "uop": "CAST", "src": ["x"], "arg": {"to": "fp16"}}, {"id": "y", "uop": "ADD", "src": ["x", "h"]}
    ),
    "BroadcastMismatch": uops(
        {"id": "s", "uop": "REDUCE", "src": ["x"], "arg": {"op": "MAX", "axes": [1], "dtype": "fp32"}},
        {"id": "y", "uop": "SUB", "src": ["x", "s"]},
    ),
}


@pytest.mark.parametrize("kind", PATCHED)
def test_the_patch_of_a_diagnostic_repairs_the_document(kind: str) -> None:
    with pytest.raises(TatamiError) as error:
        prepare(PATCHED[kind])
    (d,) = error.value.diagnostics
    assert d.kind == kind
    all_stages(patched(PATCHED[kind], d))
