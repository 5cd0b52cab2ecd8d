"""The search for several tuples of sizes: one after another, each with the winners of those before it behind their guards.

The time is divided evenly. A partition holds for all sizes, so with more than one tuple the cut into kernels stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tatami.compilation import Compilation
from tatami.ledger.records import Records
from tatami.search.proposal import with_decisions
from tatami.search.results import Options, Tell, Tuned
from tatami.search.session import Session

Sizes = Mapping[str, int]
"""Name of a size symbol -> its value, in one tuple of sizes."""


def tune_sizes(
    compilation: Compilation, options: Options, clusters: Sequence[Sizes], records: Records, tell: Tell
) -> Iterator[tuple[Sizes, Tuned]]:
    """The result for each tuple of sizes, in order; the decisions of the last one hold for all. Ends after an interrupt."""
    fixed = compilation.decisions
    for sizes in clusters:
        share = replace(
            options,
            budget=options.budget / len(clusters),
            sizes={**options.sizes, **sizes},
            cuts=options.cuts and len(clusters) == 1,
        )
        found = Session(compilation, share, records, tell, fixed).run()
        yield sizes, found
        if found.is_interrupted:
            return
        compilation = with_decisions(compilation, found.decisions)
