"""Names of files, calling conventions and launches that C text may not have."""

from __future__ import annotations

import msgspec
import pytest

from tatami.c.abi import abi
from tatami.c.check_launches import check_launches
from tatami.c.ir import Source, Unit
from tatami.c.verify import verify
from tatami.core.custom.verbatim import NO_CODE
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.kernel import KernelFace, KernelParam
from tatami.core.module import Module
from tatami.execution.ir import ExecutionPlan, Launch, Ptr, SizeArg
from tatami.loop.ir import BufferParam, Kernel, Program
from tests.execution.test_verify_rules import a, buffer, launch, plan, port, run

replace = msgspec.structs.replace


def source(*units: str, convention: str = "") -> Source:
    return Source({u: Unit(NO_CODE) for u in units}, NO_CODE, convention or abi())


def test_names_of_units_are_names_of_files() -> None:
    good = source("k0.c", "a" * 120 + ".c")
    assert verify(Module({"main": good})) == []
    for name in ("../k.c", "k.h", ".c", "a" * 121 + ".c", "k c.c"):
        found = verify(Module({"main": good, "f": source(name)}))
        assert [d.at for d in found] == [f"f: {name[:80]!r}"]


def test_the_calling_convention_is_this_version_s() -> None:
    for convention, said in (("0", "0,"), ("", "unknown,")):
        old = replace(source("k0.c"), abi=convention)
        found = verify(Module({"main": source("k0.c"), "f": old}))
        assert [d.at for d in found] == ["f: abi"] and said in found[0].why


FACE = KernelFace("k", (KernelParam(DType.fp32, False), KernelParam(DType.fp32, True)), 1, "0")
KERNEL = Kernel(FACE, (BufferParam("p0", DType.fp32), BufferParam("p1", DType.fp32, True)), ())


def faults(main: ExecutionPlan, face: KernelFace = FACE) -> list[str]:
    loops = Module({"main": Program({"k": replace(KERNEL, face=face)}, ())})
    return [f"{d.at}: {d.why}" for d in check_launches(loops, Module({"main": main}))]


def launched(*args: str, sizes: int = 1, kernel: str = "k") -> ExecutionPlan:
    op = Launch(kernel, (*map(Ptr, args), *(SizeArg(var("N")) for _ in range(sizes))))
    return plan(run(op, "x", "y"), a, replace(buffer("i"), dtype=DType.i32))


def test_a_launch_passes_what_the_kernel_takes() -> None:
    assert faults(launched("x", "y")) == []
    assert faults(launched("x", "y", "a")) == []  # with a workspace
    named = faults(launched("x", "y", kernel="q"))
    assert named == ["main: step: there is no kernel 'q'"]


@pytest.mark.parametrize(
    ("args", "sizes"), [(("x",), 1), (("x", "i"), 1), (("i", "y"), 1), (("x", "y"), 0), (("x", "y"), 2), (("x", "y", "a", "a"), 1), ((), 1)]
)  # fmt: skip
def test_another_launch_is_named(args: tuple[str, ...], sizes: int) -> None:
    (found,) = faults(launched(*args, sizes=sizes))
    assert "k takes 2 buffers (fp32, fp32) and 1 sizes; the launch passes" in found


def test_a_buffer_takes_the_place_that_the_kernel_gives() -> None:
    main = plan(launch("x", "a", 0), launch("a", "b", 1), launch("b", "y", 2), a, replace(buffer("b"), in_place_of="a"))
    free = replace(FACE, sizes=0, in_place=((0, 1),))
    assert faults(main, free) == []
    assert faults(main, replace(free, in_place=((1, 0),))) == faults(main, replace(free, in_place=())) != []
    assert "b takes the place of a, which k may still read" in faults(main, replace(free, in_place=()))[0]


def misplaced(of_x: int, of_z: int, *wanted: int, storage: str = "argument", swapped: bool = False) -> list[str]:
    """Faults of a launch over x and z of a kernel that wants its parameters at multiples of `wanted` bytes. `of_x`, `of_z`: bytes
    at multiples of which the signature promises that they lie."""
    names = ("z", "x") if swapped else ("x", "z")
    ports = (port("x", alignment=of_x, storage=storage), port("z", alignment=of_z, storage=storage))
    step = run(Launch("k", tuple(map(Ptr, (*names, "y")))), "x z", "y")
    main = plan(step, buffer("z", "input"), inputs=ports, ids="x z")
    face = KernelFace("k", tuple(KernelParam(DType.fp32, n == 2) for n in range(3)), 0, "0")
    params = tuple(BufferParam(f"p{n}", DType.fp32, n == 2, alignment=a) for n, a in enumerate(wanted))
    loops = Module({"main": Program({"k": Kernel(face, params, ())}, ())})
    return [d.why for d in check_launches(loops, Module({"main": main}))]


def test_a_kernel_relies_on_addresses_that_the_signature_promises() -> None:
    assert (
        misplaced(64, 0, 64, 0, 0) == misplaced(64, 32, 32, 16, 0) == misplaced(0, 0, 0, 0, 0) == misplaced(0, 0, 1, 1, 0) == []
    )
    assert misplaced(64, 0, 0, 64, 0, swapped=True) == []
    said = ["k reads p0 at multiples of {} bytes, which nothing says of x"]
    for of_x, of_z, wanted in ((32, 64, 64), (0, 64, 64), (0, 0, 2), (64, 64, -1)):
        assert misplaced(of_x, of_z, wanted, 0, 0) == [said[0].format(wanted)]
    assert misplaced(64, 0, 64, 0, 0, swapped=True) == ["k reads p0 at multiples of 64 bytes, which nothing says of z"]
    assert misplaced(64, 0, 0, 64, 0) == ["k reads p1 at multiples of 64 bytes, which nothing says of z"]
    assert misplaced(64, 0, 0, 0, 64) == ["k reads p2 at multiples of 64 bytes, which nothing says of y"]


def test_constants_lie_where_the_pool_puts_them() -> None:
    assert misplaced(64, 64, 64, 0, 0, storage="const_pool") == ["k reads p0 at multiples of 64 bytes, which nothing says of x"]


def test_an_unnamed_step_is_counted() -> None:
    main = replace(
        launched("x", "y", kernel="q"), instructions=(replace(launched("x", "y", kernel="q").instructions[0], debug_name=""),)
    )
    assert faults(main) == ["main: instruction 0: there is no kernel 'q'"]
