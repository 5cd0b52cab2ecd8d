"""docs/planted-faults.md: every fault that is planted, by whom it is found, and the public ones among them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.cu.pairs import test_pair_roles
from tests.cu.products import test_block_sums, test_gathered, test_stream_k, test_warpgroups
from tests.emulated.test_planted_bugs import BUGS
from tests.gpu import test_verify
from tests.gpu.pairs import test_pair

PAGE = Path(__file__).parents[2] / "docs" / "planted-faults.md"
PUBLIC = {
    "tilelang issue 2613": ("a pipelined loop without the barrier at its end", "the barrier is missing"),
    "tilelang issue 2668": ("a slot of two stages refilled while it is read", "a slot is filled one block early"),
    "tilelang issue 2566": (
        "tiles of one block whose last slot is never freed",
        "the last slot of a tile of one block is never freed",
    ),
    "tilelang issue 2443": ("copies of the prologue lost", "a copy of the prologue is lost"),
    "tilelang PR 2674": ("phases that start anew with the second tile", "phases start anew with the second tile"),
}
"""Compiler or issue → the fault as given to the verifier and as given to the emulated machine."""


def page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    refused = [(n, w) for n, *_, w in (*test_verify.FAULTS, *test_verify.PIPELINING, *test_pair.FAULTS)]
    refused += [(n, w) for n, *_, w in test_gathered.FAULTS]
    refused += [(fault, w) for _, fault, *_, w in (*test_warpgroups.FAULTS, *test_pair_roles.FAULTS)]
    refused += [(n, w) for n, (_, w) in (test_block_sums.FAULTS | test_block_sums.OF_EXPONENTIALS).items()]
    refused += [(n, w) for n, (_, w) in test_stream_k.FAULTS.items()]
    reported = [(b.name, f"{b.check}: {b.words}") for b in BUGS]
    reported += [(n, f"{check}: {w}") for n, *_, check, w in test_gathered.BUGS]
    words = dict(refused) | dict(reported)
    yield "# Planted faults"
    yield ""
    yield f"{len(reported)} faults in kernel text, which the [emulated GPU](emulator.md) reports, and {len(refused)} in the GPU IR, which"
    yield "the verifier refuses before any text is printed. The tests expect each by the words next to it."
    yield ""
    yield "## What public compilers got wrong"
    yield ""
    yield "| where | refused in the IR with | reported from the text with |"
    yield "|---|---|---|"
    for where, names in PUBLIC.items():
        cells = (f"{name}: *{words[name]}*" for name in names)
        yield f"| {where} | {' | '.join(cells)} |"
    for title, rows in (
        ("Reported by the emulated GPU", reported),
        ("Refused by the verifier", refused),
    ):
        yield ""
        yield f"## {title}"
        yield ""
        yield "| fault | words |"
        yield "|---|---|"
        yield from (f"| {name} | {said} |" for name, said in rows)


def test_the_page_is_current(update_golden: bool) -> None:
    if update_golden:
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), "run with --update-golden"
