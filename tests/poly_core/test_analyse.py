from __future__ import annotations

import pytest

from tatami.api import prepare
from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.frontend.graph import Graph
from tatami.poly_core.analyse import analyse, conflict_ways, facts_of
from tests.region import examples as ex


def test_gemm_facts() -> None:
    f = facts_of(ex.gemm())
    assert (f.kind, f.parallel_axes, f.reduce_axes, f.tail_axes) == ("contraction", ("m", "n"), ("k",), ("m", "n", "k"))
    (c,) = f.contractions
    assert (c.lhs, c.rhs, c.epilogue) == ("A", "B", ("c1", "c2"))
    assert f.flops == expr("2*M*N*K + 2*M*N")
    assert f.bytes_read == expr("4*M*K + 4*K*N + 4*N")
    assert f.bytes_written == expr("4*M*N")
    assert {b.name: b.buffer for b in f.min_buffer} == {
        "A": "smem_ring", "B": "smem_ring", "bias": "gmem", "acc": "reg", "c1": "reg", "c2": "reg",
    }  # fmt: skip
    assert f.affine_closed


def test_exact_tiles_have_no_tail() -> None:
    from tatami.core.algebra.substitute import substitute_sizes

    region = substitute_sizes(ex.gemm(), {"M": expr(128), "N": expr(128), "K": expr(64)})
    assert facts_of(region).tail_axes == ()


def test_a_scanned_axis_is_not_parallel() -> None:
    assert facts_of(ex.running_sum()).parallel_axes == ("m",)


def test_a_window_needs_a_halo() -> None:
    (w,) = facts_of(ex.two_windows()).compute_at
    assert (w.name, w.ok, w.halo) == ("w", True, {"i": 2})
    assert w.halo_bytes == expr(8)


@pytest.mark.parametrize("row,ways", [(128, 8), (64, 4), (144, 1), (256, 8)])
def test_conflicts_are_counted_by_banks(row: int, ways: int) -> None:
    assert conflict_ways(row) == ways


def test_regions_that_share_a_buffer_depend() -> None:
    import msgspec

    first = ex.softmax()
    second = msgspec.structs.replace(
        ex.softmax(), name="again", inputs=(ex.param("Y", "M", "N"),), outputs=(ex.target("Z", "M", "N"),)
    )
    second = msgspec.structs.replace(
        second,
        lets=tuple(msgspec.structs.replace(n, expr=_renamed(n.expr)) for n in second.lets),
        yields=(msgspec.structs.replace(second.yields[0], to="Z"),),
    )
    core = analyse(ex.program_of(first, second)).main
    assert [(d.kind, d.source, d.target, d.buffer) for d in core.dependences] == [("true", "softmax", "again", "Y")]


def _renamed(e: object) -> object:
    from tatami.region.ir import Read
    from tatami.region.walk import rewrite

    return rewrite(e, lambda n: Read("Y", n.map) if isinstance(n, Read) else n)  # type: ignore[arg-type]


def test_the_report_has_the_fields_of_the_spec() -> None:
    from tatami.poly_core.show import report, show

    fields = report(facts_of(ex.gemm()))
    assert fields["compute_at"] == {"ok": True, "halo": {"bytes": "0", "per_axis": {"m": 0, "n": 0}}}
    assert fields["min_buffer"] == {"buffer": "reg", "depth": 2}
    assert '"parallel_axes": ["m", "n"]' in show(analyse(ex.program_of(ex.gemm())))


def test_a_changed_fact_is_found() -> None:
    import msgspec

    from tatami.core.module import Module
    from tatami.poly_core.verify import verify

    module = ex.program_of(ex.gemm())
    core = analyse(module).main
    assert verify(Module({"main": core}), module) == []
    wrong = msgspec.structs.replace(core, regions=(msgspec.structs.replace(core.regions[0], tail_axes=()),))
    assert ["tail_axes" in d.why for d in verify(Module({"main": wrong}), module)] == [True]


def test_a_product_of_axes_is_not_affine() -> None:
    from tatami.poly_core.analyse import is_affine

    axes = {"i": expr("N"), "j": expr("M")}
    assert is_affine(expr("2*i + j//4 + N*M"), axes)
    assert not is_affine(expr("i*j"), axes)
    assert not is_affine(expr("i*N"), axes)
    assert not is_affine(expr("i//N"), axes)


def test_an_update_in_place_depends_on_earlier_readers() -> None:
    import msgspec

    from tatami.poly_core.analyse import pair_dependences

    first = ex.softmax()
    target = msgspec.structs.replace(ex.target("Z", "M", "N"), updates="X")
    second = msgspec.structs.replace(
        ex.softmax(), name="again", outputs=(target,), yields=(msgspec.structs.replace(first.yields[0], to="Z"),)
    )
    third = msgspec.structs.replace(
        ex.softmax(),
        name="third",
        outputs=(msgspec.structs.replace(ex.target("W", "M", "N"), updates="X"),),
        yields=(msgspec.structs.replace(first.yields[0], to="W"),),
    )
    found = [(d.kind, d.source, d.target) for d in pair_dependences(ex.program_of(first, second, third).main)]
    assert {("anti", "softmax", "again"), ("output", "again", "third")} <= set(found)


@pytest.mark.parametrize(("window", "stride", "halo"), [(3, 1, 2), (3, 2, 1), (2, 2, 0), (5, 2, 3), (3, 3, 0), (2, 3, 0)])
def test_an_edge_has_one_halo(window: int, stride: int, halo: int) -> None:
    """Windows of neighbouring results overlap by the window less the stride: in poly_view, poly_core, and Δtime."""
    g = Graph("pools")
    x = g.input("x", (1, 4, 60, 60), DType.fp32)
    first = x.max_pool((window, window), stride=(stride, stride))
    g.output("y", first.max_pool((window, window), stride=(stride, stride)))
    compilation = prepare(g, target="cpu:avx2")
    (edge,) = [e for e in compilation.stages["poly_view"].main.edges if e.rule == "halo"]
    side = (60 - window) // stride + 1
    assert list(edge.halo.values()) == [halo, halo]
    assert edge.halo_bytes == expr(((side + halo) ** 2 - side**2) * 4 * 4)
    (region, *others) = compilation.stages["poly_core"].main.regions
    if not others:
        (inner,) = [c for c in region.compute_at if any(c.halo.values())] or region.compute_at[:1]
        assert sorted(inner.halo.values()) == sorted([0] * (len(inner.halo) - 2) + [halo, halo])
        assert inner.halo_bytes == edge.halo_bytes
