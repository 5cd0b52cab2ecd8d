"""Groups of values under merging, always acyclic.

Every group has a rank above those of the groups it reads; a merge that would close a cycle is refused. Raising ranks and
searching for a second path both stay near the two groups, so that a long chain costs linear time.
"""

from __future__ import annotations

SEARCH_LIMIT = 4000
"""Maximum number of groups searched for a path; beyond it the merge is refused without proof, to bound compile time."""


class GroupGraph:
    """Groups by number. `members[g]`: the values of group g; `group_of[v]`: the group of value v after all merges."""

    def __init__(self) -> None:
        self.members: dict[int, list[str]] = {}
        self.group_of: dict[str, int] = {}
        self.reads: dict[int, set[int]] = {}
        self.feeds: dict[int, set[int]] = {}
        self.rank: dict[int, int] = {}
        self._next = 0

    def add(self, values: list[str], producers: list[str]) -> int:
        """A new group that reads the groups of `producers`."""
        g = self._next
        self._next += 1
        self.members[g] = list(values)
        for v in values:
            self.group_of[v] = g
        reads = {self.group_of[p] for p in producers} - {g}
        self.reads[g] = reads
        self.feeds[g] = set()
        for r in reads:
            self.feeds[r].add(g)
        self.rank[g] = 1 + max((self.rank[r] for r in reads), default=0)
        return g

    def can_merge(self, producer: int, consumer: int) -> bool:
        """True if no path leads from `producer` to `consumer` through a third group. False as well after `SEARCH_LIMIT`
        groups."""
        limit = self.rank[consumer]
        stack = [g for g in self.feeds[producer] if g != consumer]
        seen: set[int] = set()
        while stack:
            g = stack.pop()
            if g == consumer:
                return False
            if g in seen or self.rank[g] >= limit:
                continue
            seen.add(g)
            if len(seen) > SEARCH_LIMIT:
                return False
            stack.extend(self.feeds[g])
        return True

    def move(self, value: str, groups: tuple[int, ...]) -> None:
        """Move `value` into several `groups` that read its present group; each of them computes it again."""
        self.members[self.group_of[value]].remove(value)
        for g in groups:
            self.members[g].append(value)
        self.group_of[value] = groups[0]

    def repeat(self, value: str, groups: tuple[int, ...]) -> None:
        """Let `groups`, which read the group of `value`, compute it too."""
        for g in groups:
            if value not in self.members[g]:
                self.members[g].append(value)

    def drop(self, value: str) -> None:
        """Take `value` from its group, where others compute it."""
        self.members[self.group_of[value]].remove(value)
        self.group_of[value] = next(g for g, values in self.members.items() if value in values)

    def merge(self, producer: int, consumer: int) -> int:
        """Merge two groups into one and return its number: that of the larger group."""
        keep, drop = (
            (producer, consumer) if len(self.members[producer]) >= len(self.members[consumer]) else (consumer, producer)
        )
        for v in self.members[drop]:
            self.group_of[v] = keep
        self.members[keep].extend(self.members.pop(drop))
        for r in self.reads.pop(drop):
            self.feeds[r].discard(drop)
            if r != keep:
                self.feeds[r].add(keep)
                self.reads[keep].add(r)
        for f in self.feeds.pop(drop):
            self.reads[f].discard(drop)
            if f != keep:
                self.reads[f].add(keep)
                self.feeds[keep].add(f)
        self.rank[keep] = max(self.rank[keep], self.rank.pop(drop))
        self._raise_above(keep)
        return keep

    def _raise_above(self, start: int) -> None:
        stack = [start]
        while stack:
            g = stack.pop()
            for f in self.feeds[g]:
                if self.rank[f] <= self.rank[g]:
                    self.rank[f] = self.rank[g] + 1
                    stack.append(f)
