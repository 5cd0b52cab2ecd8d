"""Programs of torch.compile compute with PyTorch's number of threads, that of each call, unless a caller says otherwise."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from tatami import backends  # noqa: E402
from tatami.backends.torch_program import KEPT_THREADS, TorchProgram  # noqa: E402
from tatami.runtime.cpu.program import CpuProgram  # noqa: E402


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    monkeypatch.delenv("TATAMI_NUM_THREADS", raising=False)
    torch._dynamo.reset()
    yield
    torch.set_num_threads(before)


def watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of threads of each call of a program from now on."""
    seen: list[int] = []
    threaded = TorchProgram._threaded

    def noted(self: TorchProgram) -> object:
        found = threaded(self)
        assert isinstance(found.program, CpuProgram)
        seen.append(found.program.threads)
        return found

    monkeypatch.setattr(TorchProgram, "_threaded", noted)
    return seen


def test_a_program_follows_pytorchs_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watched(monkeypatch)
    layer = torch.nn.Linear(64, 64)
    x = torch.randn(256, 64)
    f = torch.compile(layer, backend=backends.torch_backend)
    with torch.no_grad():
        want = layer(x)
        for threads in (2, 1, 3, 1):
            torch.set_num_threads(threads)
            torch.testing.assert_close(f(x), want)
    assert seen == [2, 1, 3, 1]


def test_a_written_parameter_is_seen_with_every_number_of_threads() -> None:
    layer = torch.nn.Linear(64, 64)
    x = torch.randn(16, 64)
    f = torch.compile(layer, backend=backends.torch_backend)
    with torch.no_grad():
        for threads in (1, 2, 1, 2):
            torch.set_num_threads(threads)
            layer.weight.add_(0.5)
            torch.testing.assert_close(f(x), layer(x), rtol=1e-4, atol=1e-3)


def test_the_option_and_the_environment_fix_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watched(monkeypatch)
    x = torch.randn(256, 64)
    torch.set_num_threads(1)
    torch.compile(torch.exp, backend=backends.torch_backend, options={"threads": 2})(x)
    torch._dynamo.reset()
    monkeypatch.setenv("TATAMI_NUM_THREADS", "3")
    torch.compile(torch.sin, backend=backends.torch_backend)(x)
    assert seen == [2, 3]


def test_a_program_itself_follows_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo compiles a graph anew for another number of threads; a backward program that was made before is called with it."""
    programs: list[TorchProgram] = []
    threaded = TorchProgram._threaded

    def noted(self: TorchProgram) -> object:
        programs.append(self)
        return threaded(self)

    monkeypatch.setattr(TorchProgram, "_threaded", noted)
    x = torch.randn(64, requires_grad=True)
    torch.set_num_threads(2)
    loss = torch.compile(torch.tanh, backend=backends.torch_backend)(x).sum()
    torch.set_num_threads(1)
    loss.backward()
    backward = programs[-1]
    assert backward is not programs[0] and list(backward._by_threads) == [1]
    forward = programs[0]
    for threads in range(1, KEPT_THREADS + 3):
        torch.set_num_threads(threads)
        forward(x.detach())
    assert list(forward._by_threads) == list(range(3, KEPT_THREADS + 3))


def test_one_thread_takes_the_time_of_one_processor() -> None:
    """A training step with a forward and a backward program: processor seconds at most 1.05 times those of the clock."""
    torch.set_num_threads(1)
    net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
    f = torch.compile(net, backend=backends.torch_backend)
    x = torch.randn(512, 256)
    f(x).sum().backward()
    started, processor = time.perf_counter(), time.process_time()
    for _ in range(20):
        f(x).sum().backward()
    spent, clock = time.process_time() - processor, time.perf_counter() - started
    assert spent <= 1.05 * clock + 0.01
