"""The proof of chunks that leave by TMA: a ring of a warpgroup's own, of which one thread stores the slots.

    TmaFetch   every store from the ring has read its slot, and the fetching thread knows: a Wait by bulk_group
    StMatrix   the slot's last store has read it, and all threads know: a Wait by bulk_group, then SyncWarpgroup; or the
               fetch into it has landed, as a Wait by fetch tells each thread, and is read before it is overwritten
    TmaStore   the slot was written, each thread has fenced it, and the storing thread knows: FenceAsync, SyncWarpgroup
    end        every store has read its slot

No other actor touches the ring, and a warpgroup's steps in it depend on nothing, so that simulating a few tiles proves it.
"""

from __future__ import annotations

from tatami.gpu.ir import FenceAsync, Kernel, Loop, Role, StMatrix, Stmt, SyncWarpgroup, TmaFetch, TmaStore, Wait
from tatami.gpu.proof.program import all_statements
from tatami.gpu.proof.state import Hazard
from tatami.gpu.show import statement_text

CHUNKS, TILES = 7, 2
"""Chunks per tile (more than a ring has slots, and odd, so that a second tile starts at another slot), and tiles to run."""


def check_stores(kernel: Kernel) -> None:
    """Run the stores of every role. Raises Hazard if one breaks a rule of the page."""
    slots = {r.name: r.slots for r in kernel.smem}
    for role in kernel.body:
        if isinstance(role, Role):
            fetches = [s.chunks for s in all_statements(role.body) if isinstance(s, TmaFetch)]
            warpgroup = _Warpgroup({name: count // role.count for name, count in slots.items()}, *fetches)
            warpgroup.run(role.body)
            warpgroup.end()


class _Warpgroup:
    def __init__(self, slots: dict[str, int], chunks: int = CHUNKS) -> None:
        self.slots = slots
        self.chunks = chunks
        self.count = 0
        """Number of chunks stored so far."""
        self.groups: list[tuple[int, str]] = []
        """Stores in flight: slot and text of the statement, oldest first."""
        self.busy: set[int] = set()
        """Slots that, as far as some thread knows, a store may still read."""
        self.written: dict[int, str] = {}
        """Slots with new values: written, fenced, ready."""
        self.fetched: dict[int, bool] = {}
        """Slots that TMA fills; True once the fetch has landed."""

    def run(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            if isinstance(s, Loop):
                for _ in range({"chunks": self.chunks, "tiles": TILES, "blocks": 0}[s.over]):
                    self.run(s.body)
            else:
                self.statement(s)

    def statement(self, s: Stmt) -> None:
        match s:
            case Wait(model="bulk_group", pending=pending):
                self.groups = self.groups[len(self.groups) - pending :] if pending else []
            case Wait(model="fetch"):
                self.fetched = dict.fromkeys(self.fetched, True)
            case TmaFetch(dst_smem=ring, chunks=chunks):
                if chunks != self.slots[ring]:
                    raise Hazard(statement_text(s), f"{chunks} chunks are fetched to {self.slots[ring]} slots of {ring}")
                if self.groups:
                    slot = self.groups[0][0]
                    raise Hazard(
                        statement_text(s), f"slot {slot} of {ring} is filled while its last TMA store may still read it"
                    )
                self.fetched = dict.fromkeys(range(chunks), False)
            case SyncWarpgroup():
                self.busy = {slot for slot, _ in self.groups}
                self.written = {k: "ready" if v == "fenced" else v for k, v in self.written.items()}
            case FenceAsync():
                self.written = {k: "fenced" if v == "written" else v for k, v in self.written.items()}
            case StMatrix(dst_smem=ring, fetched=fetched):
                slot = self.count % self.slots[ring]
                landed = self.fetched.pop(slot, None)
                if landed is None and fetched:
                    raise Hazard(statement_text(s), f"slot {slot} of {ring} is read and holds nothing that was fetched")
                if landed is False:
                    raise Hazard(
                        statement_text(s), f"slot {slot} of {ring} is overwritten before what is fetched there has landed"
                    )
                if landed and not fetched:
                    raise Hazard(statement_text(s), f"slot {slot} of {ring} is overwritten before what was fetched is read")
                if landed is None and slot in self.busy:
                    raise Hazard(
                        statement_text(s), f"slot {slot} of {ring} is written while its last TMA store may still read it"
                    )
                self.written[slot] = "written"
            case TmaStore(src_smem=ring):
                slot = self.count % self.slots[ring]
                state = self.written.pop(slot, "")
                if state != "ready":
                    why = {
                        "": "was not written since its last store",
                        "written": "was written without a FenceAsync and a SyncWarpgroup after it",
                        "fenced": "was fenced without a SyncWarpgroup after it",
                    }[state]
                    raise Hazard(statement_text(s), f"slot {slot} of {ring} {why}")
                self.groups.append((slot, statement_text(s)))
                self.busy.add(slot)
                self.count += 1
            case _:
                pass

    def end(self) -> None:
        if self.fetched:
            raise Hazard("kernel", "the warpgroup ends while TMA may still fill its slots: what was fetched is not used")
        if self.groups:
            slot, text = self.groups[0]
            raise Hazard(text, f"the warpgroup ends while the store may still read slot {slot}: no Wait by bulk_group after it")
