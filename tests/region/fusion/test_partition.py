import pytest

import tatami as tt
from tatami.core.cost import ACROSS, rates
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.core.target import PRESETS
from tatami.indexbook.analyse import analyse
from tatami.poly_view.extract import extract
from tatami.region.fusion.partition import partition, program_key
from tatami.region.partition_ir import Group, Partition
from tatami.tiny.ir import Program
from tests.tiny_programs import Builder, attention, conv_padded, gemm_bias_relu, layer_norm, row_softmax


def partitioned(tiny: Module[Program], decisions: dict[str, Partition] | None = None, target: str = "cpu:avx2") -> Partition:
    book = analyse(tiny)
    return partition(tiny, book, extract(tiny, book), PRESETS[target], decisions)["main"]


@pytest.mark.parametrize("build", [gemm_bias_relu, row_softmax, conv_padded, layer_norm, attention])
def test_the_examples_are_one_group_each(build) -> None:
    assert len(partitioned(build()).groups) == 1


@pytest.mark.parametrize(
    ("beside", "groups"), [("log_sum", 1), ("min", 4), ("sum", 4), ("sum_of_squares", 4), ("max_of_doubles", 4)]
)
def test_what_streams_beside_attention_is_what_its_template_takes(beside: str, groups: int) -> None:
    """The sum of exp(score - maximum). With another reduce of the scores they go through memory, kernel by kernel."""
    b = Builder()
    q, k, v = b.input("q", (70, 16)), b.input("k", (16, 90)), b.input("v", (90, 16))
    s = b.matmul(q, k)
    top = b.reduce("max", s, 1)
    e = b.op("exp", b.op("sub", s, b.along_rows(top, b[s].shape)))
    total = b.reduce("sum", e, 1)
    b.output("y", b.matmul(e, v))
    match beside:
        case "log_sum":
            row = b.op("add", top, b.op("log", total))
        case "sum_of_squares":
            row = b.reduce("sum", b.op("mul", s, s), 1)
        case "max_of_doubles":
            row = b.reduce("max", b.op("add", s, s), 1)
        case fn:
            row = b.reduce(fn, s, 1)
    b.output("row", row)
    assert len(partitioned(b.module()).groups) == groups


@pytest.mark.parametrize(
    ("rows", "width", "target", "groups"),
    [
        (512, 16, "cpu:avx2", 1),
        (100, 16, "cpu:avx2", 2),
        (512, 256, "cpu:avx2", 2),
        (8192, 16, "sm80", 1),
        (512, 16, "sm80", 2),
    ],
)
def test_pointwise_weights_stream_where_their_trip_through_memory_costs_more(
    rows: int, width: int, target: str, groups: int
) -> None:
    """Scores that stay in cache, or cost little compared with both products, go to the second product by themselves."""
    b = Builder()
    q, k, v = b.input("q", (rows, width)), b.input("k", (width, rows)), b.input("v", (rows, width))
    b.output("y", b.matmul(b.op("sigmoid", b.matmul(q, k)), v))
    assert len(partitioned(b.module(), target=target).groups) == groups


def test_products_of_one_anothers_results_are_not_the_weights_of_a_pair() -> None:
    """h * sigmoid(relu(h) W2) is made of two products, but not of the same rows and keys at once."""
    b = Builder()
    x, w1 = b.input("x", (65536, 64)), b.input("w1", (64, 128))
    w2, w3 = b.input("w2", (128, 128)), b.input("w3", (128, 64))
    h = b.matmul(x, w1)
    gate = b.op("sigmoid", b.matmul(b.op("relu", h), w2))
    y = b.matmul(b.op("mul", h, gate), w3)
    b.output("y", y)
    groups = partitioned(b.module()).groups
    assert sum(h in g.values and y in g.values for g in groups) == 0


def test_products_over_pixels_or_of_integers_do_not_stream_without_a_reduce() -> None:
    """1x1 convolutions have templates of their own, whose rows are pixels; the template of a pair takes rows of one axis."""
    g = tt.Graph("pixels")
    x = g.input("x", (1, 16, 64, 64), tt.fp32)
    w1, w2 = g.input("w1", (64, 16, 1, 1), tt.fp32), g.input("w2", (16, 64, 1, 1), tt.fp32)
    g.output("y", x.conv(w1).relu().conv(w2))
    assert len(tt.compile(g, target="cpu:avx2").stages["region"].value.main.body) == 2
    g = tt.Graph("integers")
    a, b, c = (g.input(n, (512, 16), tt.i32) for n in "abc")
    g.output("y", (a @ b.permute((1, 0))).relu() @ c)
    assert "streaming" not in tt.compile(g, target="cpu:avx2").stages["plan"].text


def test_two_matmuls_are_two_groups_and_the_activation_goes_with_the_first() -> None:
    b = Builder()
    x, w1, w2 = b.input("x", ("B", 784)), b.input("w1", (784, 1000)), b.input("w2", (1000, 10))
    h = b.op("relu", b.matmul(x, w1))
    b.output("y", b.matmul(h, w2))
    groups = partitioned(b.module()).groups
    assert len(groups) == 2
    assert h in groups[0].values


def test_a_residual_reads_the_other_branch_from_memory_without_a_circle() -> None:
    b = Builder()
    x, w = b.input("x", ("M", 64)), b.input("w", (64, 64))
    first = b.op("relu", b.matmul(x, w))
    second = b.matmul(first, w)
    b.output("y", b.op("add", second, first))
    groups = partitioned(b.module()).groups
    assert len(groups) == 2
    assert second in groups[1].values


def test_indexed_data_is_a_boundary_before_the_gather() -> None:
    b = Builder()
    x, i = b.input("x", (100, 8)), b.input("i", ("B", 8), dtype=b_int())
    e = b.op("exp", x)
    b.output("y", b.op("exp", b.gather(e, ("B", 8), (None, "i1"), i)))
    groups = partitioned(b.module()).groups
    assert [len(g.values) for g in groups] == [1, 2]


def b_int():
    return DType.i64


@pytest.mark.parametrize("rows", [1, 128])
def test_integers_that_only_products_take_are_stored_as_narrow_as_they_are(rows: int) -> None:
    b = Builder()
    x, w = b.input("x", (rows, 4096)), b.input("w", (4096, 4096), DType.i8)
    narrow = b.cast(b.op("round", x), DType.u8)
    wide = [b.cast(v, DType.i16) for v in (narrow, w)]
    b.output("y", b.matmul(wide[0], wide[1], acc=DType.i32))
    made, product = partitioned(b.module()).groups
    assert narrow in made.values and set(wide) <= set(product.values)


def test_a_long_chain_is_cut_and_linear() -> None:
    b = Builder()
    v = b.input("x", ("N",))
    for _ in range(300):
        v = b.op("exp", v)
    b.output("y", v)
    groups = partitioned(b.module()).groups
    assert len(groups) == 5
    assert max(len(g.values) for g in groups) == 64


def test_a_given_partition_is_obeyed_or_refused() -> None:
    b = Builder()
    x = b.input("x", ("N",))
    e = b.op("exp", x)
    y = b.op("relu", e)
    b.output("y", y)
    m = b.module()
    key = program_key(m.main)
    apart = Partition((Group((e,)), Group((y,))))
    assert partitioned(m, {key: apart}) == apart
    for wrong in (Partition((Group((e,)),)), Partition((Group((y,)), Group((e,)))), Partition((Group((e, y)), Group((y,))))):
        with pytest.raises(TatamiError, match="E1501"):
            partitioned(m, {key: wrong})


def test_a_chain_of_gathers_over_different_axes_is_one_read() -> None:
    b = Builder()
    x, i, j = b.input("x", (5, 6)), b.input("i", ("B", 6), dtype=b_int()), b.input("j", ("B", "B"), dtype=b_int())
    rows = b.gather(x, ("B", 6), (None, "i1"), b.expand(b.input("r", ("B",), dtype=b_int()), ("B", 6), (0,)))
    b.output("y", b.gather(rows, ("B", "B"), ("i0", None), j))
    b.output("z", b.gather(b.gather(x, ("B", 6), (None, "i1"), i), ("B", "B"), ("i0", None), j))
    groups = partitioned(b.module()).groups
    assert [len(g.values) for g in groups] == [2, 2]  # i lies in memory: it is read where j says


TARGETS = pytest.mark.parametrize("target", ["cpu:avx2", "sm80", "sm90"])
WRITTEN_AND_READ = 2 * 1024 * 2048 * 4


def the_edge(b: Builder, producer: str, consumer: str, target: str) -> dict[str, float]:
    """Terms of a fused edge, in seconds; Δtime is their sum with what is saved taken off."""
    (verdict,) = [
        v for v in partitioned(b.module(), target=target).verdicts if (v.producer, v.consumer) == (producer, consumer)
    ]
    terms = dict(verdict.terms)
    assert verdict.fused and verdict.delta_seconds == pytest.approx(sum(terms.values()) - 2 * terms["saved"])
    return terms


@TARGETS
def test_a_value_with_other_readers_is_written_all_the_same(target: str) -> None:
    b = Builder()
    x = b.op("exp", b.input("x", (1024, 2048)))
    y = b.op("neg", x)
    b.output("y", y)
    assert "fanout" not in the_edge(b, x, y, target)
    b.output("product", b.matmul(x, b.input("w", (2048, 64))))
    assert the_edge(b, x, y, target)["fanout"] == pytest.approx(WRITTEN_AND_READ / 2 / rates(PRESETS[target]).bandwidth)


@TARGETS
def test_a_view_that_turns_lines_costs_less_than_a_copy_that_does(target: str) -> None:
    """Two operands are read across their lines where the sum alone would have been; a view that turns them back saves that."""
    b = Builder()
    x, y, w = b.input("x", (1024, 2048)), b.input("y", (1024, 2048)), b.input("w", (2048, 1024))
    total = b.op("add", x, y)
    product = b.op("mul", b.permute(total, 1, 0), w)
    b.output("z", product)
    copied = WRITTEN_AND_READ / rates(PRESETS[target]).bandwidth
    turned = the_edge(b, total, product, target)["layout"]
    assert turned == pytest.approx(ACROSS * copied / 2) and 0 < turned < copied

    b = Builder()
    back = b.op("exp", b.permute(b.input("x", (2048, 1024)), 1, 0))
    again = b.op("neg", b.permute(back, 1, 0))
    b.output("z", again)
    assert the_edge(b, back, again, target)["layout"] == pytest.approx(-ACROSS * copied)

    b = Builder()
    kept = b.op("exp", b.input("x", (1024, 2048, 1)))
    same = b.op("neg", b.reshape(b.permute(kept, 2, 0, 1), 1024, 2048))
    b.output("z", same)
    assert "layout" not in the_edge(b, kept, same, target)


@pytest.mark.parametrize(("dtype", "times"), [(DType.fp64, 0.5), (DType.fp32, 1), (DType.fp16, 2), (DType.i8, 4)])
def test_narrow_elements_lose_wider_vectors(dtype: DType, times: float) -> None:
    """Across the lines each element is an access, along them a vector: a byte of narrow elements costs more."""
    for target in ("cpu:avx2", "sm80", "sm90"):
        b = Builder()
        x, y, w = b.input("x", (1024, 2048), dtype), b.input("y", (1024, 2048), dtype), b.input("w", (2048, 1024), dtype)
        total = b.op("add", x, y)
        product = b.op("mul", b.permute(total, 1, 0), w)
        b.output("z", product)
        bytes_ = 1024 * 2048 * dtype.itemsize
        across = the_edge(b, total, product, target)["layout"]
        assert across == pytest.approx(ACROSS * times * bytes_ / rates(PRESETS[target]).bandwidth)


def turned_epilogue(*, turned: bool, beside: bool) -> tuple[Builder, str, str]:
    """``x @ w`` and what is made of it, transposed if `turned`; `beside`: a residual is added, which lies as the result does."""
    b = Builder()
    total = b.matmul(b.input("x", (512, 256)), b.input("w", (256, 1024)))
    seen = b.permute(total, 1, 0) if turned else total
    shape = (1024, 512) if turned else (512, 1024)
    result = b.op("add", seen, b.input("r", shape)) if beside else b.op("neg", seen)
    b.output("y", result)
    return b, total, result


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("target", ["cpu:avx2", "sm80", "sm90"])
def test_a_turned_epilogue_costs_what_no_exchange_of_operands_saves(target: str, beside: bool) -> None:
    b, total, result = turned_epilogue(turned=False, beside=beside)
    assert "layout" not in the_edge(b, total, result, target)
    b, total, result = turned_epilogue(turned=True, beside=beside)
    once = ACROSS * 512 * 1024 * 4 / rates(PRESETS[target]).bandwidth
    layout = the_edge(b, total, result, target).get("layout", 0.0)
    if target == "sm90":  # wgmma and its tensor maps take either operand as rows: the sum need not be turned in memory
        assert layout == pytest.approx(-once)
    else:  # stored across the lines in place of read across them; so is the residual, which another kernel reads along them
        assert layout == pytest.approx(once if beside else 0.0)


def half_product(*, beside: bool = False, wide: bool = False) -> tuple[Builder, str, str, str]:
    """x @ w in fp16 and the sum of exp over its rows in fp32; `beside`: it is an output too; `wide`: so is what is summed."""
    b = Builder()
    x, w = b.input("x", (70, 32), DType.fp16), b.input("w", (32, 48), DType.fp16)
    narrow = b.cast(b.matmul(x, w), DType.fp16)
    widened = b.cast(narrow, DType.fp32)
    total = b.reduce("sum", b.op("sub", widened, b.along_rows(b.reduce("max", widened, 1), (70, 48))), 1)
    b.output("total", total)
    if beside:
        b.output("y", narrow)
    if wide:
        b.output("z", widened)
    return b, narrow, widened, total


@TARGETS
@pytest.mark.parametrize(("beside", "bytes_saved"), [(False, 4), (True, 6)])
def test_rows_of_a_product_are_read_as_narrow_as_they_are(beside: bool, bytes_saved: int, target: str) -> None:
    b, narrow, widened, total = half_product(beside=beside)
    made = partitioned(b.module(), target=target)
    product, rows = made.groups
    assert narrow in product.values and {widened, total} <= set(rows.values)
    (left,) = (v for v in made.verdicts if v.rule == "widens")
    assert (left.producer, left.consumer, left.fused) == (narrow, widened, False)
    saved = bytes_saved * 70 * 48 / rates(PRESETS[target]).bandwidth
    assert left.delta_seconds == pytest.approx(-saved)
    assert all(v.fused for v in made.verdicts if v.producer == widened)
    assert partitioned(b.module(), {program_key(b.module().main): made}, target).groups == made.groups


def test_what_is_an_output_in_its_wider_type_is_widened_by_the_product() -> None:
    b, narrow, widened, _ = half_product(wide=True)
    made = partitioned(b.module(), target="sm90")
    assert {narrow, widened} <= set(made.groups[0].values)
    assert not any(v.rule == "widens" for v in made.verdicts)


@TARGETS
def test_every_kernel_of_rows_widens_a_product_by_itself(target: str) -> None:
    b, _, widened, _ = half_product()
    b.output("columns", b.reduce("sum", widened, 0))
    made = partitioned(b.module(), target=target)
    assert [widened in g.values for g in made.groups] == [False, True, True]
    assert partitioned(b.module(), {program_key(b.module().main): made}, target).groups == made.groups
