"""A search of `tatami tune` as a part of a page: what it measured, from its journal and the rows of the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

import msgspec

from tatami.explorer import ir
from tatami.ledger.records import Measured, Records
from tatami.search.journal import Journal, Visit
from tatami.search.rank_correlation import rank_correlation
from tatami.search.strategy import TEST

PAUSE = 120.0
"""Seconds without an entry after which the search was not running: a later run went on with it."""


def tuning(journal: Journal, records: Records) -> ir.Tuning:
    """The search that a journal tells of."""
    searches = tuple(_searched(v, records) for v in journal.visits)
    end = journal.end
    whole = end.whole if end is not None else None
    return ir.Tuning(
        sizes=journal.sizes,
        threads=journal.threads,
        searches=searches,
        moments=tuple(moments(journal)),
        changes=tuple(msgspec.convert(msgspec.to_builtins(c), ir.Changed) for c in (end.changes if end is not None else ())),
        dropped=end.dropped if end is not None else (),
        before=whole.before if whole is not None else None,
        after=whole.after if whole is not None else None,
        ratio=whole.ratio if whole is not None else None,
        turns=whole.turns if whole is not None else 0,
        correlation=_correlation(searches),
        left=end.left if end is not None else -1,
    )


def with_searches(page: ir.Explored, journals: Sequence[Journal], records: Records) -> ir.Explored:
    """The page with the searches that these journals tell of."""
    return msgspec.structs.replace(page, tunings=tuple(tuning(j, records) for j in journals))


def moments(journal: Journal) -> Iterator[ir.Moment]:
    """The best program over the time of a search: after each subject, each comparison of the whole program, and at the end."""
    entries = [(v.at, v.gain, v.line or ", ".join(v.kernels)) for v in journal.visits]
    entries += [(s.at, s.gain, s.line) for s in journal.steps]
    if journal.end is not None:
        entries.append((journal.end.at, 1 - journal.end.whole.ratio if journal.end.whole is not None else 0.0, "whole program"))
    yield ir.Moment(0.0, journal.seconds, "the compiler's own decisions")
    clock, passed = journal.began, 0.0
    for at, gain, what in sorted(entries):
        passed += at - clock if 0 <= at - clock <= PAUSE else 0.0
        clock = max(clock, at)
        yield ir.Moment(passed, journal.seconds * (1 - gain), what)


def _searched(visit: Visit, records: Records) -> ir.Searched:
    rounds: dict[str, list[Measured]] = {}
    for m in records.rounds(visit.subject).values():
        rounds.setdefault(m.candidate, []).append(m)
    own = min((m.own_seconds for found in rounds.values() for m in found if m.own_seconds is not None), default=None)
    tried = [_tried(sorted(found, key=lambda m: m.round), visit, own) for found in rounds.values()]
    return ir.Searched(
        stage=visit.stage,
        line=visit.line,
        kernels=visit.kernels,
        key=visit.key,
        share=visit.share,
        own=visit.own,
        sizes=visit.subject.sizes,
        caches=visit.subject.caches,
        own_estimate=visit.estimate,
        own_seconds=own,
        tried=tuple(sorted(tried, key=lambda t: (not t.is_winner, -len(t.ratios), t.ratios[-1:] or (float("inf"),), t.plan))),
        note=visit.note,
    )


def _tried(found: Sequence[Measured], visit: Visit, own: float | None) -> ir.Tried:
    """One candidate from its rounds. Its seconds are its last ratio times those of the own decision (`own`), so that drift of the
    machine between rounds does not count."""
    ratios = tuple(m.ratio for m in found if m.ratio is not None)
    last = found[-1]
    is_winner = bool(visit.winner) and last.candidate == visit.winner
    return ir.Tried(
        plan=last.line,
        verdict=last.verdict,
        why=last.why,
        estimate=_estimate(last, visit),
        seconds=ratios[-1] * own if ratios and own is not None else None,
        ratios=ratios,
        is_winner=is_winner,
        is_tested=last.round == TEST and last.ratio is not None,
    )


def _estimate(m: Measured, visit: Visit) -> float | None:
    """Seconds of what was measured: of a plan, or of the kernels that a step puts in the place of others."""
    if visit.stage == "plans":
        return m.estimate
    try:
        return msgspec.json.decode(m.terms, type=dict[str, float]).get("changed")
    except (msgspec.DecodeError, RecursionError):
        return None


def _correlation(searches: Sequence[ir.Searched]) -> float | None:
    """The mean rank correlation of estimates and times over the subjects with three candidates or more that have both."""
    found = []
    for s in searches:
        pairs = [(t.estimate, t.seconds) for t in s.tried if t.estimate is not None and t.seconds is not None]
        one = rank_correlation([e for e, _ in pairs], [m for _, m in pairs])
        found += [one] if one is not None else []
    return fmean(found) if found else None
