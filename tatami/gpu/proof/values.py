"""The proof of registers: sums are zeroed once, hold each block once, and leave once per tile.

    ZeroAcc      acc = no block
    LdMatrix     fragments of a ring = block           refused: they hold a block that no Mma has taken
    product      acc = acc and block                   refused: acc is not zeroed, or has the block
    Weigh        weights = block, scores are gone      refused: a score is of another block
    Rescale      parts = block, weights are gone       refused: acc is not the sum of all blocks before
    Epilogue     results = acc                         refused: acc is not the sum of all blocks
    store        an output is written                  refused: it is written already, or its Epilogue is not right before

Registers belong to one actor, so that its own order decides. Statements speak of the blocks k - 1, k, 0 and KB - 1: what holds
for up to four blocks holds for more.
"""

from __future__ import annotations

from tatami.core.algebra.visit import evaluate
from tatami.core.expr import Expr
from tatami.gpu.ir import Kernel
from tatami.gpu.proof.program import all_statements
from tatami.gpu.proof.state import Hazard
from tatami.gpu.show import statement_text
from tatami.gpu.statement_ir import (
    CpAsync,
    Epilogue,
    Fma,
    LdMatrix,
    Loop,
    Mma,
    Rescale,
    Role,
    StBlocks,
    StGlobalVec,
    StMatrix,
    Stmt,
    StRows,
    TmaStore,
    Weigh,
    Wgmma,
    ZeroAcc,
)
from tatami.gpu.views.effects import operands_of, score_names

BLOCKS = (0, 1, 2, 3, 4)
"""Numbers of blocks per tile that are run."""
TILES = 2
"""Tiles that are run, so that what a tile leaves behind meets the next one."""


def check_values(kernel: Kernel) -> None:
    """Run each role's registers. Raises Hazard if a statement breaks a rule of the page."""
    bodies = [s.body for s in kernel.body if isinstance(s, Role) and s.name == "consumer"] or [kernel.body]
    for body in bodies:
        for blocks in BLOCKS[1:] if kernel.uneven else BLOCKS:
            _Registers(kernel, blocks).run_all(body)


class _Registers:
    def __init__(self, kernel: Kernel, blocks: int) -> None:
        self.kernel = kernel
        self.blocks = blocks
        self.once = {r.name for r in kernel.smem if r.once}
        self.scores = score_names(kernel)
        self.outputs = {p.name for p in kernel.params if p.written}
        self.sums: dict[str, list[int] | None] = {}
        """Blocks in each accumulator; None: it is not set."""
        self.fragments: dict[str, int] = {}
        """Ring -> block whose fragments are in registers."""
        self.weights: int | None = None
        self.parts: int | None = None
        self.finished = False
        self.stored: list[tuple[str, Expr | None]] = []
        """Outputs that are written, each with its address; of chunks the tensor map has it."""
        self.moved = False
        """True if copies of the next tile have begun: the coordinates of this one are kept for its epilogue."""

    def run_all(self, body: tuple[Stmt, ...]) -> None:
        tiles = [s for s in body if isinstance(s, Loop) and s.over == "tiles"]
        self.keeps = bool(tiles) and self.kernel.ring_origin == "tile" and self.kernel.groups is None
        if not tiles:
            self.run(body)
            self.end()
            return
        for s in body:
            if s not in tiles:
                self.run((s,))
                continue
            for _ in range(TILES):
                self.sums.clear()
                self.weights = self.parts = None
                self.finished = self.moved = False
                self.stored.clear()
                self.run(tiles[0].body)
                self.end()

    def run(self, body: tuple[Stmt, ...], k: int | None = None) -> None:
        before: Stmt | None = None
        for s in body:
            if isinstance(s, Loop):
                if s.over == "blocks":
                    for number in range(s.first, self.blocks):
                        self.run(s.body, number)
                else:
                    self.chunks(s, before)
            else:
                self.statement(s, k, before)
            before = s

    def end(self) -> None:
        """Raise Hazard if a tile leaves an output unwritten, or fragments unused."""
        if not self.finished:
            raise Hazard("kernel", "a tile ends without its Epilogue")
        if self.fragments:
            raise Hazard("kernel", f"fragments of {', '.join(self.fragments)} are loaded and not multiplied")
        if missing := self.outputs - {ptr for ptr, _ in self.stored}:
            raise Hazard("kernel", f"{', '.join(sorted(missing))} is written nowhere")

    def chunks(self, s: Loop, before: Stmt | None) -> None:
        if not isinstance(before, Epilogue):
            raise Hazard(statement_text(s), "chunks are stored that no Epilogue right before them computes")
        kinds = [x for x in all_statements(s.body) if isinstance(x, StMatrix | TmaStore)]
        if not kinds or any(isinstance(x, StMatrix) == bool(i % 2) for i, x in enumerate(kinds)) or len(kinds) % 2:
            raise Hazard(statement_text(s), "each StMatrix has to be followed by the TmaStore of its chunk")
        for x in kinds:
            if isinstance(x, StMatrix):
                self.store(x, x.ptr, None)

    def block(self, s: Stmt, block: Expr, k: int | None) -> int:
        """The number of a block that has to exist."""
        names = {"KB": self.blocks} | ({} if k is None else {"k": k})
        try:
            number = int(evaluate(block, names))
        except KeyError:
            raise Hazard(statement_text(s), f"block {block} outside a loop over blocks") from None
        if not 0 <= number < self.blocks:
            raise Hazard(statement_text(s), f"block {block} is none of the {self.blocks} of a tile")
        return number

    def statement(self, s: Stmt, k: int | None, before: Stmt | None) -> None:
        match s:
            case ZeroAcc():
                if s.acc != "acc" or self.sums.get("acc") is not None:
                    raise Hazard(statement_text(s), f"{s.acc} is not an accumulator, or is zeroed twice in a tile")
                self.sums["acc"] = []
            case CpAsync(tile="next"):
                self.moved = True
            case LdMatrix():
                if s.src_smem in self.fragments:
                    raise Hazard(statement_text(s), f"fragments of {s.src_smem} are replaced before an Mma takes them")
                self.fragments[s.src_smem] = self.block(s, s.block, k)
            case Mma():
                number = self.block(s, s.block, k)
                for ring in operands_of(self.kernel, s.acc):
                    if self.fragments.pop(ring, None) != (0 if ring in self.once else number):
                        raise Hazard(statement_text(s), f"fragments of {ring} are not those of block {s.block}: no LdMatrix")
                self.product(s, s.acc, number)
            case Fma():
                self.product(s, s.acc, self.block(s, s.block, k))
            case Wgmma():
                self.product(s, s.acc, self.block(s, s.block, k), fresh=s.fresh)
            case Weigh():
                number = self.block(s, s.block, k)
                if s.scores not in self.scores[:1] or any(self.sums.get(x) != [number] for x in self.scores):
                    raise Hazard(statement_text(s), f"the scores of block {s.block} are not there")
                self.sums[s.scores] = None
                self.weights = number
            case Rescale():
                number = self.block(s, s.block, k)
                if self.weights != number or s.acc != "acc":
                    raise Hazard(statement_text(s), f"the weights of block {s.block} are not there: no Weigh")
                if self.sums.get("acc") != list(range(number)):
                    raise Hazard(statement_text(s), f"acc is not the sum of all blocks before {s.block}")
                self.weights, self.parts = None, number
            case StBlocks():
                self.whole(s)
                for f in s.folds:
                    self.store(s, f.ptr, f.index)
            case Epilogue():
                self.whole(s)
                if self.finished:
                    raise Hazard(statement_text(s), "a second Epilogue in a tile")
                if self.keeps and not self.moved:
                    raise Hazard(statement_text(s), "it stands before the copies of the next tile, which keep its coordinates")
                self.finished = True
            case StGlobalVec() | StRows():
                if not isinstance(before, Epilogue | StGlobalVec | StRows):
                    raise Hazard(statement_text(s), "a store stands without its Epilogue right before it")
                self.store(s, s.ptr, s.index)
            case StMatrix() | TmaStore():
                raise Hazard(statement_text(s), "chunks are stored outside a loop over chunks")
            case _:
                pass

    def whole(self, s: Epilogue | StBlocks) -> None:
        """The accumulator holds every block of the tile once."""
        if sorted(self.sums.get("acc") or ()) != list(range(self.blocks)) or self.sums.get("acc") is None:
            raise Hazard(statement_text(s), "acc is not the sum of all blocks: a product or ZeroAcc is missing")

    def product(self, s: Mma | Fma | Wgmma, acc: str, block: int, fresh: bool = False) -> None:
        if acc in self.scores:
            self.sums[acc] = [block]
            return
        if acc != "acc" or fresh:
            raise Hazard(statement_text(s), f"{acc} is not an accumulator, or loses what it holds")
        has = self.sums.get(acc)
        if has is None:
            raise Hazard(statement_text(s), f"{acc} is not zeroed before block {s.block}")
        if block in has:
            raise Hazard(statement_text(s), f"block {s.block} is added to {acc} twice")
        if self.scores and self.parts != block:
            raise Hazard(statement_text(s), f"the weights of block {s.block} are not there as fragments: a Rescale is missing")
        has.append(block)

    def store(self, s: Stmt, ptr: str, index: Expr | None) -> None:
        if ptr not in self.outputs:
            raise Hazard(statement_text(s), f"{ptr} is not an output")
        if (ptr, index) in self.stored:
            raise Hazard(statement_text(s), f"{ptr} is written twice")
        self.stored.append((ptr, index))
