"""The things that lines tell of, numbered, with the origins of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tatami.core.lines import Line
from tatami.explorer.ir import NOTHING, StageText, Things

Path = tuple[str, ...]
"""The place of a thing in its stage: the program, then names down to it."""


class Catalogue:
    """Things by stage and place. A line's thing is made when the line is added; links name things that exist."""

    def __init__(self) -> None:
        self.stages: list[StageText] = []
        self.numbers: dict[str, dict[Path, int]] = {}
        self._labels: list[str] = []
        self._stage_of: list[int] = []
        self._origins: list[dict[int, None]] = []

    def add(self, stage: str, lines: Iterable[Line]) -> None:
        """Add the text of a stage; later stages are added later."""
        known = self.numbers.setdefault(stage, {})
        texts: list[str] = []
        things: list[int] = []
        for line in lines:
            number = self._number(known, line.of, len(self.stages)) if line.of else NOTHING
            for text in line.text.split("\n"):
                texts.append(text)
                things.append(number)
        while texts and not texts[-1]:
            texts.pop(), things.pop()
        self.stages.append(StageText(stage, tuple(texts), tuple(things)))

    def _number(self, known: dict[Path, int], of: Path, stage: int) -> int:
        if of not in known:
            known[of] = len(self._labels)
            self._labels.append(of[-1])
            self._stage_of.append(stage)
            self._origins.append({})
        return known[of]

    def of(self, stage: str) -> Mapping[Path, int]:
        """Place -> number of the things of a stage; empty if the stage was not added."""
        return self.numbers.get(stage, {})

    def find(self, stage: str, of: Path) -> int:
        """The number of a thing, or NOTHING."""
        return self.of(stage).get(of, NOTHING)

    def link(self, thing: int, origins: Iterable[int]) -> None:
        """Add things that `thing` comes from; NOTHING and itself are left out."""
        self._origins[thing].update((o, None) for o in origins if o not in (NOTHING, thing))

    def split(self, stage: str, origin: Callable[[Path, str], int]) -> None:
        """Give each line whose origin(place of its thing, text) is a thing, a thing of its own, which comes from that one. Lines
        of one origin share it."""
        place = next(k for k, s in enumerate(self.stages) if s.name == stage)
        text, known = self.stages[place], self.numbers[stage]
        paths = {number: of for of, number in known.items()}
        things: list[int] = []
        for line, number in zip(text.lines, text.things, strict=True):
            found = origin(paths[number], line) if number != NOTHING else NOTHING
            if found != NOTHING:
                number = self._number(known, (*paths[number], self._labels[found]), place)
                self.link(number, [found])
            things.append(number)
        self.stages[place] = StageText(stage, text.lines, tuple(things))

    def things(self) -> Things:
        """All things column by column, as a page holds them."""
        return Things(tuple(self._stage_of), tuple(self._labels), tuple(tuple(o) for o in self._origins))
