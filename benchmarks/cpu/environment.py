"""Environment variables of a measuring process. The pools of numpy's and torch's libraries take their sizes from it when
they are loaded: it is given by the process that starts another, before anything is imported there."""

from __future__ import annotations

import os

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def environment(threads: int) -> dict[str, str]:
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return os.environ | quiet | dict.fromkeys(POOLS, str(threads))
