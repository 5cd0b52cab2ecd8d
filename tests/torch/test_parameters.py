"""Parameters of torch.compile: shared, packed once where no gradient is asked for, packed again when they change."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from tatami import backends
from tatami.backends import torch_compile
from tatami.runtime.cpu import watch
from tatami.runtime.cpu.digest import LOOKS

available = pytest.mark.skipif(not watch.is_possible(), reason="this system has no scan of written pages")


class Half(nn.Linear):
    """A weight that something is computed of before products: that is worth keeping."""

    def forward(self, x: Any) -> Any:
        return nn.functional.linear(x, self.weight * 0.5, self.bias)


def module(layer: Any = Half) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(layer(64, 96), nn.GELU(), layer(96, 32)).eval()


def compiled(m: Any, **options: Any) -> Any:
    return torch.compile(m, backend=backends.torch_backend, fullgraph=True, options={"fallback": False, **options})


def packings() -> list[int]:
    return [r.packings for r in backends.torch_reports()]


def assert_agrees(run: Any, m: Any, x: Any) -> None:
    with torch.no_grad():
        torch.testing.assert_close(run(x), m(x), rtol=1e-4, atol=1e-4)


def in_place(m: Any) -> None:
    with torch.no_grad():
        m[0].weight.mul_(2)


def another_storage(m: Any) -> None:
    m[2].weight.data = torch.randn(32, 96) / 8


def two_storages_at_one_address(m: Any) -> None:
    """The second may lie where the first lay before; PyTorch counts neither."""
    m[0].weight.data = m[0].weight.data * 2
    m[0].weight.data = m[0].weight.data * 2


def behind_the_counter(m: Any) -> None:
    m[0].weight.data.mul_(0.5)


def through_numpy(m: Any) -> None:
    m[2].weight.detach().numpy()[:] += 1


def a_state(m: Any) -> None:
    m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()})


def a_step_of_an_optimizer(m: Any) -> None:
    optimizer = torch.optim.SGD(m.parameters(), 0.01)
    m(torch.randn(4, 64)).sum().backward()
    optimizer.step()


CHANGES = [in_place, another_storage, two_storages_at_one_address, behind_the_counter, through_numpy, a_state, a_step_of_an_optimizer]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_change_of_a_parameter_is_seen(change: Any) -> None:
    m, x = module(), torch.randn(32, 64)
    run = compiled(m)
    for _ in range(3):
        assert_agrees(run, m, x)
    assert packings() == [1]
    change(m)
    for _ in range(2):
        assert_agrees(run, m, x)
    assert packings() == [2], "once more, and no new graph"


def test_explain_says_what_is_packed() -> None:
    m = module()
    assert_agrees(compiled(m), m, torch.randn(32, 64))
    (report,) = backends.torch_reports()
    assert [n.rsplit("_modules_")[-1] for n in report.packed] == ["0_parameters_weight_", "2_parameters_weight_"]
    assert report.packed_bytes >= 4 * (64 * 96 + 96 * 32)
    assert "packed 1 times" in backends.explain() and report.packed[0] in backends.explain()


def test_nothing_is_packed_where_gradients_are_asked_for_or_by_option() -> None:
    m, x = module(), torch.randn(32, 64)
    compiled(m)(x).sum().backward()
    torch._dynamo.reset()
    assert_agrees(compiled(m, pack=False), m, x)
    assert [r.kind for r in backends.torch_reports()] == ["forward", "backward", "inference"]
    assert packings() == [0, 0, 0] and not any(r.packed for r in backends.torch_reports())


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Half(64, 64)

    def forward(self, x: Any) -> Any:
        return self.inner(x).relu()


def test_modules_of_one_class_share_a_program_and_keep_their_own_packed_copies() -> None:
    eager = nn.Sequential(Block(), Block(), Block())
    blocks = nn.Sequential(*(compiled(b) for b in eager))
    x = torch.randn(32, 64)
    for _ in range(3):
        assert_agrees(blocks, eager, x)
    assert packings() == [3]
    with torch.no_grad():
        eager[1].inner.weight.mul_(2)
    assert_agrees(blocks, eager, x)
    assert packings() == [4]


def test_the_packed_copy_goes_with_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    from tatami.backends import torch_parameters

    made: list[Any] = []
    prepare = torch_parameters.Parameters._prepare

    def prepared(*a: Any) -> Any:
        made.append(a[0])
        return prepare(*a)

    monkeypatch.setattr(torch_parameters.Parameters, "_prepare", prepared)
    m, x = module(), torch.randn(32, 64)
    run = compiled(m)
    assert_agrees(run, m, x)
    in_place(m)
    assert_agrees(run, m, x)
    assert [len(p._sets) for p in made] == [1, 1], "one copy, not one per change"
    del run, m
    gc.collect()
    assert [len(p._sets) for p in made] == [0, 0]


def test_parameters_whose_writes_nobody_counts_are_packed_when_they_changed() -> None:
    with torch.inference_mode():
        m, x = module(), torch.randn(32, 64)
        run = compiled(m)
        for k in range(3):
            for _ in range(2):
                torch.testing.assert_close(run(x), m(x), rtol=1e-4, atol=1e-4)
            m[0].weight[k, 5] += 1
    assert packings() == [3]


EDITS: dict[str, Callable[[Any], Any]] = {
    "a row": lambda w: w.data[3].zero_(),
    "an element": lambda w: w.data.__setitem__((7, 9), 100.0),
    "a column": lambda w: w.data[:, 5].mul_(0),
    "the last element": lambda w: w.data[-1, -1:].add_(1),
    "one bit": lambda w: w.data.view(torch.int32)[5, 7].bitwise_xor_(1),
    "two rows in each other's place": lambda w: w.data.__setitem__([0, 16], w.data[[16, 0]]),
    "a row through numpy": lambda w: w.detach().numpy().__setitem__(11, 0.0),
    "a row through DLPack": lambda w: torch.utils.dlpack.from_dlpack(w.detach().__dlpack__())[1].zero_(),
    "all signs": lambda w: w.data.neg_(),
    "a moving average": lambda w: w.data.copy_(w.data * 0.999),
    "pruning": lambda w: w.data.mul_((w.data.abs() > w.data.abs().median()).float()),
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("layer", [0, 2])
def test_a_write_of_a_part_that_nobody_counts_is_seen(layer: int, name: str) -> None:
    m, x = module(), torch.randn(32, 64)
    run = compiled(m)
    for _ in range(2):
        assert_agrees(run, m, x)
    version = m[layer].weight._version
    EDITS[name](m[layer].weight)
    assert m[layer].weight._version == version
    assert_agrees(run, m, x)
    assert_agrees(run, m, x)
    assert packings() == [2]


@pytest.mark.parametrize("name", EDITS)
def test_weights_of_products_are_read_as_they_lie_where_nothing_tells_of_writes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TATAMI_WATCH", "0")
    m, x = module(nn.Linear), torch.randn(32, 64)
    run = compiled(m)
    assert_agrees(run, m, x)
    EDITS[name](m[0].weight)
    assert_agrees(run, m, x)
    torch._dynamo.reset()
    assert_agrees(compiled(m, freeze=True), m, x)
    plain, frozen = backends.torch_reports()
    assert not plain.packed and not plain.watched_bytes
    assert len(frozen.packed) == 2 and not frozen.watched_bytes


@available
@pytest.mark.parametrize("name", EDITS)
def test_a_write_of_weights_of_products_that_are_watched_is_seen(name: str) -> None:
    """Weights of several pages, after the calls that read them; the second is written while it is watched."""
    torch.manual_seed(0)
    m, x = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 128)).eval(), torch.randn(32, 256)
    run = compiled(m)
    for layer, edit in ((0, EDITS[name]), (1, EDITS["pruning"])):
        for _ in range(LOOKS + 2):
            assert_agrees(run, m, x)
        edit(m[layer].weight)
        assert_agrees(run, m, x)
    (report,) = backends.torch_reports()
    assert len(report.packed) == 2 and report.packings == 3
    assert report.watched_bytes == 4 * (256 * 256 + 256 * 128)


@available
def test_only_weights_in_memory_of_this_process_alone_are_packed() -> None:
    m, x = module(nn.Linear), torch.randn(32, 64)
    m[0].weight = nn.Parameter(m[0].weight.detach().clone().share_memory_())
    run = compiled(m)
    assert_agrees(run, m, x)
    m[0].weight.data[3].zero_()
    assert_agrees(run, m, x)
    (report,) = backends.torch_reports()
    assert [n.rsplit("_modules_")[-1] for n in report.packed] == ["2_parameters_weight_"]


@available
def test_weights_too_large_to_be_held_twice_are_read_as_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    m, x = module(nn.Linear), torch.randn(32, 64)
    held = 4 * (64 * 96 + 96 + 96 * 32 + 32)
    for memory, packed in ((4 * held, 2), (4 * held - 4, 0)):
        torch._dynamo.reset()
        backends.reset()
        monkeypatch.setattr(torch_compile, "_machine_bytes", lambda of=memory: of)
        assert_agrees(compiled(m), m, x)
        (report,) = backends.torch_reports()
        assert len(report.packed) == packed


@pytest.mark.parametrize("name", EDITS)
def test_weights_of_convolutions_are_packed_and_looked_at(name: str) -> None:
    torch.manual_seed(0)
    m = nn.Sequential(nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1)).eval()
    x = torch.randn(2, 16, 12, 12)
    run = compiled(m)
    for _ in range(2):
        assert_agrees(run, m, x)
    EDITS[name](m[0].weight.view(32, 144))
    assert_agrees(run, m, x)
    (report,) = backends.torch_reports()
    assert report.packings == 2 and report.watched_bytes >= 4 * (32 * 144 + 32 * 32 * 9)


@pytest.mark.parametrize("name", EDITS)
def test_a_write_of_weights_that_are_watched_is_seen(name: str) -> None:
    """Weights of several pages, after the calls that read them."""
    m, x = nn.Conv2d(64, 64, 3).eval(), torch.randn(1, 64, 12, 12)
    run = compiled(m)
    for edit in (EDITS[name], EDITS["pruning"]):
        for _ in range(LOOKS + 2):
            assert_agrees(run, m, x)
        edit(m.weight.view(64, -1))
        assert_agrees(run, m, x)
    (report,) = backends.torch_reports()
    assert report.packings == (2 if name == "pruning" else 3)


def test_frozen_parameters_are_looked_at_only_where_pytorch_counts() -> None:
    m, x = module(), torch.randn(32, 64)
    run = compiled(m, freeze=True)
    assert_agrees(run, m, x)
    in_place(m)
    assert_agrees(run, m, x)
    m[0].weight.data = m[0].weight.data * 2
    assert_agrees(run, m, x)
    (report,) = backends.torch_reports()
    assert report.packings == 3 and not report.watched_bytes and "changed" not in report.text()
    with torch.no_grad():
        before = run(x)
        m[0].weight.data[3].zero_()  # against the promise
        assert torch.equal(run(x), before)


def test_explain_says_what_each_call_looks_at() -> None:
    m, x = module(), torch.randn(32, 64)
    assert_agrees(compiled(m), m, x)
    (report,) = backends.torch_reports()
    assert report.watched_bytes == 4 * (64 * 96 + 96 * 32)
    assert "looks whether 36.0 KiB of parameters changed" in report.text()


def test_a_parameter_with_gaps_is_copied_once() -> None:
    m, x = module(), torch.randn(32, 64)
    m[0].weight = nn.Parameter(torch.randn(96, 128)[:, ::2])
    run = compiled(m)
    for _ in range(3):
        assert_agrees(run, m, x)
    assert packings() == [1]
    m[0].weight.data.mul_(2)
    assert_agrees(run, m, x)


def test_autocast_casts_the_weights_once() -> None:
    m, x = module(), torch.randn(32, 64)
    run = compiled(m)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            got, wanted = run(x), m(x)
            assert got.dtype == wanted.dtype == torch.bfloat16
            torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)
    assert packings() == [1]


def test_a_part_of_a_graph_that_was_cut_packs_too() -> None:
    m, x = module(), torch.randn(32, 64)

    def f(x: Any) -> Any:
        return m(x) + torch.linalg.matrix_exp(0.01 * x.T @ x)[0, :32]

    run = torch.compile(f, backend=backends.torch_backend)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(run(x), f(x), rtol=1e-3, atol=1e-3)
    (report,) = backends.torch_reports()
    assert report.unsupported and report.packed and report.packings == 1


@pytest.mark.parametrize("watched", [pytest.param(True, marks=available), False])
def test_a_weight_that_an_embedding_and_a_product_share(watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Embedding(64, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rows(x).tanh() @ self.rows.weight.t()

    if not watched:
        monkeypatch.setenv("TATAMI_WATCH", "0")
    m, x = Tied().eval(), torch.arange(40) % 64
    run = compiled(m)
    assert_agrees(run, m, x)
    m.rows.weight.data[3].zero_()
    assert_agrees(run, m, x)
    (report,) = backends.torch_reports()
    assert bool(report.packed) == bool(report.watched_bytes) == watched
