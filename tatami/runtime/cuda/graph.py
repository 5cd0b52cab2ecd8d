"""Steps as one CUDA graph: built once per topology, then launched any number of times with changed parameters.

Independent steps of a wave are branches. A call with other pointers or other sizes changes the nodes that differ; the caller's
arrays are read and written in place. Launches of one graph run one after another, and a change concerns only later launches,
so calls on several streams may share it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from tatami.runtime.cuda.device import Device
from tatami.runtime.cuda.kernels import Kernels, Packed
from tatami.runtime.cuda.steps import CopyStep, JoinStep, KernelStep, Step, Steps


class Replay:
    """A graph for the steps of one topology. `updates`: number of node changes, for measurements."""

    def __init__(self, device: Device, kernels: Kernels, steps: Steps, bases: Sequence[int]) -> None:
        self.device = device
        self.kernels = kernels
        self.updates = 0
        self.launches = 0
        self._now: tuple[Steps, tuple[int, ...]] = (steps, tuple(bases))
        self._held: list[tuple[object, ...]] = []
        driver = device.driver
        with device:
            self._graph = driver.call("cuGraphCreate", 0)
            self._nodes: list[object] = []
            for step in steps.steps:
                self._nodes.append(self._add(step, bases))
            self._exec = driver.call("cuGraphInstantiate", self._graph, 0, at="the graph of a program")
        weakref.finalize(self, _destroy, device, self._exec, self._graph).atexit = False

    def launch(self, steps: Steps, bases: tuple[int, ...], stream: int) -> None:
        """Launch the graph in a stream. The device's context is current; one thread at a time."""
        if self._now[0] is not steps or self._now[1] != bases:
            for k, step in enumerate(steps.steps):
                self._change(k, step, bases)
            self._now = (steps, bases)
        self.device.driver.call("cuGraphLaunch", self._exec, self.device.stream(stream), at="the graph of a program")
        self.launches += 1

    # -- nodes -----------------------------------------------------------------------------------

    def _add(self, step: Step, bases: Sequence[int]) -> object:
        driver = self.device.driver
        after = [self._nodes[k] for k in step.after]
        match step:
            case KernelStep():
                params, state, _packed = self._kernel(step, bases)
                self._held.append(state)
                early = (
                    step.dependent
                    and step.after != ()
                    and all(isinstance(self._now[0].steps[k], KernelStep) for k in step.after)
                )
                ended = [] if early else after
                node = driver.call("cuGraphAddKernelNode", self._graph, ended, len(ended), params, at=step.named)
                if early:
                    self._let_overlap(after, node, step)
                if step.cluster is not None:
                    self._cluster(node, step, step.cluster)
                return node
            case CopyStep():
                params, state = self._copy(step, bases)
                self._held.append(state)
                return driver.call(
                    "cuGraphAddMemcpyNode", self._graph, after, len(after), params, self.device.context, at=step.at
                )
            case JoinStep():
                self._held.append(())
                return driver.call("cuGraphAddEmptyNode", self._graph, after, len(after))

    def _change(self, k: int, step: Step, bases: Sequence[int]) -> None:
        driver = self.device.driver
        match step:
            case KernelStep():
                params, state, _packed = self._kernel(step, bases)
                if state == self._held[k]:
                    return
                driver.call("cuGraphExecKernelNodeSetParams", self._exec, self._nodes[k], params, at=step.named)
            case CopyStep():
                params, state = self._copy(step, bases)
                if state == self._held[k]:
                    return
                driver.call(
                    "cuGraphExecMemcpyNodeSetParams", self._exec, self._nodes[k], params, self.device.context, at=step.at
                )
            case JoinStep():
                return
        self._held[k] = state
        self.updates += 1

    def _kernel(self, step: KernelStep, bases: Sequence[int]) -> tuple[object, tuple[object, ...], Packed]:
        """(the node's parameters, the values they are compared by, the memory that they point to until they are read)."""
        params = self.device.driver.api.CUDA_KERNEL_NODE_PARAMS()
        packed = self.kernels.pack(step, bases)
        params.func = self.kernels.function(step)
        params.gridDimX, params.gridDimY, params.gridDimZ = step.grid
        params.blockDimX, params.blockDimY, params.blockDimZ = step.block
        params.sharedMemBytes = step.shared_bytes
        params.kernelParams = packed.address
        return params, (step.grid, step.block, step.shared_bytes, packed.data), packed

    def _cluster(self, node: object, step: KernelStep, cluster: tuple[int, int, int]) -> None:
        api = self.device.driver.api
        value = api.CUkernelNodeAttrValue()
        size = value.clusterDim
        size.x, size.y, size.z = cluster
        which = api.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        self.device.driver.call("cuGraphKernelNodeSetAttribute", node, which, value, at=step.named)

    def _let_overlap(self, after: list[object], node: object, step: KernelStep) -> None:
        """Add edges from kernels to one that waits for them itself: it is launched once each of their blocks allows it."""
        api = self.device.driver.api
        edge = api.CUgraphEdgeData()
        edge.type = api.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.value
        edge.from_port = api.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
        n = len(after)
        self.device.driver.call("cuGraphAddDependencies", self._graph, after, [node] * n, [edge] * n, n, at=step.named)

    def _copy(self, step: CopyStep, bases: Sequence[int]) -> tuple[object, tuple[object, ...]]:
        api = self.device.driver.api
        source = bases[step.source.base] + step.source.offset
        target = bases[step.target.base] + step.target.offset
        params = api.CUDA_MEMCPY3D()
        params.srcMemoryType = params.dstMemoryType = api.CUmemorytype.CU_MEMORYTYPE_DEVICE
        params.srcDevice, params.dstDevice = api.CUdeviceptr(source), api.CUdeviceptr(target)
        params.WidthInBytes, params.Height, params.Depth = step.bytes, 1, 1
        return params, (source, target, step.bytes)


def _destroy(device: Device, executable: object, graph: object) -> None:
    """Free the graph; the driver lets launches under way end first."""
    with device:
        device.driver.call("cuGraphExecDestroy", executable)
        device.driver.call("cuGraphDestroy", graph)
