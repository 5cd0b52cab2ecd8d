"""One process that compiles CUDA units: a request per line on stdin, an answer per line on stdout, both JSON.

A crash or a hang of the compiler ends this process and not the user's; several of them run at the same time."""

from __future__ import annotations

import base64
import json
import sys

from tatami.core.diagnostic import TatamiError
from tatami.runtime.building.nvrtc import compile_cubin


def main() -> None:
    """Answer requests until stdin ends."""
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            made = compile_cubin(asked["text"], asked["arch"], asked["headers"], asked["name"], asked["more"])
        except TatamiError as error:
            d = error.diagnostics[0]
            answer: dict[str, object] = {"kind": d.kind, "at": d.at, "why": d.why, "suggestion": d.suggestion}
        else:
            answer = {
                "data": base64.b64encode(made.data).decode(),
                "log": made.log,
                "registers": made.registers,
                "spill_bytes": made.spill_bytes,
                "warnings": list(made.warnings),
            }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
