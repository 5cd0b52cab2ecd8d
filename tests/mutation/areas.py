"""The verifiers, each with the test files that are asked about its mutants."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutation.operators import REPORTS, Mutant, mutants

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class Area:
    """The tests that judge the mutants of one file."""

    tests: tuple[str, ...]
    """Test files, or functions of one as pytest names them."""
    functions: tuple[str, ...] = ()
    """Functions and classes that check, where a file holds more than checks; empty: all of it."""


def definitions(tree: ast.Module, area: Area) -> list[ast.stmt]:
    """The statements of a module that are changed."""
    return [s for s in tree.body if not area.functions or getattr(s, "name", "") in area.functions]


def mutants_of(tree: ast.Module, area: Area) -> list[Mutant]:
    """The mutants of a file's checks."""
    return [m for m in mutants(tree) if not area.functions or m.function.split(".")[0] in area.functions]


class _WithoutMessages(ast.NodeTransformer):
    """Texts for people, which no mutant changes, are empty."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return ast.Constant("")

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node.func:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in REPORTS:
                node.args = [ast.Constant("") if isinstance(a, ast.Constant) else a for a in node.args]
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if isinstance(node.value, ast.Constant):  # a docstring
            return ast.Pass()
        self.generic_visit(node)
        return node


def digest_of(path: str) -> str:
    """Hash of the statements that are changed, whatever their layout, comments, messages and imports."""
    tree = ast.parse((ROOT / path).read_text())
    changed = (s for s in definitions(tree, AREAS[path]) if not isinstance(s, ast.Import | ast.ImportFrom))
    text = "\n".join(ast.unparse(_WithoutMessages().visit(s)) for s in changed)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_REGION = ("tests/region/test_verify.py", "tests/region/test_verify_rules.py")
_EXECUTION = (
    "tests/execution/test_verify.py",
    "tests/execution/test_verify_rules.py",
    "tests/execution/test_verify_calls.py",
    "tests/execution/test_extents.py",
)
_TINY = ("tests/tiny/test_verify.py", "tests/tiny/test_verify_rules.py")
_CPU_PLAN = ("tests/plan/test_verify_rules.py",)
_GPU = (
    "tests/gpu/test_verify.py",
    "tests/gpu/test_verify_rules.py",
    "tests/gpu/pairs/test_pair.py",
    "tests/gpu/proof/test_verify_blocks_rules.py",
    "tests/gpu/proof/test_verify_stream_k.py",
    "tests/cu/products/test_block_sums.py::test_a_planted_fault_is_named",
    "tests/cu/products/test_block_sums.py::test_a_planted_fault_in_exponentials_is_named",
)
_WIDE = "tests/cu/products/test_wide_reads.py::test_"
_GPU_MEMORY = tuple(
    f"{_WIDE}{name}"
    for name in (
        "vectors_of_lowering_are_accepted",
        "a_vector_that_is_none_is_refused",
        "a_vector_is_read_once_and_of_a_parameter",
        "columns_of_a_thread_behind_shared_memory_are_those_of_its_widest_store",
        "a_column_is_no_vector",
    )
)
_GPU_PLAN = ("tests/plan/test_verify_gpu_rules.py",)

AREAS: Final[dict[str, Area]] = {
    "tatami/c/check_launches.py": Area(("tests/c/test_verify.py",)),
    "tatami/c/verify.py": Area(("tests/c/test_verify.py",)),
    "tatami/core/faults/target_check.py": Area(("tests/core/faults/test_target_check.py",)),
    "tatami/cu/verify.py": Area(("tests/cu/test_verify.py",)),
    "tatami/execution/verify.py": Area(_EXECUTION),
    "tatami/execution/verify_calls.py": Area(_EXECUTION),
    "tatami/frontend/verify.py": Area(("tests/frontend/test_verify.py", "tests/frontend/test_verify_rules.py")),
    "tatami/gpu/proof/verify_stream.py": Area(("tests/gpu/proof/test_verify_stream_rules.py",)),
    "tatami/gpu/proof/verify_stream_k.py": Area(("tests/gpu/proof/test_verify_stream_k.py",)),
    "tatami/gpu/proof/verify_blocks.py": Area(_GPU),
    "tatami/gpu/proof/verify_memory.py": Area((*_GPU, *_GPU_MEMORY)),
    "tatami/gpu/proof/verify_tokens.py": Area(_GPU),
    "tatami/gpu/verify.py": Area(_GPU),
    "tatami/indexbook/verify.py": Area(("tests/indexbook/test_verify.py", "tests/indexbook/test_verify_rules.py")),
    "tatami/loop/verify.py": Area(("tests/loop/test_verify.py", "tests/loop/test_verify_rules.py")),
    "tatami/onnx/check.py": Area(("tests/onnx/files/test_check.py",)),
    "tatami/plan/cpu/contraction_rules.py": Area((*_CPU_PLAN, "tests/plan/cpu/test_contraction_rules.py")),
    "tatami/plan/cpu/convolution.py": Area(_CPU_PLAN, ("_image_blocks",)),
    "tatami/plan/cpu/split_candidate.py": Area(_CPU_PLAN, ("_check",)),
    "tatami/plan/cpu/streaming.py": Area(_CPU_PLAN, ("_check",)),
    "tatami/plan/cpu/tile_rules.py": Area(_CPU_PLAN, ("tile_rules", "width_rule")),
    "tatami/plan/cpu/turn.py": Area(_CPU_PLAN, ("_check",)),
    "tatami/plan/cpu/window.py": Area(_CPU_PLAN, ("_check", "not_lying", "not_whole")),
    "tatami/plan/loops/phase_rules.py": Area(("tests/plan/loops/test_phase_rules.py",)),
    "tatami/plan/loops/rules.py": Area(("tests/plan/loops/test_stream_rules.py",)),
    "tatami/plan/verify.py": Area(("tests/plan/test_verify.py",)),
    "tatami/plan/verify_plan.py": Area((*_CPU_PLAN, *_GPU_PLAN)),
    "tatami/plan/views/pair_limits.py": Area(("tests/plan/pairs/test_pair_rules.py",), ("pair_rules",)),
    "tatami/plan/views/product_rules.py": Area(
        ("tests/plan/gpu/test_product_rules.py",),
        (
            "shape_rules",
            "group_rules",
            "block_rules",
            "_sm80_rules",
            "_sm90_rules",
            "_stream_k_rules",
            "_cluster_rules",
            "register_rules",
            "crowded_rules",
            "algorithm_rules",
        ),
    ),
    "tatami/poly_core/verify.py": Area(("tests/poly_core/test_verify.py",)),
    "tatami/poly_view/verify.py": Area(("tests/poly_view/test_verify.py",)),
    "tatami/region/checks/guards.py": Area(("tests/region/checks/test_guards.py",)),
    "tatami/region/checks/lets.py": Area(_REGION),
    "tatami/region/checks/neutral.py": Area(("tests/region/checks/test_neutral.py",)),
    "tatami/region/checks/yields.py": Area(_REGION),
    "tatami/region/fusion/check.py": Area(("tests/region/fusion/test_check.py",)),
    "tatami/region/verify.py": Area(_REGION),
    "tatami/tiny/checks/views.py": Area(_TINY),
    "tatami/tiny/verify.py": Area(_TINY),
}
