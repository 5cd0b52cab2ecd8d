"""A GPU made of this process's memory, behind the functions of `cuda.bindings.driver`.

It takes exactly the kinds of argument that the bindings take (their own classes), keeps a log, and refuses what a
driver would: a call without a context, memory that was freed, an address outside every allocation, a kernel that asks
for shared memory which it was not allowed, a node of another graph. Copies happen; a kernel is a Python function
given by its symbol (`kernels`), or nothing.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cuda.bindings.driver as real

from tatami.core.kernel import Window

OK = real.CUresult.CUDA_SUCCESS
INVALID = real.CUresult.CUDA_ERROR_INVALID_VALUE
GUARD = 64
ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 132, "MEMORY_CLOCK_RATE": 3201000,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 228 << 10,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10, "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048, "MAX_BLOCKS_PER_MULTIPROCESSOR": 32, "CLOCK_RATE": 1830000,
    "L2_CACHE_SIZE": 50 << 20,
}  # fmt: skip


@dataclass
class Block:
    memory: Any
    address: int
    size: int
    freed: bool = False


@dataclass
class Launch:
    """Arguments of a launch: addresses and sizes as 64-bit words, tensor maps as 128 bytes."""

    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    cluster: tuple[int, int, int] | None
    args: tuple[Any, ...]
    stream: int
    dependent: bool = False


@dataclass
class Graph:
    nodes: list[int] = field(default_factory=list)


@dataclass
class Node:
    """A node of a CUDA graph. `what`: a kernel's Launch, (source, target, bytes), or None for an empty node."""

    what: Any
    after: tuple[int, ...]


class FakeDriver:
    """One process's driver. `layouts`: kernel symbol -> bytes of each parameter (8 or 128)."""

    def __init__(
        self,
        layouts: Mapping[str, Sequence[int]] | None = None,
        kernels: Mapping[str, Callable[[Launch], None]] | None = None,
        devices: int = 1,
        version: int = 13000,
        attributes: Mapping[str, int] | None = None,
    ) -> None:
        self.layouts = dict(layouts or {})
        self.kernels = dict(kernels or {})
        self.devices = devices
        self.version = version
        self.device_name = "Fake GPU"
        self.attributes = {**ATTRIBUTES, **(attributes or {})}
        self.log: list[str] = []
        self.launches: list[Launch] = []
        self.contexts: list[int] = []
        self.blocks: dict[int, Block] = {}
        self.modules: dict[int, bytes] = {}
        self.functions: dict[int, str] = {}
        self.variables: dict[int, int] = {}
        self.pinned: dict[int, Any] = {}
        self.allowed: dict[int, int] = {}
        self.graphs: dict[int, Graph] = {}
        self.executables: dict[int, dict[int, Node]] = {}
        self.nodes: dict[int, Node] = {}
        self.maps: list[tuple[Any, ...]] = []
        self.events: set[int] = set()
        self.kept_bytes = 0
        self.fail_next: dict[str, Any] = {}
        """Function -> status that its next call gives."""
        self._count = 1000

    def __getattr__(self, name: str) -> Any:
        """Classes and enumerations are the bindings' own; functions that a GPU needs and this one lacks do not exist."""
        if name.startswith("cu") and not name.startswith("cuuint"):
            raise AttributeError(f"the fake driver has no {name}")
        return getattr(real, name)

    def number(self) -> int:
        self._count += 8
        return self._count

    def begin(self, name: str, context: bool = True) -> Any:
        self.log.append(name)
        assert not context or self.contexts, f"{name} without a current context"
        return self.fail_next.pop(name, OK)

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.log)

    @property
    def alive(self) -> int:
        """Allocations that nobody has freed."""
        return sum(not b.freed for b in self.blocks.values())

    # -- devices ---------------------------------------------------------------------------------

    def cuInit(self, flags: int) -> tuple[Any]:
        return (self.begin("cuInit", context=False),)

    def cuGetErrorString(self, status: Any) -> tuple[Any, bytes]:
        return OK, f"said of {status.name}".encode()

    def cuDriverGetVersion(self) -> tuple[Any, int]:
        return OK, self.version

    def cuDeviceGetCount(self) -> tuple[Any, int]:
        return OK, self.devices

    def cuDeviceGet(self, ordinal: int) -> tuple[Any, Any]:
        assert 0 <= ordinal < self.devices
        return OK, real.CUdevice(ordinal)

    def cuDeviceGetName(self, length: int, device: Any) -> tuple[Any, bytes]:
        assert isinstance(device, real.CUdevice)
        return OK, self.device_name.encode().ljust(length, b"\0")

    def cuDeviceGetAttribute(self, attribute: Any, device: Any) -> tuple[Any, int]:
        assert isinstance(attribute, real.CUdevice_attribute) and isinstance(device, real.CUdevice)
        return OK, self.attributes[attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuDevicePrimaryCtxRetain(self, device: Any) -> tuple[Any, Any]:
        assert isinstance(device, real.CUdevice)
        return OK, real.CUcontext(7000 + int(device))

    def cuDeviceGetDefaultMemPool(self, device: Any) -> tuple[Any, Any]:
        assert isinstance(device, real.CUdevice)
        return OK, real.CUmemoryPool(9000 + int(device))

    def cuMemPoolSetAttribute(self, pool: Any, attribute: Any, value: Any) -> tuple[Any]:
        assert isinstance(pool, real.CUmemoryPool) and isinstance(value, real.cuuint64_t)
        assert attribute == real.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        self.kept_bytes = int(value)
        return (self.begin("cuMemPoolSetAttribute", context=False),)

    def cuCtxPushCurrent(self, context: Any) -> tuple[Any]:
        assert isinstance(context, real.CUcontext)
        self.contexts.append(int(context))
        return (OK,)

    def cuCtxPopCurrent(self) -> tuple[Any, Any]:
        return OK, real.CUcontext(self.contexts.pop())

    def cuPointerGetAttribute(self, attribute: Any, pointer: Any) -> tuple[Any, int]:
        assert isinstance(attribute, real.CUpointer_attribute) and isinstance(pointer, real.CUdeviceptr)
        self.block_of(int(pointer), 1)
        return OK, 0

    # -- memory ----------------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        memory = (ctypes.c_uint8 * (size + 2 * GUARD + 256))()
        address = -(-(ctypes.addressof(memory) + GUARD) // 256) * 256
        ctypes.memset(ctypes.addressof(memory), 0xEE, len(memory))
        self.blocks[address] = Block(memory, address, size)
        return address

    def block_of(self, address: int, size: int) -> Block:
        """The living allocation that holds these bytes."""
        for b in self.blocks.values():
            if b.address <= address and address + size <= b.address + b.size:
                assert not b.freed, f"{address:#x} was freed"
                return b
        raise AssertionError(f"{size} bytes at {address:#x} lie in no allocation")

    def cuMemAllocAsync(self, size: int, stream: Any) -> tuple[Any, Any]:
        assert isinstance(stream, real.CUstream) and size > 0
        status = self.begin("cuMemAllocAsync")
        return status, real.CUdeviceptr(self.allocate(size) if status == OK else 0)

    def cuMemFreeAsync(self, pointer: Any, stream: Any) -> tuple[Any]:
        assert isinstance(stream, real.CUstream)
        return self.free("cuMemFreeAsync", pointer)

    def cuMemFree(self, pointer: Any) -> tuple[Any]:
        assert self.log[-1] == "cuCtxSynchronize", "of a pool it waits for nothing"
        return self.free("cuMemFree", pointer)

    def cuCtxSynchronize(self) -> tuple[Any]:
        return (self.begin("cuCtxSynchronize"),)

    def free(self, name: str, pointer: Any) -> tuple[Any]:
        assert isinstance(pointer, real.CUdeviceptr)
        if (status := self.begin(name)) != OK:
            return (status,)
        block = self.blocks[int(pointer)]
        assert not block.freed, "freed twice"
        assert all(x == 0xEE for x in self.guards(block)), "something wrote outside an allocation"
        block.freed = True
        return (OK,)

    def guards(self, block: Block) -> bytes:
        return ctypes.string_at(block.address - GUARD, GUARD) + ctypes.string_at(block.address + block.size, GUARD)

    def cuMemcpyHtoDAsync(self, target: Any, source: int, size: int, stream: Any) -> tuple[Any]:
        assert isinstance(target, real.CUdeviceptr) and isinstance(source, int) and isinstance(stream, real.CUstream)
        status = self.begin("cuMemcpyHtoDAsync")
        self.block_of(int(target), size)
        ctypes.memmove(int(target), source, size)
        return (status,)

    def cuMemcpyDtoHAsync(self, target: int, source: Any, size: int, stream: Any) -> tuple[Any]:
        assert isinstance(target, int) and isinstance(source, real.CUdeviceptr) and isinstance(stream, real.CUstream)
        status = self.begin("cuMemcpyDtoHAsync")
        self.block_of(int(source), size)
        ctypes.memmove(target, int(source), size)
        return (status,)

    def cuMemcpyDtoDAsync(self, target: Any, source: Any, size: int, stream: Any) -> tuple[Any]:
        assert (
            isinstance(target, real.CUdeviceptr) and isinstance(source, real.CUdeviceptr) and isinstance(stream, real.CUstream)
        )
        self.begin("cuMemcpyDtoDAsync")
        self.copy(int(target), int(source), size)
        return (OK,)

    def copy(self, target: int, source: int, size: int) -> None:
        self.block_of(target, size)
        self.block_of(source, size)
        ctypes.memmove(target, source, size)

    # -- streams and events ----------------------------------------------------------------------

    def cuStreamSynchronize(self, stream: Any) -> tuple[Any]:
        assert isinstance(stream, real.CUstream)
        return (self.begin("cuStreamSynchronize"),)

    def cuEventCreate(self, flags: int) -> tuple[Any, Any]:
        self.begin("cuEventCreate")
        event = self.number()
        self.events.add(event)
        return OK, real.CUevent(event)

    def cuEventRecord(self, event: Any, stream: Any) -> tuple[Any]:
        assert isinstance(event, real.CUevent) and isinstance(stream, real.CUstream) and int(event) in self.events
        return (self.begin("cuEventRecord"),)

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> tuple[Any]:
        assert isinstance(event, real.CUevent) and isinstance(stream, real.CUstream) and int(event) in self.events
        return (self.begin("cuStreamWaitEvent"),)

    def cuEventSynchronize(self, event: Any) -> tuple[Any]:
        assert isinstance(event, real.CUevent) and int(event) in self.events
        return (self.begin("cuEventSynchronize"),)

    def cuEventElapsedTime(self, begin: Any, end: Any) -> tuple[Any, float]:
        assert isinstance(begin, real.CUevent) and isinstance(end, real.CUevent)
        return OK, 0.5

    def cuEventDestroy(self, event: Any) -> tuple[Any]:
        self.events.remove(int(event))
        return (self.begin("cuEventDestroy"),)

    # -- kernels ---------------------------------------------------------------------------------

    def cuModuleLoadData(self, image: bytes) -> tuple[Any, Any]:
        assert isinstance(image, bytes) and image
        status = self.begin("cuModuleLoadData")
        module = self.number()
        self.modules[module] = image
        return status, real.CUmodule(module)

    def cuModuleUnload(self, module: Any) -> tuple[Any]:
        del self.modules[int(module)]
        if int(module) in self.variables:
            self.blocks[self.variables.pop(int(module))].freed = True
        return (self.begin("cuModuleUnload"),)

    def cuModuleGetGlobal(self, module: Any, name: bytes) -> tuple[Any, Any, int]:
        assert isinstance(module, real.CUmodule) and int(module) in self.modules and name == b"tt_fault_code"
        self.begin("cuModuleGetGlobal")
        if int(module) not in self.variables:
            self.variables[int(module)] = FakeDriver.allocate(self, 4)
            ctypes.memset(self.variables[int(module)], 0, 4)
        return OK, real.CUdeviceptr(self.variables[int(module)]), 4

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[Any, int]:
        self.begin("cuMemHostAlloc")
        memory = (ctypes.c_uint8 * size)()
        self.pinned[ctypes.addressof(memory)] = memory
        return OK, ctypes.addressof(memory)

    def cuMemFreeHost(self, memory: int) -> tuple[Any]:
        del self.pinned[memory]
        return (self.begin("cuMemFreeHost"),)

    def cuMemsetD8Async(self, target: Any, value: int, size: int, stream: Any) -> tuple[Any]:
        assert isinstance(target, real.CUdeviceptr) and isinstance(stream, real.CUstream)
        self.block_of(int(target), size)
        ctypes.memset(int(target), value, size)
        return (self.begin("cuMemsetD8Async"),)

    def cuModuleGetFunction(self, module: Any, name: bytes) -> tuple[Any, Any]:
        assert isinstance(module, real.CUmodule) and int(module) in self.modules and isinstance(name, bytes)
        self.begin("cuModuleGetFunction")
        function = self.number()
        self.functions[function] = name.decode()
        self.allowed[function] = 48 << 10
        return OK, real.CUfunction(function)

    def cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> tuple[Any]:
        assert isinstance(attribute, real.CUfunction_attribute) and int(function) in self.functions
        status = self.begin("cuFuncSetAttribute")
        if value > self.attributes["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"]:
            return (INVALID,)
        self.allowed[int(function)] = value
        return (status,)

    def read(self, function: int, pointers: int, **shape: Any) -> Launch:
        """The parameters as a driver copies them at the time of the call."""
        symbol = self.functions[function]
        assert shape["shared"] <= self.allowed[function], f"{symbol} was not allowed {shape['shared']} bytes"
        sizes = self.layouts[symbol]
        addresses = (ctypes.c_uint64 * len(sizes)).from_address(pointers)
        args: list[Any] = []
        for size, address in zip(sizes, addresses):
            assert address % min(size, 64) == 0
            data = ctypes.string_at(address, size)
            args.append(int.from_bytes(data, "little", signed=True) if size == 8 else data)
        return Launch(symbol, args=tuple(args), **shape)

    def refuses(self, launch: Launch) -> bool:
        """True if no hardware takes the launch: its grid, its block or its cluster is out of range."""
        x, y, z = launch.grid
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        cluster = launch.cluster or (1, 1, 1)
        return (
            not (1 <= x < 1 << 31 and 1 <= y <= 65535 and 1 <= z <= 65535)
            or not 1 <= threads <= 1024
            or launch.block[2] > 64
            or any(g % c for g, c in zip(launch.grid, cluster))
            or cluster[0] * cluster[1] * cluster[2] > 8
        )

    def execute(self, launch: Launch) -> None:
        self.launches.append(launch)
        if launch.symbol in self.kernels:
            self.kernels[launch.symbol](launch)

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: int, extra: int) -> tuple[Any]:
        assert isinstance(config, real.CUlaunchConfig) and isinstance(function, real.CUfunction)
        status = self.begin("cuLaunchKernelEx")
        if status != OK:
            return (status,)
        cluster = None
        assert config.numAttrs == len(config.attrs or ())
        dependent = False
        for a in config.attrs or ():
            if a.id == real.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
                cluster = (a.value.clusterDim.x, a.value.clusterDim.y, a.value.clusterDim.z)
            else:
                assert a.id == real.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
                dependent = bool(a.value.programmaticStreamSerializationAllowed)
        launch = self.read(
            int(function),
            pointers,
            grid=(config.gridDimX, config.gridDimY, config.gridDimZ),
            block=(config.blockDimX, config.blockDimY, config.blockDimZ),
            shared=config.sharedMemBytes,
            cluster=cluster,
            stream=int(config.hStream),
            dependent=dependent,
        )
        if self.refuses(launch):
            return (INVALID,)
        self.execute(launch)
        return (OK,)

    # -- graphs ----------------------------------------------------------------------------------

    def cuGraphCreate(self, flags: int) -> tuple[Any, Any]:
        self.begin("cuGraphCreate")
        graph = self.number()
        self.graphs[graph] = Graph()
        return OK, real.CUgraph(graph)

    def add(self, name: str, graph: Any, after: Sequence[Any], count: int, what: Any) -> tuple[Any, Any]:
        assert isinstance(graph, real.CUgraph) and isinstance(after, list) and count == len(after)
        status = self.begin(name)
        if status != OK:
            return status, real.CUgraphNode(0)
        owner = self.graphs[int(graph)]
        assert all(isinstance(a, real.CUgraphNode) and int(a) in owner.nodes for a in after)
        node = self.number()
        owner.nodes.append(node)
        self.nodes[node] = Node(what, tuple(int(a) for a in after))
        return OK, real.CUgraphNode(node)

    def cuGraphAddKernelNode(self, graph: Any, after: Sequence[Any], count: int, params: Any) -> tuple[Any, Any]:
        made = self.kernel(params)
        if self.refuses(made):
            return INVALID, real.CUgraphNode(0)
        return self.add("cuGraphAddKernelNode", graph, after, count, made)

    def kernel(self, params: Any) -> Launch:
        assert isinstance(params, real.CUDA_KERNEL_NODE_PARAMS)
        return self.read(
            int(params.func),
            int(params.kernelParams),
            grid=(params.gridDimX, params.gridDimY, params.gridDimZ),
            block=(params.blockDimX, params.blockDimY, params.blockDimZ),
            shared=params.sharedMemBytes,
            cluster=None,
            stream=0,
        )

    def cuGraphAddMemcpyNode(self, graph: Any, after: Sequence[Any], count: int, params: Any, context: Any) -> tuple[Any, Any]:
        assert isinstance(context, real.CUcontext)
        return self.add("cuGraphAddMemcpyNode", graph, after, count, self.memcpy(params))

    def memcpy(self, params: Any) -> tuple[int, int, int]:
        assert isinstance(params, real.CUDA_MEMCPY3D) and params.Height == params.Depth == 1 and params.WidthInBytes > 0
        assert params.srcMemoryType == params.dstMemoryType == real.CUmemorytype.CU_MEMORYTYPE_DEVICE
        return int(params.srcDevice), int(params.dstDevice), params.WidthInBytes

    def cuGraphAddEmptyNode(self, graph: Any, after: Sequence[Any], count: int) -> tuple[Any, Any]:
        return self.add("cuGraphAddEmptyNode", graph, after, count, None)

    def cuGraphAddDependencies(
        self, graph: Any, before: Sequence[Any], after: Sequence[Any], edges: Sequence[Any], count: int
    ) -> tuple[Any]:
        """Edges by which a kernel begins while those before it end."""
        assert isinstance(graph, real.CUgraph) and count == len(before) == len(after) == len(edges)
        for source, target, edge in zip(before, after, edges):
            assert edge.type == real.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.value
            assert (edge.from_port, edge.to_port) == (real.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, 0)
            node = self.nodes[int(target)]
            assert isinstance(self.nodes[int(source)].what, Launch) and int(source) not in node.after
            node.after = (*node.after, int(source))
            node.what.dependent = True
        return (self.begin("cuGraphAddDependencies"),)

    def cuGraphKernelNodeSetAttribute(self, node: Any, attribute: Any, value: Any) -> tuple[Any]:
        assert isinstance(attribute, real.CUkernelNodeAttrID) and isinstance(value, real.CUkernelNodeAttrValue)
        self.begin("cuGraphKernelNodeSetAttribute")
        self.nodes[int(node)].what.cluster = (value.clusterDim.x, value.clusterDim.y, value.clusterDim.z)
        return (OK,)

    def cuGraphInstantiate(self, graph: Any, flags: int) -> tuple[Any, Any]:
        status = self.begin("cuGraphInstantiate")
        executable = self.number()
        self.executables[executable] = {n: Node(self.nodes[n].what, self.nodes[n].after) for n in self.graphs[int(graph)].nodes}
        return status, real.CUgraphExec(executable)

    def cuGraphExecKernelNodeSetParams(self, executable: Any, node: Any, params: Any) -> tuple[Any]:
        assert isinstance(executable, real.CUgraphExec) and isinstance(node, real.CUgraphNode)
        self.begin("cuGraphExecKernelNodeSetParams")
        now = self.executables[int(executable)][int(node)]
        made = self.kernel(params)
        assert made.symbol == now.what.symbol
        if self.refuses(made):
            return (INVALID,)
        made.cluster, made.dependent = now.what.cluster, now.what.dependent
        now.what = made
        return (OK,)

    def cuGraphExecMemcpyNodeSetParams(self, executable: Any, node: Any, params: Any, context: Any) -> tuple[Any]:
        assert isinstance(executable, real.CUgraphExec) and isinstance(context, real.CUcontext)
        self.begin("cuGraphExecMemcpyNodeSetParams")
        self.executables[int(executable)][int(node)].what = self.memcpy(params)
        return (OK,)

    def cuGraphLaunch(self, executable: Any, stream: Any) -> tuple[Any]:
        """Nodes run as late as their dependants allow, the last added first, so that a missing edge shows."""
        assert isinstance(executable, real.CUgraphExec) and isinstance(stream, real.CUstream)
        status = self.begin("cuGraphLaunch")
        nodes = self.executables[int(executable)]
        waiting = list(nodes)
        done: set[int] = set()
        while waiting:
            node = next(n for n in reversed(waiting) if set(nodes[n].after) <= done)
            waiting.remove(node)
            done.add(node)
            what = nodes[node].what
            if isinstance(what, Launch):
                what.stream = int(stream)
                self.execute(what)
            elif what is not None:
                self.copy(what[1], what[0], what[2])
        return (status,)

    def cuGraphExecDestroy(self, executable: Any) -> tuple[Any]:
        del self.executables[int(executable)]
        return (self.begin("cuGraphExecDestroy"),)

    def cuGraphDestroy(self, graph: Any) -> tuple[Any]:
        del self.graphs[int(graph)]
        return (self.begin("cuGraphDestroy"),)

    # -- tensor maps -----------------------------------------------------------------------------

    @property
    def library(self) -> FakeLibrary:
        """The functions that take addresses of the caller's memory."""
        return FakeLibrary(self)


class FakeLibrary:
    """The functions of libcuda that write a tensor map, with what the driver's manual says that they refuse."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver

    def cuTensorMapEncodeTiled(
        self, to: Any, dtype: int, rank: int, address: Any, dims: Any, strides: Any, box: Any, steps: Any, *modes: int
    ) -> int:
        status = self.driver.begin("cuTensorMapEncodeTiled", context=False)
        sizes, pitches, tile, apart = (tuple(x) for x in (dims, strides, box, steps))
        refused = not len(dims) == len(box) == len(steps) == rank == len(strides) + 1
        refused |= any(not 1 <= b <= 256 for b in tile)
        refused |= self.refuses(to, dtype, rank, address.value, (sizes, pitches, apart), tile[0], modes)
        return int(INVALID) if refused else self.write(to, status, dtype, address, sizes, pitches, tile, modes[1], None)

    def cuTensorMapEncodeIm2col(
        self, to: Any, dtype: int, rank: int, address: Any, dims: Any, strides: Any, lower: Any, upper: Any, channels: int,
        pixels: int, steps: Any, *modes: int,
    ) -> int:  # fmt: skip
        status = self.driver.begin("cuTensorMapEncodeIm2col", context=False)
        sizes, pitches, apart = (tuple(x) for x in (dims, strides, steps))
        refused = rank < 3 or not len(lower) == len(upper) == rank - 2 == len(dims) - 2
        refused |= not 1 <= channels <= 256 or not 1 <= pixels <= 1024
        bound = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}.get(rank, 0)
        refused |= any(not -bound <= c < bound for c in (*lower, *upper))
        refused |= self.refuses(to, dtype, rank, address.value, (sizes, pitches, apart), channels, modes)
        window = Window(tuple(lower), tuple(upper), apart[1:-1])
        made = (channels, pixels)
        return int(INVALID) if refused else self.write(to, status, dtype, address, sizes, pitches, made, modes[1], window)

    def refuses(self, to: Any, dtype: int, rank: int, address: int, sizes: Any, inner: int, modes: tuple[int, ...]) -> bool:
        """True if the manual forbids these numbers, for maps of either kind."""
        dims, strides, steps = sizes
        kind = real.CUtensorMapDataType(dtype).name.rsplit("_", 1)[1]
        size = {"UINT8": 1, "UINT16": 2, "FLOAT16": 2, "BFLOAT16": 2, "INT64": 8, "UINT64": 8, "FLOAT64": 8}.get(kind, 4)
        span = {0: None, 1: 32, 2: 64, 3: 128}[modes[1]]
        return (
            to.value % 64 != 0
            or not 1 <= rank <= 5
            or address % 16 != 0
            or any(not 1 <= d <= 1 << 32 for d in dims)
            or any(s % 16 or s >= 1 << 40 for s in strides)
            or any(not 1 <= s <= 8 for s in steps)
            or inner * size % 16 != 0
            or (span is not None and inner * size > span)
            or modes[0] != 0
        )

    def write(self, to: Any, status: Any, dtype: int, address: Any, *rest: Any) -> int:
        """A map whose words are its number and ones, so that a cleared bit shows."""
        *what, swizzle, window = rest
        self.driver.maps.append(
            (real.CUtensorMapDataType(dtype), address.value, *what, real.CUtensorMapSwizzle(swizzle), window)
        )
        words = (ctypes.c_uint64 * 16).from_address(to.value)
        words[:] = [len(self.driver.maps), *[(1 << 64) - 1] * 15]
        return int(status)
