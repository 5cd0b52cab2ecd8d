"""Parameters of a module as a compiled program reads them: shared, and packed once where a plan packs them.

Of an inference graph the parameters are held inputs: what `setup` makes of them is kept per set of parameters (blocks of
one class share a program) and goes when one of them goes. It is made again when a parameter lies elsewhere (`p.data = …`),
when PyTorch counted a write (`optimizer.step`, `load_state_dict`), and when a write that PyTorch does not count
(`p.data.mul_()`, through numpy) changed one of the bytes that are looked at: SAMPLES places of every packed parameter. A
change elsewhere that PyTorch does not count is not seen; options={"pack": False} packs nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from tatami.backends.torch_report import GraphReport
from tatami.core.signature import Input
from tatami.runtime.arrays import to_numpy
from tatami.runtime.cpu_program import CpuProgram
from tatami.torch.imported import Argument
from tatami.torch.sizes import in_order

SAMPLES, WORD = 16, 4
"""Places per packed parameter, and bytes at each."""
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Prepared:
    """A program over one set of parameters as they were found."""

    places: list[int]
    versions: list[int] | None
    """PyTorch's counts of writes; None where it does not count (inference tensors)."""
    sampled: Sampled
    program: CpuProgram
    copies: dict[int, torch.Tensor]
    """Those that the program cannot read where they lie."""
    alive: tuple[weakref.ref[torch.Tensor], ...]


class Parameters:
    """The held inputs of a program. `taken`: the argument of the fx graph for each input of the program; `names`: what
    the module calls it, by position."""

    def __init__(
        self,
        program: CpuProgram,
        inputs: Sequence[Input],
        taken: Sequence[Argument | None],
        names: Mapping[int, str],
        report: GraphReport,
    ) -> None:
        self.program = program
        self.report = report
        self._held = [(k, p, a) for k, (p, a) in enumerate(zip(inputs, taken)) if a is not None and p.storage == "held"]
        self._packed = program.layouts.held
        self._sets: dict[tuple[int, ...], Prepared] = {}
        report.packed += [names[a.position] for _, p, a in self._held if p.tensor in self._packed]

    def prepared(self, args: Sequence[torch.Tensor]) -> tuple[CpuProgram, dict[int, torch.Tensor]]:
        """The program over what is packed of the parameters among `args`, and the tensor that it reads for each of its
        held inputs."""
        given = [args[a.position] for _, _, a in self._held]
        key = tuple(map(id, given))
        places = [p.data_ptr() for p in given]
        versions = _versions(given)
        found = self._sets.get(key)
        if found is None or versions is None or found.versions != versions or found.places != places or found.sampled.changed():
            self._sets.pop(key, None)
            del found  # its memory, before as much is taken again
            found = self._sets[key] = self._prepare(given, key, places, versions)
        read = {k: p for (k, _, _), p in zip(self._held, given)}
        return found.program, read | found.copies if found.copies else read

    def _prepare(
        self, given: list[torch.Tensor], key: tuple[int, ...], places: list[int], versions: list[int] | None
    ) -> Prepared:
        copies: dict[int, torch.Tensor] = {}
        watched: list[torch.Tensor] = []
        arrays: dict[str, np.ndarray] = {}
        for p, (k, port, a) in zip(given, self._held):
            lies = in_order(p, a.order)
            if not lies.is_contiguous() or lies.is_neg():
                copies[k] = lies = lies.contiguous().resolve_neg()
                self.report.copies[a.name] = self.report.copies.get(a.name, 0) + 1
            if k in copies or port.tensor in self._packed:
                watched.append(p)
            if port.tensor in self._packed:
                arrays[port.tensor] = to_numpy(lies, port)[0]
        program = self.program.prepared([arrays[name] for name in self._packed])
        if self._packed:
            self.report.packings += 1
            self.report.packed_bytes = program.constant_bytes
        forget = partial(_forget, weakref.ref(self), key)
        alive = tuple(weakref.ref(p, forget) for p in given)
        return Prepared(places, versions, Sampled(watched), program, copies, alive)


def _forget(parameters: weakref.ref[Parameters], key: tuple[int, ...], gone: object) -> None:
    """A parameter of the set is gone, so what was packed of the set goes too."""
    of = parameters()
    if of is not None:
        of._sets.pop(key, None)


def _versions(parameters: Sequence[torch.Tensor]) -> list[int] | None:
    try:
        return [p._version for p in parameters]
    except RuntimeError:  # an inference tensor among them: PyTorch does not count its writes
        return None


class _Memory:
    """A range of this process's memory as an array of bytes."""

    def __init__(self, start: int, count: int) -> None:
        self.__array_interface__ = {"version": 3, "data": (start, True), "shape": (count,), "typestr": "|u1"}


class Sampled:
    """A few bytes of each tensor as they are now. The tensors have to lie where they are while `changed` is asked."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        spread = (np.arange(SAMPLES) + 1) * _GOLDEN % 1
        at: list[np.ndarray] = []
        for t in tensors:
            size = t.itemsize * (1 + sum((n - 1) * step for n, step in zip(t.shape, t.stride()))) if t.numel() else 0
            word = min(WORD, size)
            starts = (spread * (size - word + 1)).astype(np.int64)
            at.append((t.data_ptr() + starts[:, None] + np.arange(word)).ravel())
        every = np.unique(np.concatenate(at)) if at else np.zeros(0, np.int64)
        start, end = (int(every[0]), int(every[-1]) + 1) if every.size else (0, 0)
        self._memory = np.asarray(_Memory(start, end - start)) if every.size else np.zeros(0, np.uint8)
        self._at = every - start
        self._was = self._memory[self._at]

    def changed(self) -> bool:
        return not np.array_equal(self._memory[self._at], self._was)
