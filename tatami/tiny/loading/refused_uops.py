"""UOps of the quoted vocabulary that are not adopted, with the form to write instead."""

from __future__ import annotations

from collections.abc import Iterable

from tatami.core.diagnostic import TatamiError, fail
from tatami.tiny.json_form import LEGAL_UOPS

REFUSED = {
    "VALID": "the validity of a view is part of PAD and SHRINK; write WHERE over a comparison of IOTA for any other mask",
    "INDEX": "write VIEW with an index_map, or GATHER with an index tensor",
    "RANGE": "axes are implied by the shape; write IOTA for the coordinate along an axis",
    "IF": "write WHERE(condition, then, else)",
    "ENDIF": "write WHERE(condition, then, else)",
    "ASSIGN": "nodes are pure; name the output in signature.outputs with `updates`",
    "BUFFER": "buffers appear from regions on; write INPUT",
    "WMMA": "write MUL and REDUCE(SUM), or CONTRACT; tensor cores are chosen by the plan",
    "ALLREDUCE": "write REDUCE; one device is assumed",
    "REDUCE_AXIS": "write REDUCE",
}
"""UOp that is not adopted → the form to write instead."""


def refuse(uop: str, at: str, read: Iterable[str]) -> TatamiError:
    """Error E1601 for an unknown UOp, with the form to write instead. `read`: UOps that documents may have besides the legal
    ones."""
    if uop in REFUSED:
        return fail("UnknownOp", at, f"{uop} is not part of the adopted vocabulary", REFUSED[uop])
    names = ", ".join(sorted({*LEGAL_UOPS, *read}))
    return fail("UnknownOp", at, f"there is no UOp {uop!r}", f"the legal names are {names}")
