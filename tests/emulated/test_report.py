"""A report names the line of the kernel, the GPU statement that it was printed for, and the plan's fields behind it."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.build import behind_line
from tatami.cu.products.kernel import kernel_text, statement_at
from tatami.emulated.lines import LineTable
from tatami.emulated.report import read_report, to_diagnostic
from tatami.gpu.statement_ir import CpAsync, LdMatrix, Loop, Wait
from tests.cu.test_compile import BY8
from tests.emulated.kernels import Built, changed
from tests.emulated.texts import eighths
from tests.gpu.gemm_examples import gemm, sm80

SMALL = sm80((64, 64, 32), 3, warp="32x32")
SIZES = {"M": 64, "N": 64, "K": 96}


def arrays() -> dict[str, np.ndarray]:
    return {n: eighths(*s, dtype=np.float16) for n, s in (("A", (64, 96)), ("B", (96, 64)), ("bias", (64,)))}


def test_a_missing_wait_names_the_statement_and_the_plan() -> None:
    built = Built(gemm(), SMALL, "sm80", BY8, changed("tt_cp_async_wait<1>();", ";"))
    report, _ = built.report(arrays(), SIZES)
    assert report is not None and report.file == "k0.cu"
    d = to_diagnostic(report, "gemm", "k0", lambda _, line: behind_line(built.kernel, line))
    assert d.kind == "KernelRace" and d.details["check"] == "in flight"
    assert "LdMatrix" in d.details["statement"]
    assert d.details["plan"] == "layout_hints, warp_tile"
    assert "decided by the plan's layout_hints, warp_tile]" in d.why and f"k0.cu:{report.line}" in d.why


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("tt_cp_async_16(slot + tt_tile_offset<64, 64>", CpAsync),
        ("tt_cp_async_wait<1>", Wait),
        ("tt_ldmatrix_x4_trans(b[j]", LdMatrix),
        ("for (int k = 0; k < KB", Loop),
    ],
)
def test_every_line_belongs_to_its_statement(words: str, kind: type) -> None:
    kernel = Built(gemm(), SMALL, "sm80", BY8, load=False).kernel
    lines = kernel_text(kernel).splitlines()
    for number in (i for i, line in enumerate(lines, 1) if words in line):
        assert isinstance(statement_at(kernel, number), kind), lines[number - 1]
    assert statement_at(kernel, 1) is None


def test_a_report_without_a_line_table_says_so() -> None:
    found = read_report("race\x1f{{@10}}\x1fthread 0\x1fload at {{@10}} and {{k0.cu:3}}", LineTable(b"no object"))
    assert (found.file, found.line, found.text) == ("unknown line", 0, "load at unknown line and k0.cu:3")
