"""Models as tools leave them: quantised, in float16, optimised and saved by ONNX Runtime, slimmed; decoders with a past.

    python -m benchmarks.real.converted                  every row; writes benchmarks/results/converted.json and
                                                         docs/converted-models.md
    python -m benchmarks.real.converted --only lstm      the rows whose name begins so

The networks have random weights and are made here (the extras `models` and `real`). A conversion that its tool refuses, or a
model that Tatami refuses, is a row.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.real.conversions import CONVERSIONS, NETWORKS, feeds_for
from benchmarks.real.decoders import HEADS, VOCABULARY, WIDTH, export_decoder, key_heads, past_names
from benchmarks.real.keep import keep
from benchmarks.real.measure import measure
from benchmarks.real.record import Row
from benchmarks.real.report import page, summary

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "converted.json"
PAGE = ROOT / "docs" / "converted-models.md"
INTRO = """Written by `python -m benchmarks.real.converted`: three networks with random weights as public tools convert them, and
decoders exported with past keys and values (a prefill whose past has size 0, the first step, 19 more steps). The reference is the
same converted file in ONNX Runtime."""
PROMPT = 7
"""Tokens of a prefill."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real.converted", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="rows whose name begins so")
    parser.add_argument("--rounds", type=int, default=3, help="blocks of each contestant")
    parser.add_argument("--report", action="store_true", help="only write the page from the record")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds is at least 1")
    with tempfile.TemporaryDirectory() as scratch:
        steps = all_steps(Path(scratch), args.rounds)
        chosen = {n: s for n, s in steps.items() if not args.only or any(n.startswith(o) for o in args.only)}
        if not chosen:
            parser.error(f"no such row; there are {', '.join(steps)}")
        record = keep(RECORD, [] if args.report else list(chosen.items()), list(steps))
    PAGE.write_text(page("Converted models", INTRO, record, {}))
    print(summary(record.rows))


def all_steps(folder: Path, rounds: int) -> dict[str, Callable[[], Row]]:
    """The maker of each row by name, in order."""
    steps = {f"{n} {c}": _conversion(n, c, folder, rounds) for n in NETWORKS for c in CONVERSIONS}
    for name in ("gpt2", "llama"):
        for dynamo in (False, True):
            steps[f"{name} {'dynamo' if dynamo else 'legacy'}"] = _decoder(name, dynamo, folder, rounds)
    return steps


def _conversion(name: str, conversion: str, folder: Path, rounds: int) -> Callable[[], Row]:
    def step() -> Row:
        network, (tool, convert) = NETWORKS[name], CONVERSIONS[conversion]
        row = Row(f"{name} {conversion}", name, tool)
        source, target = folder / f"{name}.onnx", folder / f"{name}-{conversion.replace(' ', '-')}.onnx"
        try:
            if not source.exists():
                network.export(source)
            convert(network, source, target)
        except Exception as error:  # whatever a tool raises becomes a row
            row.crashed, row.refused = True, f"{tool} does not convert it: {error}"
            return row
        return measure(row, target, [[feed] for feed in feeds_for(network, target)], network.sizes, rounds)

    return step


def _decoder(name: str, dynamo: bool, folder: Path, rounds: int) -> Callable[[], Row]:
    def step() -> Row:
        row = Row(f"{name} {'dynamo' if dynamo else 'legacy'}", "decoder with past", "torch.onnx")
        path = folder / f"{row.name.replace(' ', '-')}.onnx"
        try:
            export_decoder(name, dynamo, path)
        except Exception as error:  # whatever the exporter raises becomes a row
            row.crashed, row.refused = True, f"torch.onnx does not export it: {error}"
            return row
        ids = np.random.default_rng(0).integers(0, VOCABULARY, (2, PROMPT))
        past = np.zeros((2, key_heads(name), 0, WIDTH // HEADS), np.float32)
        ones, places = np.ones_like(ids), np.broadcast_to(np.arange(PROMPT), ids.shape)
        feed = {"input_ids": ids, "attention_mask": ones, "position_ids": places, **dict.fromkeys(past_names(), past)}
        return measure(row, path, [[feed]], [{"past": 0}], rounds, mode="decode")

    return step


if __name__ == "__main__":
    main()
