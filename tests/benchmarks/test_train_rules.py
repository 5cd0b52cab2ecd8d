"""The training benchmark: every network has a loss, a turn of three processes, and the figures of a row."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.train.__main__ import Contestant, Figures, Row, main  # noqa: E402
from benchmarks.train.nets import NETS, prepared  # noqa: E402


@pytest.mark.parametrize("name", NETS)
def test_a_network_has_a_loss_and_gradients(name: str) -> None:
    module, x, target = prepared(name)
    loss = NETS[name].loss(module(x), target)
    loss.backward()
    assert torch.isfinite(loss) and all(p.grad is not None for p in module.parameters())


def test_a_process_trains_turn_by_turn(tmp_path: Path) -> None:
    contestant = Contestant("experts", "eager", 1, tmp_path)
    try:
        contestant.begin()
        contestant.turn(2)
        contestant.turn(1)
    finally:
        contestant.end()
    f = contestant.figures
    assert f.first > 0 and len(f.steps) == 3 and len(f.losses) == 2 and f.losses[1] < f.losses[0] and f.peak > 10


def test_a_process_that_ends_says_why(tmp_path: Path) -> None:
    contestant = Contestant("experts", "no_such_backend", 1, tmp_path)
    try:
        with pytest.raises(RuntimeError, match="no_such_backend"):
            contestant.begin()
    finally:
        contestant.end()


def test_a_row_compares_with_the_faster_of_the_others() -> None:
    def figures(ms: float, loss: float) -> Figures:
        return Figures(1.0, [ms, 100 * ms, ms], [loss], 50.0)

    row = Row("net", 2, {"eager": figures(4.0, 2.0), "inductor": figures(3.0, 2.0), "tatami": figures(2.0, 2.002)})
    assert row.ratio == 1.5 and row.loss_error == pytest.approx(1e-3)
    assert "ratio 1.50" in row.line()


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["mlp", "--threads", "0"],
        ["mlp", "--steps", "0"],
        ["mlp", "--clock", "processor"],
        ["mlp", "--contestants", "eager"],
    ],
)
def test_what_does_not_fit_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
