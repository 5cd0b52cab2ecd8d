"""Rows C of the checklist (spec 3) that no other test states as a fact."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

from tatami.api import build, compile, prepare
from tatami.cli import main
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.frontend.graph import Graph
from tatami.plan.gpu.estimate import gpu_estimate
from tatami.region.ir import Reduce
from tatami.report.explain import explain
from tatami.stages import STAGES, show
from tests.gpu.gemm_examples import gemm as gemm_region
from tests.gpu.gemm_examples import sm80
from tests.rows.models import attention, check, conv, f16, f32, gemm, regions, text

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "examples" / "spec"


def command(*words: str) -> str:
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == 0, done.output
    return done.output


# -- C-03 … C-09 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cuda:sm70", "sm100", "sm70"])
def test_a_target_that_is_not_there_is_one_diagnostic(name: str) -> None:
    with pytest.raises(TatamiError) as error:
        compile(gemm(), target=name)
    assert [d.code for d in error.value.diagnostics] == ["E1504"]


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_sixteen_bit_products_accumulate_in_fp32(kind: Any) -> None:
    dtype = DType.fp16 if kind is np.float16 else DType.bf16
    a, b = (f32(*s).astype(kind) for s in ((8, 4096), (4096, 8)))
    g = Graph("g")
    g.output("C", g.input("A", ("M", 4096), dtype) @ g.input("B", (4096, "N"), dtype))
    check(g, {"A": a, "B": b})
    assert "fp32acc" in text(gemm(dtype=dtype), "gpu", "sm80")


@pytest.mark.parametrize("make", [gemm, conv, attention])
def test_no_kernel_library_is_called(make: Any) -> None:
    for stage, target in (("c", "cpu:avx2"), ("cu", "sm80"), ("cu", "sm90")):
        code = text(make(), stage, target).lower()
        assert len(code) > 1000
        for word in ("cublas", "cudnn", "cutlass", "cblas", "mkl", "onednn"):
            assert word not in code
    source = prepare(make(), target="sm90").stages["cu"].main
    assert all("asm" not in unit.text for unit in source.units)


def test_every_term_of_the_glossary_is_an_identifier() -> None:
    code = "\n".join(p.read_text() for p in (ROOT / "tatami").rglob("*.py"))
    found = 0
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines()[6:]:
        cells = line.split("|")
        if len(cells) < 4:
            continue
        has_japanese = len(cells) > 5
        for name in re.findall(r"`([^`]+)`", cells[3 if has_japanese else 2]):
            found += has_japanese
            word = name.split(".")[-1].split("/")[-1].split(" ")[-1]
            assert word in code or (ROOT / "tatami" / name).exists(), name
    assert found > 30, "identifiers of the specification's terms"


@pytest.mark.parametrize("target", ["cpu:avx2", "sm80"])
def test_every_stage_is_dumped_and_loads_again(target: str, tmp_path: Path) -> None:
    model = SPEC / "2-5.1-gemm.json"
    command("compile", str(model), "-o", str(tmp_path), "--dump=all", f"--target={target}")
    made = [s for s in STAGES if list(tmp_path.glob(f"*_{s.file_stem}.json"))]
    names = {s.name for s in made}
    assert names >= {"tiny", "indexbook", "poly_view", "region", "poly_core", "plan", "execution"}
    assert names >= ({"gpu", "cu"} if target == "sm80" else {"loop", "c"})
    for s in made:
        (path,) = tmp_path.glob(f"*_{s.file_stem}.json")
        (words,) = tmp_path.glob(f"*_{s.file_stem}.txt")
        assert words.read_text().strip(), s.name
        again = prepare(path, target=target, trust=True)
        assert again.stages.get_made(s.name) is not None


def test_what_where_and_how_stay_apart() -> None:
    def fields(layer: str) -> str:
        return (ROOT / "tatami" / layer / "ir.py").read_text()

    assert not re.search(r"^    (guards|domain|axes_of)\b.*:|AxisMap", fields("tiny"), re.M)
    assert not re.search(r"^    (tile|stages|smem|buffer|threads)\b.*:", fields("region"), re.M)
    assert not re.search(r"\b(Binary|Unary|Reduce)\(", fields("plan"))


# -- C-11 … C-15 -----------------------------------------------------------------------------------


def test_a_gather_of_a_computed_tensor_ends_its_region() -> None:
    g = Graph("g")
    x, i = g.input("x", (10, 8), DType.fp32), g.input("i", ("B",), DType.i64)
    g.output("y", x.exp().take(i))
    compilation = prepare(g)
    assert "may" in text(compilation, "poly_view") or "non_scop" in text(compilation, "indexbook")
    assert len(regions(compilation)) == 2
    assert "non_scop" in explain(compilation)


def test_the_signature_is_the_same_in_frontend_and_execution() -> None:
    compilation = prepare(gemm())
    assert compilation.stages["frontend"].main.signature == compilation.stages["execution"].main.signature
    f = build(compilation, 1)
    a, b, bias = f16(3, 4), f16(4, 5), f16(5)
    kept = a.copy()
    f(A=a, B=b, bias=bias)
    assert np.array_equal(a, kept)
    bad: list[dict[str, Any]] = [
        {"A": a, "B": b},
        {"A": a.astype(np.float32), "B": b, "bias": bias},
        {"A": a, "B": f16(5, 5), "bias": bias},
        {"A": f16(3, 4, 1), "B": b, "bias": bias},
    ]
    for inputs in bad:
        with pytest.raises(TatamiError) as error:
            f(inputs)
        assert len(error.value.diagnostics) == 1


@pytest.mark.parametrize("uop", ["VALID", "LOAD", "STORE", "INDEX", "RANGE", "IF", "ENDIF"])
def test_control_and_memory_uops_are_normalised_or_refused_in_words(uop: str) -> None:
    document = {
        "signature": {"inputs": [{"tensor": "x", "dtype": "fp32", "shape": ["N"]}], "outputs": [{"tensor": "y"}]},
        "uops": [
            {"id": "n0", "uop": "INPUT", "dtype": "fp32", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": ["N"]}},
            {"id": "n1", "uop": uop, "dtype": "fp32", "src": ["n0"], "arg": {"shape": ["N"]}},
            {"id": "n2", "uop": "STORE", "dtype": "fp32", "src": ["n1"], "arg": {"tensor_id": "y"}},
        ],
    }
    try:
        tiny = text(prepare(document), "tiny")
    except TatamiError as error:
        assert all(d.why and d.suggestion for d in error.diagnostics)
    else:
        assert uop not in tiny


# -- C-25 … C-37 -----------------------------------------------------------------------------------


def test_a_reduce_of_the_middle_axis_renumbers_the_rest() -> None:
    g = Graph("g")
    g.output("y", g.input("x", ("A", "B", "C"), DType.fp32).sum((1,)))
    book = text(g, "indexbook").splitlines()[-1]
    assert re.search(r"i0:A i1:C \| r0:B\s+n0\[i0, r0, i1\]\s+acc fp32", book), book


@pytest.mark.parametrize("mask", [("N",), ("M", "N"), (1, 1, 1, "N"), (1, 2, "M", "N")])
def test_masks_of_any_broadcast_shape_run(mask: tuple[int | str, ...]) -> None:
    sizes = {"M": 5, "N": 7}
    shape = tuple(sizes.get(s, s) if isinstance(s, str) else s for s in mask)
    inputs = {"Q": f32(1, 2, 5, 16), "K": f32(1, 2, 7, 16), "V": f32(1, 2, 7, 16), "mask": f32(*shape)}  # type: ignore[arg-type]
    check(attention(causal=False, mask=mask), inputs)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_of_every_rank_are_a_conv_pattern(rank: int) -> None:
    g = Graph("g")
    dims = ("D", "H", "W")[3 - rank :]
    x, w = g.input("X", (2, 5, *dims), DType.fp32), g.input("W", (7, 5, *[3] * rank), DType.fp32)
    g.output("Y", x.conv(w, stride=(2,) * rank, padding=((1, 1),) * rank))
    view = prepare(g).stages["poly_view"].main
    assert [p.pattern for p in view.patterns] == ["conv"]
    assert len(view.patterns[0].affine_offsets) == rank


def test_a_computed_operand_is_named_and_the_product_found() -> None:
    g = Graph("g")
    a, b = g.input("A", ("M", "K"), DType.fp32), g.input("B", ("K", "N"), DType.fp32)
    g.output("y", a.exp() @ b)
    compilation = check(g, {"A": f32(5, 6), "B": f32(6, 7)})
    assert [p.pattern for p in compilation.stages["poly_view"].main.patterns] == ["matmul"]
    assert "contraction_operand" in explain(compilation)


@pytest.mark.parametrize(
    "make, target", [(gemm, "cpu:avx2"), (conv, "cpu:avx2"), (attention, "cpu:avx2"), (gemm, "sm80"), (conv, "sm80")]
)
def test_a_contraction_with_its_epilogue_is_one_region_and_one_kernel(make: Any, target: str) -> None:
    compilation = prepare(make(), target=target)
    assert len(regions(compilation)) == 1
    plan = text(compilation, "execution")
    assert plan.count("# r") == 1 and " then " not in plan and "arena" not in plan


@pytest.mark.parametrize("make", [gemm, conv, attention])
def test_regions_have_no_pattern_names(make: Any) -> None:
    document = json.dumps(json.loads(compile_json(make(), "region")))
    for word in ("matmul", "conv", "attn", "attention", "softmax", "gemm"):
        assert f'"op": "{word}"' not in document and f'"{word}": {{' not in document


def compile_json(g: Graph, stage: str) -> str:
    from tatami.api import StageView
    from tatami.core.target import PRESETS

    return StageView(stage, prepare(g).stages[stage], PRESETS["cpu:avx2"]).json


# -- C-39 … C-57 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layout",
    [
        {"kind": "row_major"},
        {"kind": "col_major"},
        {"kind": "swizzled", "params": {"pattern": "xor32", "vec_bytes": 16}},
    ],
)
def test_a_region_document_with_any_layout_runs(layout: dict[str, Any]) -> None:
    document = json.loads((SPEC / "3-6.8.1-gemm-bias-relu.json").read_text())
    document["region"]["inputs"][1]["memref"]["layout"] = layout
    check(document, {"A": f16(33, 40), "B": f16(40, 24), "bias": f16(24)})


@pytest.mark.parametrize("target", ["sm80", "sm90"])
@pytest.mark.parametrize("left", [False, True])
def test_a_transposed_operand_needs_no_kernel_of_its_own(left: bool, target: str) -> None:
    g = Graph("g")
    a = g.input("A", ("K", "M") if left else ("M", "K"), DType.fp16)
    b = g.input("B", ("K", "N") if left else ("N", "K"), DType.fp16)
    g.output("C", (a.permute((1, 0)) @ b) if left else (a @ b.permute((1, 0))))
    compilation = prepare(g, target=target)
    assert len(regions(compilation)) == 1
    gpu = text(compilation, "gpu")
    assert ("mn-major" in gpu) == left


def test_a_reshape_is_part_of_the_read() -> None:
    g = Graph("g")
    g.output("y", g.input("x", (4, 6), DType.fp32).reshape((3, 8)).exp())
    (region,) = regions(prepare(g))
    dump = text(g, "region")
    assert "//" in dump and "reshape" not in dump.lower()
    assert len(region.lets) == 1


def test_padding_is_a_guard_with_the_neutral_element() -> None:
    g = Graph("g")
    x = g.input("x", (1, 2, "H", "W"), DType.fp32)
    g.output("y", x.max_pool((3, 3), stride=(2, 2), padding=((1, 1), (1, 1))))
    assert "else -INF" in text(g, "region")
    assert "else 0" in text(conv(), "region")


def test_a_shared_accumulator_is_computed_once() -> None:
    g = Graph("g")
    a, b = g.input("A", ("M", "K"), DType.fp16), g.input("B", ("K", "N"), DType.fp16)
    acc = a @ b
    g.output("r", acc.relu())
    g.output("s", acc.sigmoid())
    compilation = check(g, {"A": f16(33, 20), "B": f16(20, 17)})
    assert text(compilation, "region").count("sum over") == 1
    assert text(g, "loop").count("# contraction") == 1
    kernels = text(g, "gpu", "sm80").split("  kernel ")[1:]  # one for sizes that are multiples of 8, one for all others
    assert [k.count("Mma acc") for k in kernels] == [1, 1]


def test_the_region_of_a_model_has_the_form_of_the_document() -> None:
    document = regions(prepare(SPEC / "3-6.8.1-gemm-bias-relu.json"))[0]
    model = regions(prepare(gemm()))[0]
    for region in (document, model):
        assert [i.name for i in region.iters] == ["m", "n"]
        assert type(region.lets[0].expr).__name__ == "Reduce"
        assert region.lets[0].expr.axes == ("k",)  # type: ignore[union-attr]
        assert "mul" in repr(region.lets[0].expr) and region.lets[-1].expr.fn == "relu"  # type: ignore[union-attr]


def test_lets_of_attention_lack_the_axis_they_reduce() -> None:
    (region,) = regions(prepare(attention(causal=False)))
    by_fn = {x.expr.fn: x for x in region.lets if isinstance(x.expr, Reduce) and "n" not in x.axes}
    assert "max" in by_fn and "sum" in by_fn


@pytest.mark.parametrize("make", [gemm, conv, attention])
def test_playback_agrees(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(compile_json(make(), "frontend"))
    sizes = [f"-D{n}={v}" for n, v in (("M", 33), ("K", 33), ("N", 40), ("H", 13), ("W", 11)) if f'"{n}"' in path.read_text()]
    used = prepare(path).stages["frontend"].main.signature
    known = {str(s) for i in used.inputs for s in i.shape}
    output = command("playback", str(path), *[w for s in sizes if s[2:].split("=")[0] in known for w in ("-D", s[2:])])
    assert "no divergence" in output and "kernels" in output


def test_a_deferred_value_says_why_it_has_a_buffer() -> None:
    compilation = prepare(SPEC / "3-6.8.3-attention-deferred.json")
    assert re.search(r"P: kept in memory: .* are different kernels", explain(compilation))


def test_a_layout_in_a_region_document_is_kept_and_converted_only_at_its_boundary() -> None:
    compilation = prepare(SPEC / "3-6.8.1-gemm-bias-relu.json")
    assert regions(compilation)[0].inputs[1].memref.layout.kind == "col_major"
    assert len(regions(compilation)) == 1 and "conversion" not in explain(compilation)


# -- C-60 … C-75 -----------------------------------------------------------------------------------


def test_a_chain_of_reshapes_is_affine() -> None:
    g = Graph("g")
    g.output("y", g.input("x", (4, 6), DType.fp32).reshape((3, 8)).permute((1, 0)).reshape((2, 12)).exp())
    assert all(f.affine_closed for f in prepare(g).stages["poly_core"].main.regions)


def test_exactly_the_tail_axes_are_predicated() -> None:
    exact, odd = prepare(gemm(128, 64, 128), target="sm80"), prepare(gemm(100, 75, 130), target="sm80")
    assert '"predicate_tail": []' in text(exact, "plan") and " if " not in text(exact, "gpu").split("run k0")[0]
    assert '"predicate_tail": ["m.i.i", "n.i.i", "k.i.i"]' in text(odd, "plan")
    assert "if m, k inside" in text(odd, "gpu") and "if m, n inside" in text(odd, "gpu")


def test_an_edge_into_a_contraction_has_a_halo_and_a_verdict() -> None:
    compilation = prepare(conv(before=True))
    edges = [e for e in compilation.stages["poly_view"].main.edges if e.halo]
    assert edges and all(w == 1 for e in edges for w in e.halo.values()) and edges[0].halo_bytes is not None
    report = explain(compilation)
    assert re.search(r"separate .*contraction_operand.*halo i2\+1 i3\+1 = .* bytes", report), report


def test_a_value_that_cannot_fuse_lies_in_memory() -> None:
    g = Graph("g")
    x, i = g.input("x", (10, 8), DType.fp32), g.input("i", ("B",), DType.i64)
    g.output("y", x.exp().take(i))
    between = prepare(g).stages["poly_core"].main
    (edge,) = between.dependences
    assert (edge.kind, {b.name: b.buffer for b in between.regions[1].min_buffer}[edge.buffer]) == ("true", "gmem")
    gemm_facts = prepare(gemm()).stages["poly_core"].main.regions[0]
    kinds = {b.name: (b.buffer, b.depth) for b in gemm_facts.min_buffer}
    assert [v for v in kinds.values() if v[0] == "smem_ring"] == [("smem_ring", 2)] * 2


def test_swizzle_off_changes_addresses_and_conflicts() -> None:
    hints = {"A_swizzle": False, "B_swizzle": False, "C_stride": "row"}
    kernels = {}
    for name, plan in (("on", sm80()), ("off", sm80(hints=hints))):
        from tatami.core.expr import var
        from tatami.core.kernel import Condition
        from tatami.core.target import PRESETS
        from tatami.gpu.lower import lower_region
        from tatami.plan.ir import Guarded

        by8 = tuple(Condition(var(s), 8) for s in "MNK")
        kernels[name], _ = lower_region(gemm_region(), Guarded(by8, plan), PRESETS["sm80"])
    assert [r.swizzle for r in kernels["on"].smem] != [r.swizzle for r in kernels["off"].smem]
    assert "8-way, swizzle xor128" in text(gemm(), "poly_core")


# -- C-80 … C-94 -----------------------------------------------------------------------------------


def test_compound_operations_become_primitives() -> None:
    names = "INPUT CONST RESHAPE PERMUTE EXPAND PAD SHRINK VIEW FLIP MUL ADD SUB DIV REDUCE EXP RELU SIGMOID CAST WHERE IOTA "
    primitives = frozenset((names + "LE LT GE FDIV EXP2 MAX NEG RECIP AND OR NOT GT").split())
    for make in (conv, attention):
        words = {line.split()[1] for line in text(make(), "tiny").splitlines() if re.match(r"n\d", line)}
        assert words <= primitives, words - primitives
        assert {"MUL", "REDUCE"} <= words
    dump = text(attention(), "tiny")
    assert dump.count("SUM") == 3 and dump.count("REDUCE") == 4


def test_the_estimate_is_its_terms() -> None:
    plan = prepare(gemm(4096, 4096, 4096), target="sm90").stages["plan"].main.regions[0]
    terms = plan.choices[-1].estimate
    expected = max(terms["compute"], terms["memory"]) + terms["prologue"] - terms["overlap_gain"] + terms["launch"]
    assert terms["total"] == pytest.approx(expected)
    moved = 3 * 4096 * 4096 * 2
    assert terms["memory"] == pytest.approx(moved / 4.8e12)
    flops = 2 * 4096**3
    assert terms["compute"] == pytest.approx(flops / (9.89e14 * terms["pipeline_eff"] * terms["wave_eff"]), rel=0.05)


def test_few_blocks_reach_a_share_of_the_memory() -> None:
    """Bytes under way over what bandwidth and latency hold, recomputed by hand for a product of a few tiles."""
    chip = PRESETS["sm80"]
    plan = sm80(stages=3)
    bm, bn, bk = plan.tile
    small, large = (gpu_estimate(plan, DType.fp16, (1, m, m, 4096), chip) for m in (2 * bm, 64 * bm))
    tiles = 2 * (2 * bm // bn)
    under_way = tiles * 3 * (bm + bn) * bk * 2
    assert small["memory_occ"] < 1
    assert small["memory_occ"] == pytest.approx(under_way / (chip.bandwidth * 622.7 / chip.clock))
    moved = 2 * (2 * 2 * bm * 4096 + (2 * bm) ** 2)
    assert small["memory"] == pytest.approx(moved / (chip.bandwidth * small["memory_occ"]))
    assert large["memory_occ"] == 1


def test_overlap_gains_the_shorter_of_load_and_epilogue() -> None:
    dims = (1, 4096, 4096, 4096)
    on, off = (gpu_estimate(sm80(stages=3, overlap=o), DType.fp16, dims, PRESETS["sm80"]) for o in (True, False))
    assert off["overlap_gain"] == 0 and 0 < on["overlap_gain"] < on["waves"] * (on["prologue"] + 4e-6)
    assert max(on["compute"], on["memory"]) - max(off["compute"], off["memory"]) == pytest.approx(0, abs=1e-9)
    assert off["total"] - on["total"] == pytest.approx(on["overlap_gain"])


def test_faults_are_a_list_in_json(tmp_path: Path) -> None:
    wrong, right = tmp_path / "wrong.harp", tmp_path / "right.harp"
    wrong.write_text("graph main(x: f32[3], b: f32[4]) -> (y: f32[3]) { return x + b }\n")
    right.write_text("graph main(x: f32[3]) -> (y: f32[3]) { return relu(x) }\n")
    done = CliRunner().invoke(main, ["check", "--json", str(wrong), str(right)])
    (found,) = json.loads(done.stdout)
    assert done.exit_code == 1 and found["code"] == "E1001"
    assert all(found[name] for name in ("code", "kind", "at", "why", "suggestion"))
    done = CliRunner().invoke(main, ["check", "--json", str(right)])
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])


def test_every_code_is_documented() -> None:
    from tatami.core.faults.diagnostics_table import TABLE

    page = (ROOT / "docs" / "diagnostics.md").read_text()
    assert [k.code for k in TABLE.values() if k.code not in page] == []


def test_candidates_are_ten_to_twenty_with_reasons() -> None:
    for target in ("sm80", "sm90"):
        plan = prepare(gemm(4096, 4096, 4096), target=target).stages["plan"].main.regions[0]
        assert 10 <= len(plan.rejected) + 1 <= 20
        assert all(re.search(r"\d", r.why) for r in plan.rejected)


def test_one_seed_gives_one_sequence_everywhere() -> None:
    g = Graph("g")
    key = g.input("key", (), DType.u64)
    g.output("y", g.rand_u32((37, 5), key))
    inputs = {"key": np.array(7, np.uint64)}
    assert np.array_equal(compile(g)(inputs)["y"], compile(g, target="reference")(inputs)["y"])


def test_a_misaligned_pointer_is_copied_or_refused() -> None:
    f = compile(gemm(dtype=DType.fp32))
    memory = np.zeros(4 * 5 * 4 + 1, np.uint8)
    odd = memory[1:].view(np.float32).reshape(4, 5)
    y = f(A=odd, B=f32(5, 3), bias=f32(3))["C"]
    assert y.shape == (4, 3)


@pytest.mark.parametrize("name", ["frontend"])
def test_the_documents_of_the_frontend_run(name: str, tmp_path: Path) -> None:
    from tests.frontend.test_load import SPEC as DOCUMENT

    path = tmp_path / "gemm.json"
    path.write_text(json.dumps(DOCUMENT))
    output = command("run", str(path), "-D", "M=100", "-D", "N=130", "-D", "K=75", "--check")
    assert "agrees" in output and name
    assert len(regions(prepare(path))) == 1
    for target in ("sm80", "sm90"):
        assert "mma" in text(prepare(path, target=target), "gpu")


@pytest.mark.parametrize("length", [33, 40])
def test_causal_attention_runs_in_one_region(length: int) -> None:
    compilation = check(attention(), {n: f32(1, 2, length, 16) for n in "QKV"})
    assert len(regions(compilation)) == 1
    assert show("poly_view", compilation.stages["poly_view"]).count("pattern") == 2
