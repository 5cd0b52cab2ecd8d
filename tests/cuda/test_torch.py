"""torch.compile on a GPU: which device, and tensors in place, on the fake driver's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.runtime.cuda.device import Device
from tatami.runtime.cuda.device_array import DeviceArray
from tatami.torch.dtypes import TO_TORCH
from tests.cuda.emulated_gpu import EmulatedGpu, emulated_gpu
from tests.cuda.programs import eighths

torch = pytest.importorskip("torch")

from torch import fx  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

from tatami.backends import torch_compile, torch_program  # noqa: E402


def graph_on(*devices: str, scalar: str = "") -> fx.GraphModule:
    """Tensors of the devices added up, as AOTAutograd would describe them."""
    graph = fx.Graph()
    with FakeTensorMode():
        nodes = []
        for k, d in enumerate(devices):
            nodes.append(graph.placeholder(f"a{k}"))
            nodes[-1].meta["val"] = torch.empty_strided((2, 3), (3, 1), device=d)
        if scalar:
            node = graph.placeholder("s")
            node.meta["val"] = torch.empty_strided((), (), device=scalar)
    graph.output(tuple(nodes))
    return fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize(
    "made, target",
    [(("cpu",), "cpu"), (("cuda:1",), "cuda:1"), (("cuda:0", "cuda:0"), "cuda:0"), ((), "cpu")],
)
def test_a_graph_runs_where_its_tensors_are(made: tuple[str, ...], target: str) -> None:
    assert torch_compile.target_of(graph_on(*made)) == target


def test_numbers_on_the_host_may_stand_beside_a_gpu() -> None:
    assert torch_compile.target_of(graph_on("cuda:0", scalar="cpu")) == "cuda:0"


@pytest.mark.parametrize("devices", [("cpu", "cuda:0"), ("cuda:0", "cuda:1")])
def test_a_graph_over_two_machines_stays_in_pytorch(devices: tuple[str, ...]) -> None:
    with pytest.raises(TatamiError, match="on several devices"):
        torch_compile.target_of(graph_on(*devices))


def tensors_on(gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch) -> Callable[[np.ndarray, DType], Any]:
    """PyTorch on the fake GPU: its memory is the driver's, seen through DLPack as the host's."""
    monkeypatch.setattr(Device, "dlpack_type", 1)
    monkeypatch.setattr(torch_program, "device_of", lambda program: torch.device("cpu"))
    built = vars(torch_compile)["build"]

    def build(compilation: Any, threads: Any) -> Any:
        gpu.describe(compilation.stages["execution"].programs)
        return built(compilation, threads)

    def allocate(self: Any, r: Any, dtype: Any) -> Any:
        program = self.function.program
        made: DeviceArray = program.allocate(r.lies, next(d for d, t in TO_TORCH.items() if t == dtype))
        return torch.from_dlpack(made)

    monkeypatch.setattr(torch_compile, "build", build)
    monkeypatch.setattr(torch_program.TorchProgram, "_allocate", allocate)

    def tensor(values: np.ndarray, dtype: DType) -> Any:
        from tatami.runtime.cuda.device import get_device
        from tatami.runtime.cuda.device_array import upload

        return torch.from_dlpack(upload(get_device(0), values, dtype))

    return tensor


def test_a_module_runs_on_tensors_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def model(x: Any) -> Any:
        return torch.softmax(x * 2.0 + 1.0, dim=-1)

    with emulated_gpu("sm80") as gpu, torch.no_grad():
        tensor = tensors_on(gpu, monkeypatch)
        values = eighths(5, 40)
        given = torch.from_numpy(values)
        inputs: list[Any] = []

        def readable(self: Any, args: Any, a: Any) -> Any:
            inputs.append(tensor(args[a.position].numpy(), tt.fp32))
            return inputs[-1]

        monkeypatch.setattr(torch_program.TorchProgram, "_readable", readable)
        compiled = torch.compile(model, backend="tatami", options={"target": "cuda", "fallback": False})
        found = compiled(given)
        torch.testing.assert_close(found.clone(), model(given))
        launch = gpu.launches[0]
        assert inputs[0].data_ptr() in launch.args and found.data_ptr() in gpu.launches[-1].args
        assert gpu.counts["cuGraphLaunch"] == 1 and gpu.counts["cuMemcpyDtoHAsync"] == 0
        compiled(given)
        assert gpu.counts["cuGraphCreate"] == 1 and gpu.counts["cuGraphLaunch"] == 2
    torch._dynamo.reset()
