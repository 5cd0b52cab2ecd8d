"""Parameters of a module in the form that a compiled program reads: shared, and packed once if a plan packs them.

The parameters of an inference graph are held inputs: results of `setup` are kept per set of parameters (blocks of one class
share a program) and are freed when one of them is. They are computed again when a parameter lies elsewhere (`p.data = …`),
when PyTorch counted a write (`optimizer.step`, `load_state_dict`), and when a write that PyTorch does not count
(`p.data[3].zero_()`, through numpy or DLPack) changed a byte: each call checks whether a page of a packed parameter was
written, or computes a digest of it (decision 0041). options={"freeze": True} promises that there are no such writes, so that
nothing is checked; options={"pack": False} packs nothing.
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
from tatami.runtime.cpu.digest import Digest
from tatami.runtime.cpu.program import CpuProgram
from tatami.torch.imported import Argument
from tatami.torch.sizes import in_order


@dataclass(frozen=True)
class Prepared:
    """A program over one set of parameters in the state in which they were found. `places`: their addresses."""

    places: list[int]
    versions: list[int] | None
    """PyTorch's counts of writes; None if it does not count them (inference tensors)."""
    digest: Digest | None
    """The digest of their content; None if nothing is packed, or if the caller promises that all writes are counted."""
    program: CpuProgram
    copies: dict[int, torch.Tensor]
    """Position -> copy, for parameters that the program cannot read in place."""
    alive: tuple[weakref.ref[torch.Tensor], ...]

    def changed(self) -> bool:
        """True if a byte of the packed parameters has changed without PyTorch's counting it."""
        return self.digest is not None and self.digest.changed()


class Parameters:
    """The held inputs of a program. `freeze`: parameters change only by writes that PyTorch counts. `taken`: the argument of
    the fx graph for each input of the program; `names`: position -> name of a parameter of the module."""

    def __init__(
        self,
        program: CpuProgram,
        inputs: Sequence[Input],
        taken: Sequence[Argument | None],
        names: Mapping[int, str],
        report: GraphReport,
        freeze: bool = False,
    ) -> None:
        self.program = program
        self.report = report
        self.freeze = freeze
        self._held = [(k, p, a) for k, (p, a) in enumerate(zip(inputs, taken)) if a is not None and p.storage == "held"]
        self._packed = program.layouts.held
        self._sets: dict[tuple[int, ...], Prepared] = {}
        report.packed += [names[a.position] for _, p, a in self._held if p.tensor in self._packed]

    def prepared(self, args: Sequence[torch.Tensor]) -> tuple[CpuProgram, dict[int, torch.Tensor]]:
        """(the program over the packed parameters among `args`, position -> the tensor that it reads for a held input)."""
        given = [args[a.position] for _, _, a in self._held]
        key = tuple(map(id, given))
        places = [p.data_ptr() for p in given]
        versions = _versions(given)
        found = self._sets.get(key)
        if found is None or found.versions != versions or found.places != places or found.changed():
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
        digest = None if self.freeze or not watched else self.program.digest(spans(watched))
        self.report.watched_bytes = 0 if digest is None else digest.bytes
        return Prepared(places, versions, digest, program, copies, alive)


def _forget(parameters: weakref.ref[Parameters], key: tuple[int, ...], gone: object) -> None:
    """Free the packed copies of a set of parameters, one of which is gone."""
    of = parameters()
    if of is not None:
        of._sets.pop(key, None)


def _versions(parameters: Sequence[torch.Tensor]) -> list[int] | None:
    try:
        return [p._version for p in parameters]
    except RuntimeError:  # an inference tensor among them: PyTorch does not count its writes
        return None


def spans(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """(address, bytes) of each tensor's memory; of those that have elements."""
    return [span(t) for t in tensors if t.numel()]


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """(address, bytes) of a tensor's memory, the gaps between its elements included."""
    gaps = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.itemsize * (1 + gaps)
