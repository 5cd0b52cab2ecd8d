from __future__ import annotations

import msgspec
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.module import Module
from tatami.indexbook.ir import Guard
from tatami.region.ir import Binary, BroadcastInDim, Cast, Let, Reduce, Ref, Region, Select, Transpose, Unary, Within, Yield
from tatami.region.verify import verify, verify_region
from tests.region import examples as ex


def kinds(region: Region) -> list[str]:
    return [d.kind for d in verify_region(region)]


def with_let(region: Region, position: int, **changes: object) -> Region:
    lets = list(region.lets)
    lets[position] = msgspec.structs.replace(lets[position], **changes)
    return msgspec.structs.replace(region, lets=tuple(lets))


@pytest.mark.parametrize("make", ex.ALL, ids=lambda f: f.__name__)
def test_the_examples_are_valid(make: object) -> None:
    assert [str(d) for d in verify(ex.program_of(make()))] == []  # type: ignore[operator]


def test_a_let_is_assigned_once() -> None:
    assert kinds(with_let(ex.gemm(), 1, name="acc"))[0] == "DuplicateId"


def test_a_reference_has_to_be_defined_before() -> None:
    assert kinds(with_let(ex.gemm(), 1, expr=Ref("c2"))) == ["UnknownValue"]


def test_an_axis_has_to_be_in_scope() -> None:
    assert kinds(with_let(ex.gemm(), 2, expr=ex.read("A", "m", "k"))) == ["AxisOutOfRange"]


def test_a_ref_needs_all_axes_of_its_let() -> None:
    region = ex.softmax()
    wrong = with_let(region, 2, expr=Ref("e"))
    assert "AxisOutOfRange" in kinds(wrong)


def test_an_axis_is_no_size_symbol() -> None:
    region = msgspec.structs.replace(ex.gemm(), reduce_axes=ex.iters(M="K"))
    assert kinds(region)[0] == "InvalidSymbol"


def test_binary_operands_have_one_dtype() -> None:
    wrong = with_let(ex.gemm(), 1, expr=ex.add(Ref("acc"), Cast(ex.read("bias", "n"), DType.fp16)))
    found = verify_region(wrong)
    assert [d.kind for d in found] == ["DTypeMismatch"]
    assert "cast" in found[0].suggestion


def test_a_product_under_a_sum_may_widen() -> None:
    assert kinds(ex.gemm(DType.fp16)) == []
    region = ex.gemm(DType.fp16)
    assert "DTypeMismatch" in kinds(with_let(region, 1, expr=ex.mul(Ref("acc"), ex.read("bias", "n"))))


def test_a_reduce_needs_its_dtype() -> None:
    assert "AccDtypeMissing" in kinds(with_let(ex.gemm(), 0, expr=ex.total("k", ex.read("A", "m", "k"), dtype=DType.unknown)))


def test_reduce_axes_are_declared() -> None:
    wrong = with_let(ex.gemm(), 0, expr=ex.total("q", ex.read("A", "m", "n")))
    assert any("reduce_axes" in d.suggestion for d in verify_region(wrong))


def test_a_let_does_not_reduce_its_own_axis() -> None:
    assert "AxisOutOfRange" in kinds(with_let(ex.softmax(), 0, axes=("m", "n")))


def test_reduces_are_whole_lets() -> None:
    wrong = with_let(ex.softmax(), 0, expr=Unary("exp", ex.total("n", ex.read("X", "m", "n"))))
    assert kinds(wrong) == ["InvalidRegion"]


def guarded_product(region: Region) -> tuple[Binary, Select]:
    """The product that a convolution sums, and its left side: a read inside of a guard."""
    total = region.lets[0].expr
    assert isinstance(total, Reduce) and isinstance(total.body, Binary) and isinstance(total.body.x, Select)
    return total.body, total.body.x


def test_an_unguarded_read_is_found() -> None:
    region = ex.conv()
    _, guarded = guarded_product(region)
    body = ex.mul(guarded.then, ex.read("F", "co", "ci", "kh", "kw"))
    assert set(kinds(with_let(region, 0, expr=ex.total("ci kh kw", body)))) == {"UnguardedAccess"}


def test_a_guard_that_is_too_wide_does_not_help() -> None:
    region = ex.conv()
    body, read = guarded_product(region)
    assert isinstance(read.pred, Within)
    guards = tuple(Guard(g.index, g.size + 2) for g in read.pred.guards)
    wide = msgspec.structs.replace(body, x=Select(Within(guards), read.then, read.other))
    assert set(kinds(with_let(region, 0, expr=ex.total("ci kh kw", wide)))) == {"UnguardedAccess"}


def test_the_else_of_a_guard_is_neutral() -> None:
    region = ex.conv()
    _, read = guarded_product(region)
    ones = msgspec.structs.replace(read, other=ex.const(1.0))
    assert kinds(with_let(region, 0, expr=ex.total("ci kh kw", ones, "max"))) == ["GuardNotNeutral"]
    below = msgspec.structs.replace(read, other=ex.const("-INF"))  # type: ignore[arg-type]
    assert kinds(with_let(region, 0, expr=ex.total("ci kh kw", below, "max"))) == []


def test_explicit_movement_has_the_shape_of_its_let() -> None:
    region = ex.gemm()
    good = BroadcastInDim(ex.read("bias", "n"), shape("M", "N"), (1,))
    extra = (*region.lets[:1], Let("w", ("m", "n"), DType.fp32, good), *region.lets[1:])
    assert kinds(msgspec.structs.replace(region, lets=extra)) == []
    bad = BroadcastInDim(ex.read("bias", "n"), shape("N", "M"), (1,))
    assert kinds(msgspec.structs.replace(region, lets=(Let("w", ("m", "n"), DType.fp32, bad), *region.lets))) == [
        "BroadcastMismatch"
    ]
    turned = Let("w", ("m", "n"), DType.fp32, Transpose(Ref("acc"), (1, 0)))
    assert kinds(msgspec.structs.replace(region, lets=(*region.lets, turned))) == ["BroadcastMismatch"]


def test_unknown_ops_are_named() -> None:
    assert kinds(with_let(ex.gemm(), 2, expr=Unary("gelu", Ref("c1")))) == ["UnknownOp"]
    assert kinds(with_let(ex.gemm(), 0, expr=ex.total("k", ex.read("A", "m", "k"), "matmul"))) == ["UnknownOp"]


def test_yields_cover_their_output() -> None:
    region = ex.gemm()
    assert kinds(msgspec.structs.replace(region, yields=())) == ["InvalidRegion"]
    half = Yield("c2", "C", map=(expr("m"), expr("n")))
    assert kinds(msgspec.structs.replace(region, yields=(half,))) == []
    shifted = Yield("c2", "C", map=(expr("m"), expr("n + 1")))
    assert kinds(msgspec.structs.replace(region, yields=(shifted,))) == ["UnguardedAccess"]
    wider = msgspec.structs.replace(region, outputs=(ex.target("C", "M", "2*N"),), yields=(half,))
    assert kinds(wider) == ["InvalidRegion"]
    both = (half, Yield("c1", "C", map=(expr("m"), expr("n + N"))))
    assert kinds(msgspec.structs.replace(wider, yields=both)) == []


def test_a_yield_has_the_dtype_of_its_output() -> None:
    assert kinds(msgspec.structs.replace(ex.gemm(), yields=(Yield("c2", "C", DType.fp16),))) == ["DTypeMismatch"]


def test_a_scatter_updates_an_input() -> None:
    region = ex.gemm()
    index = Let("where", ("m", "n"), DType.i64, Cast(Ref("c2"), DType.i64))
    scatter = Yield("c2", "C", map=(expr("m"), None), indices=("where",))
    wrong = msgspec.structs.replace(region, lets=(*region.lets, index), yields=(scatter,))
    assert kinds(wrong) == ["InvalidRegion"]


def test_a_program_makes_what_it_reads() -> None:
    program = ex.program_of(ex.gemm()).main
    signature = msgspec.structs.replace(program.signature, inputs=program.signature.inputs[:2])
    missing = msgspec.structs.replace(program, inputs=program.inputs[:2], signature=signature)
    assert [d.kind for d in verify(Module({"main": missing}))] == ["UnknownValue"]


def test_the_symbols_of_a_signature_are_collected_once_for_all_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unrolled loop has hundreds of Regions, and as many tensors in its signature."""
    from tatami.region import verify as checks

    asked: list[int] = []

    def counted(signature: object) -> tuple[str, ...]:
        asked.append(0)
        found: tuple[str, ...] = symbols(signature)
        return found

    symbols = vars(checks)["symbols"]
    monkeypatch.setattr(checks, "symbols", counted)
    program = ex.program_of(ex.gemm()).main
    region = next(r for r in program.body if isinstance(r, Region))
    twice = msgspec.structs.replace(program, body=(region, msgspec.structs.replace(region, name="again")))
    checks.verify_program(twice)
    assert len(asked) == 1
