import numpy as np

from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.core.target import PRESETS
from tatami.indexbook.analyse import analyse
from tatami.poly_view.extract import extract
from tatami.region.fusion.partition import partition
from tatami.region.ir import At, BroadcastInDim, Read, Reduce, Ref, Region, Transpose
from tatami.region.ir import Program as RegionProgram
from tatami.region.lower import lower
from tatami.region.run import run
from tatami.tiny.ir import Program
from tests.tiny_programs import Builder, gemm_bias_relu, row_softmax


def lowered(tiny: Module[Program]) -> Module[RegionProgram]:
    book = analyse(tiny)
    view = extract(tiny, book)
    return lower(tiny, book, view, partition(tiny, book, view, PRESETS["cpu:avx2"]))


def only_region(tiny: Module[Program]) -> Region:
    (region,) = lowered(tiny).main.body
    assert isinstance(region, Region)
    return region


def test_gemm_shows_transpose_and_broadcast_before_the_product() -> None:
    region = only_region(gemm_bias_relu())
    lets = {let.name: let for let in region.lets}
    assert isinstance(lets["n5"].expr, BroadcastInDim)
    assert isinstance(lets["n7_t"].expr, Transpose)
    assert lets["n8"].axes == ("m", "n", "k")
    assert lets["n9"].axes == ("m", "n")
    assert isinstance(lets["n9"].expr, Reduce)


def test_softmax_names_the_reduced_axis_as_the_rows_axis() -> None:
    region = only_region(row_softmax())
    lets = {let.name: let for let in region.lets}
    assert lets["n1"].expr == Reduce("max", ("i1",), None, lets["n1"].dtype, Read("n0", _names("i0", "i1")))
    assert lets["n5"].expr == Reduce("sum", ("i1",), None, lets["n5"].dtype, Ref("n4"))


def test_a_square_read_both_ways_keeps_one_explicit_map() -> None:
    b = Builder()
    e = b.op("exp", b.input("x", ("N", "N")))
    b.output("y", b.op("add", e, b.permute(e, 1, 0)))
    region = only_region(b.module())
    assert any(isinstance(let.expr, Transpose | At) for let in region.lets)


def test_a_bias_after_a_reshape_takes_over_the_axes_of_the_contraction() -> None:
    b = Builder()
    x, w, bias = b.input("x", (6, 5)), b.input("w", (5, 4)), b.input("bias", (2, 3, 4))
    b.output("y", b.op("add", b.reshape(b.matmul(x, w), 2, 3, 4), bias))
    region = only_region(b.module())
    assert region.lets[-1].axes == ("m", "n")
    assert [str(e) for e in region.yields[0].map or ()] == ["m//3", "m - 3*(m//3)", "n"]


def test_origins_name_tiny_ids() -> None:
    module = lowered(gemm_bias_relu())
    origins = module.origins["main"]
    assert origins["n9"] == ("n9",)
    assert origins["n7_t"] == ("n7",)


def _names(*names: str):
    from tatami.core.expr import var

    return tuple(var(n) for n in names)


def test_heads_are_joined_where_attention_writes() -> None:
    b = Builder()
    q, k, v = (b.input(n, ("B", 4, "S", 8)) for n in "qkv")
    w = b.input("w", (32, 32))
    o = b.matmul(b.softmax(b.matmul(q, b.permute(k, 0, 1, 3, 2))), v)
    joined = b.reshape(b.permute(o, 0, 2, 1, 3), "B", "S", 32)
    full = ("B", "S", 32, 32)
    x = b.expand(b.reshape(joined, "B", "S", 1, 32), full, (0, 1, 2, 3))
    b.output("y", b.reduce("sum", b.op("mul", x, b.expand(w, full, (2, 3))), 3))
    first, second = lowered(b.module()).main.body
    assert isinstance(first, Region)
    assert isinstance(second, Region)
    assert first.outputs[0].name == joined
    assert [str(e) for e in first.yields[0].map or ()] == ["b0", "m", "8*b1 + n_2"]
    assert [p.name for p in second.inputs] == [joined, w]


def test_a_cast_that_two_kernels_repeat_is_in_memory_nowhere() -> None:
    b = Builder()
    x, w, u = b.input("x", (4, 5), DType.fp16), b.input("w", (5, 6)), b.input("u", (5, 6))
    wide = b.cast(x, DType.fp32)
    y, z = b.matmul(wide, w), b.matmul(wide, u)
    b.output("y", y)
    b.output("z", z)
    written = [t.name for r in lowered(b.module()).main.body if isinstance(r, Region) for t in r.outputs]
    assert written == [y, z]


def test_a_routine_takes_operands_in_its_order_and_as_often_as_they_stand() -> None:
    from tatami.frontend.graph import Graph
    from tatami.tiny.lower import lower as lower_to_tiny
    from tatami.tiny.normalize import normalize

    g = Graph("g")
    a, b = g.input("a", (4,), DType.fp32), g.input("b", (4,), DType.fp32)
    g.output("y", g.kernel_body("output[0] = 0;", b, a, b, outputs=[(DType.fp32, (4,))], meaning=lambda x, y, z: x - y + 3 * z))
    module = lowered(normalize(lower_to_tiny(g.module())))
    (region,) = module.main.body
    assert isinstance(region, Region) and region.opaque is not None
    first, second = (p.name for p in region.inputs)
    assert region.opaque.operands == (first, second, first)
    x, y = np.arange(4, dtype=np.float32), np.full(4, 10, np.float32)
    assert run(module, {"a": x, "b": y}, {})["y"].tolist() == (y - x + 3 * y).tolist()
