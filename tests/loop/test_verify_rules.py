"""Each rule of the verifier of loop programs, with a body that breaks it and nothing else, and bodies that break none."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import msgspec
import pytest

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, var
from tatami.core.kernel import Binding, KernelFace, KernelParam
from tatami.core.module import Module
from tatami.indexbook.ir import Guard
from tatami.loop.ir import (
    Across,
    Assign,
    BufferParam,
    Call,
    Cast,
    Const,
    Declare,
    Fault,
    FirstLane,
    Fma,
    For,
    Function,
    Gather,
    Horizontal,
    If,
    IndexOf,
    Integer,
    IntegerParam,
    Kernel,
    Lane,
    LaneRange,
    Load,
    LocalBuffer,
    Op,
    Parallel,
    Pointer,
    Prefetch,
    Program,
    Random,
    Reg,
    SetLane,
    Shift,
    Splat,
    Stmt,
    Store,
    Unzip,
    UserRoutine,
    Value,
    Within,
    Zip,
    type_of,
)
from tatami.loop.verify import LANES, MOST_SIZES, is_c_name, is_routine, verify, verify_kernel

F32, F64, I64, BOOL, U64 = DType.fp32, DType.fp64, DType.i64, DType.bool, DType.u64
zero, one, away = expr(0), expr(1), var("q")
PARAMS: Final = (BufferParam("p0", F32), BufferParam("p1", I64), BufferParam("p2", F32, written=True))


def kernel_with(*body: Stmt, user: UserRoutine | None = None, functions: tuple[Function, ...] = (), sizes: int = 1) -> Kernel:
    face = KernelFace("k", tuple(KernelParam(p.dtype, p.written) for p in PARAMS), sizes, "0")
    return Kernel(face, PARAMS, body, functions, user=user)


def faults(*body: Stmt, **others: object) -> list[str]:
    return [d.why for d in verify_kernel(kernel_with(*body, **others))]  # type: ignore[arg-type]


def let(value: Value, name: str = "v") -> Declare:
    """A register of the value's own type."""
    t = type_of(value)
    return Declare(Reg(name, t.dtype, t.lanes), value)


def load(lanes: int = 4, active: Expr | None = None) -> Load:
    return Load("p0", zero, F32, lanes, active)


number = Const(1, F32)
vector = Splat(number, 4)
mask = LaneRange(zero, one, 4)
positions = Reg("at", I64, 4)
many: Final = tuple(Assign(Reg(f"r{k}", F32), number) for k in range(30))

WRONG: Final = MappingProxyType(
    {
        "a register of another type than its value": ((Declare(Reg("v", F32, 2), vector),), "v is fp32x2, its value fp32x4"),
        "a register without a name for C": ((Declare(Reg("int", F32), number),), "'int' is not a name for C"),
        "a register named as a size": ((Declare(Reg("s0", F32), number),), "s0 is declared twice"),
        "an index register of another type": (
            (Declare(Reg("v", DType.i32), IndexOf(zero, DType.i32), integer=True),),
            "index register v is not one i64",
        ),
        "an index register of lanes": ((Declare(Reg("v", I64, 2), Splat(Const(1, I64), 2), integer=True),), "is not one i64"),
        "an assigned value of another type": ((let(number), Assign(Reg("v", F32), Const(1, F64))), "v is fp32x1, its value fp64x1"),
        "a lane of an undeclared register": ((SetLane(Reg("v", F32, 4), zero, number),), "v is used where it is not declared"),
        "a lane at an index out of scope": ((let(vector), SetLane(Reg("v", F32, 4), away, number)), "index q names q"),
        "a lane of another type": ((let(vector), SetLane(Reg("v", F32, 4), zero, vector)), "v is fp32x1, its value fp32x4"),
        "a store of another type": ((Store("p2", zero, Const(1, F64)),), "fp64 is stored in p2 of fp32"),
        "active lanes of a vector that there is not": ((Store("p2", zero, load(3), one),), "a vector of 3 elements"),
        "active lanes of one stored element": ((Store("p2", zero, number, one),), "p2 is stored one element at a time, and 1 lanes"),
        "a store of lanes out of scope": ((Store("p2", zero, vector, away),), "index q names q"),
        "a loop from out of scope": ((For("x", away, one, ()),), "index q names q"),
        "a loop to out of scope": ((For("x", zero, away, ()),), "index q names q"),
        "a loop without a name for C": ((For("for", zero, one, ()),), "'for' is not a name for C"),
        "a loop that goes back": ((For("x", zero, one, (), -1),), "loop x steps by -1"),
        "a fault in a loop": ((For("x", zero, one, (Fault(2),)),), "fault 2"),
        "a loop variable after the loop": ((For("x", zero, one, ()), let(IndexOf(var("x"), I64))), "index x names x"),
        "a register of an inner block after it": ((For("x", zero, one, (let(number),)), let(Reg("v", F32), "w")), "v is used where"),
        "a buffer of an inner block after it": (
            (For("x", zero, one, (LocalBuffer("b0", F32, one),)), let(Load("b0", zero, F32))),
            "buffer b0 does not exist",
        ),
        "a fault then": ((If(Within(()), (Fault(2),)),), "fault 2"),
        "a fault otherwise": ((If(Within(()), (), (Fault(2),)),), "fault 2"),
        "a scratch of a size out of scope": ((LocalBuffer("b0", F32, away),), "index q names q"),
        "a scratch without a name for C": ((LocalBuffer("b-0", F32, one),), "'b-0' is not a name for C"),
        "a function that is not there": ((Call("f", ()),), "function f does not exist"),
        "a routine that is not there": ((Call("system", (), routine=True),), "routine 'system' does not exist"),
        "a function called as a routine": ((Call("g", (), routine=True),), "routine 'g' does not exist"),
        "a pointer to nothing": ((Call("g", (Pointer("b9", zero),)),), "buffer b9 does not exist"),
        "a pointer out of scope": ((Call("g", (Pointer("p0", away),)),), "index q names q"),
        "an argument out of scope": ((Call("g", (Integer(away),)),), "index q names q"),
        "a prefetch of nothing": ((Prefetch("b9", zero),), "buffer b9 does not exist"),
        "a prefetch out of scope": ((Prefetch("p0", away),), "index q names q"),
        "a fault of another number": ((Fault(2),), "fault 2"),
        "threads without a name for C": ((Parallel("do", one, one, ()),), "'do' is not a name for C"),
        "threads of a count out of scope": ((Parallel("z", away, one, ()),), "index q names q"),
        "threads of a grain out of scope": ((Parallel("z", one, away, ()),), "index q names q"),
        "threads in a loop of threads": ((Parallel("z", one, one, (For("x", zero, one, (Parallel("y", one, one, ()),)),)),), "y is nested"),
        "a fault before the loop of a thread": ((Parallel("z", one, one, (), (Fault(2),)),), "fault 2"),
        "an index of a thread before its loop": (
            (Parallel("z", one, one, (), (let(IndexOf(var("z"), I64)),)),),
            "index z names z",
        ),
        "a register inside threads, by its number": (
            (Declare(Reg("v1", I64), IndexOf(one, I64), integer=True), Parallel("z", var("v1"), one, (let(IndexOf(var("v1"), I64)),))),
            "index v1 names v1",
        ),
        "a register inside threads, by its letter": (
            (Declare(Reg("sum", I64), IndexOf(one, I64), integer=True), Parallel("z", one, one, (let(IndexOf(var("sum"), I64)),))),
            "index sum names sum",
        ),
        "a read register that is not there": ((let(Reg("w", F32)),), "w is used where it is not declared"),
        "an index out of scope": ((let(IndexOf(away, I64)),), "index q names q"),
        "a step of lanes out of scope": ((let(IndexOf(zero, I64, 4, away)),), "index q names q"),
        "a read of nothing": ((let(Load("b9", zero, F32)),), "buffer b9 does not exist"),
        "a read out of scope": ((let(Load("p0", away, F32)),), "index q names q"),
        "active lanes of one element": ((let(load(1, one)),), "p0 is read one element at a time, and 1 lanes"),
        "a read of lanes out of scope": ((let(load(4, away)),), "index q names q"),
        "a read of another type": ((let(Load("p0", zero, F64)),), "p0 of fp32 is read as fp64"),
        "a read of 3 lanes": ((Declare(Reg("v", F32, 4), load(3)),), "a vector of 3 elements"),
        "gathered by a step out of scope": ((let(Gather("p0", zero, away, F32, 4)),), "index q names q"),
        "gathered in groups of 3": ((let(Gather("p0", zero, one, F32, 4, 3)),), "4 lanes in groups of 3"),
        "gathered in groups of -1": ((let(Gather("p0", zero, one, F32, 4, -1)),), "4 lanes in groups of -1"),
        "gathered in groups of 0": ((let(Gather("p0", zero, one, F32, 4, 0)),), "4 lanes in groups of 0"),
        "gathered at places that are not there": ((let(Gather("p0", zero, one, F32, 4, 1, positions)),), "at is used where"),
        "gathered at places of another type": (
            (let(Splat(number, 4), "at"), let(Gather("p0", zero, one, F32, 4, 1, Reg("at", F32, 4)))),
            "of fp32x4 positions",
        ),
        "gathered in groups at places": (
            (let(Splat(Const(1, I64), 4), "at"), let(Gather("p0", zero, one, F32, 4, 2, positions))),
            "4 lanes, each at a position of its own",
        ),
        "an operation that is not there": ((Declare(Reg("v", F32), Op("system", (number,))),), "there is no scalar op 'system'"),
        "a fault in an operation": ((let(Op("neg", (Reg("w", F32),))),), "w is used where"),
        "a fault in a cast": ((let(Cast(Reg("w", F32), F64)),), "w is used where"),
        "a fault in a splat": ((let(Splat(Reg("w", F32), 4)),), "w is used where"),
        "a fault in a lane": ((let(Lane(Reg("w", F32, 4), zero)),), "w is used where"),
        "a lane out of scope": ((let(Lane(vector, away)),), "index q names q"),
        "a fault in a horizontal": ((let(Horizontal("sum", Reg("w", F32, 4))),), "w is used where"),
        "lanes combined by a function of C": ((let(Horizontal("system", vector)),), "lanes are not combined by 'system'"),
        "a vector splat": ((let(Splat(vector, 4)),), "a vector is splat"),
        "a fault in a mask": ((let(FirstLane((Reg("w", BOOL, 4),))),), "w is used where"),
        "a fault in what is shifted": ((let(Shift(Reg("w", F32, 4), 1, vector)),), "w is used where"),
        "a fault in what is shifted in": ((let(Shift(vector, 1, Reg("w", F32, 4))),), "w is used where"),
        "a fault in the first of two": ((let(Zip(Reg("w", F32, 4), vector, False)),), "w is used where"),
        "a fault in the second of two": ((let(Unzip(vector, Reg("w", F32, 4), False)),), "w is used where"),
        "a fault in what follows": ((let(Across(vector, Reg("w", F32, 4), 1)),), "w is used where"),
        "a fault in a factor": ((let(Fma(Reg("w", F32), number, number)),), "w is used where"),
        "a factor of another type": ((Declare(Reg("v", F32), Fma(Const(1, F64), number, number)),), "times"),
        "another factor of another type": ((Declare(Reg("v", F32), Fma(number, Const(1, F64), number)),), "times"),
        "a guard out of scope": ((let(Within((Guard(away, one),))),), "index q names q"),
        "a guard of a size out of scope": ((let(Within((Guard(zero, away),))),), "index q names q"),
        "a mask from out of scope": ((let(LaneRange(away, one, 4)),), "index q names q"),
        "a mask to out of scope": ((let(LaneRange(zero, away, 4)),), "index q names q"),
        "a fault in a key": ((let(Random(Reg("w", U64), zero)),), "w is used where"),
        "a counter out of scope": ((let(Random(Const(1, U64), away)),), "index q names q"),
        "a shift by 4 of 4": ((Declare(Reg("v", F32, 4), Shift(vector, 4, vector)),), "4 lanes of fp32 move by 4"),
    }
)  # fmt: skip
g = Function("g", (BufferParam("c", F32), IntegerParam("n")), ())


@pytest.mark.parametrize("what", list(WRONG))
def test_a_broken_rule_is_the_one_fault(what: str) -> None:
    body, why = WRONG[what]
    found = faults(*body, functions=(g,))
    assert len(found) == 1 and why in found[0], found


@pytest.mark.parametrize(
    "body",
    [
        tuple(let(Splat(number, lanes), f"v{lanes}") for lanes in LANES[1:]),
        (let(IndexOf(var("s0"), I64)), Declare(Reg("i", I64), IndexOf(zero, I64), integer=True), let(load(4, var("i")), "w")),
        (let(vector), SetLane(Reg("v", F32, 4), var("s0"), number), Assign(Reg("v", F32, 4), load(4, var("s0")))),
        (Store("p2", var("s0"), vector, var("s0")), Prefetch("p0", zero), Fault(1)),
        (LocalBuffer("b0", F32, var("s0")), Parallel("z", one, one, (Store("b1", var("z"), Load("b0", var("begin"), F32)),), (LocalBuffer("b1", F32, one),))),
        (let(Splat(Const(1, I64), 4), "at"), let(Gather("p0", zero, var("s0"), F32, 4, 1, positions)), let(Gather("p0", zero, one, F32, 4, 4), "w")),
        tuple(let(Horizontal(fn, mask if fn in ("and", "or") else vector), f"v{k}") for k, fn in enumerate(("sum", "prod", "max", "min", "and", "or"))),
        (let(Zip(vector, load(), True)), let(Unzip(load(), vector, True), "w"), let(Across(load(), vector, 3), "x"), let(Shift(load(), -3, vector), "y")),
        (let(Random(Cast(Load("p1", zero, I64), U64), var("s0"), 4)), let(FirstLane((mask, mask)), "w"), let(Fma(vector, load(), vector), "x")),
        (If(Within((Guard(var("s0"), one),)), (let(number),), (let(number),)), let(Lane(vector, var("s0")), "w")),
        (Call("g", (Pointer("p0", var("s0")), Integer(var("s0")))), Call("tatami_sort", (Pointer("p0", zero),), routine=True)),
        (For("x", zero, var("s0"), (For("y", var("x"), one, ()),)), For("x", zero, one, ())),
    ],
)  # fmt: skip
def test_what_breaks_no_rule_is_accepted(body: tuple[Stmt, ...]) -> None:
    assert faults(*body, functions=(g,)) == []


def test_a_value_without_a_type_is_named_once() -> None:
    value = Op("add", (number, Const(1, F64)))
    assert len(faults(Store("p2", zero, value))) == 1
    assert len(faults(Declare(Reg("v", F32), Splat(value, 4)))) == 1


def test_a_register_has_as_many_elements_as_there_are_vectors_of() -> None:
    assert faults(Declare(Reg("v", F32, 3), vector))[0].startswith("register v of 3 elements")


def test_twenty_faults_are_enough() -> None:
    assert len(faults(*many)) == 20
    assert len(faults(*many[:19])) == 19


C_WORDS: Final = (  # noqa: SIM905
    "auto break case char const continue default do double else enum extern float for goto if inline int long register restrict "
    "return short signed sizeof static struct switch typedef union unsigned void volatile while asm typeof main"
).split()


@pytest.mark.parametrize("name", [*C_WORDS, "", "0a", "a b", "a;", "é", "a" * 65])
def test_names_that_C_text_may_not_hold(name: str) -> None:
    assert not is_c_name(name)


def test_names_that_C_text_may_hold() -> None:
    assert all(map(is_c_name, ("a", "_", "A0_z", "a" * 64, "integer")))


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("tatami_sort", True),
        ("tatami_sort_", False),
        ("tatami_pack_f32_16", True),
        ("tatami_pack_f32b16_16", True),
        ("tatami_pack_f64b16_8", False),
        ("tatami_tiles_i8u8", True),
        ("tatami_gemm_f32_1x16_16", True),
        ("tatami_gemm_f32_64x48_16", True),
        ("tatami_gemm_f32_65x16_16", False),
        ("tatami_gemm_f32_0x16_16", False),
        ("tatami_gemm_f32_2x1_1", True),
        ("tatami_gemm_f32_6x24_16", False),
        ("tatami_gemm_f32_6x0_16", False),
        ("tatami_gemm_f32_6x16_0", False),
        ("tatami_gemm_f32_6x7_2", False),
        ("tatami_gemm_f33_6x16_16", False),
        ("tatami_places3_i8x4vnni_6x16_16", True),
        ("tatami_places3_i8x4vnni_3x16_16", True),
        ("tatami_places3_i8x4vnni_2x16_16", False),
    ],
)
def test_routines_are_those_there_are(name: str, there: bool) -> None:
    assert is_routine(name) is there


def kernels(*named: tuple[str, Kernel], buffers: int = 3, sizes: int = 1) -> list[str]:
    binding = Binding("r", "k", ("t",) * buffers, (var("N"),) * sizes)
    return [d.why for d in verify(Module({"main": Program(dict(named), (binding,))}))]


def test_a_program_names_its_kernels_as_they_name_themselves() -> None:
    good = kernel_with()
    evil = msgspec.structs.replace(good, face=msgspec.structs.replace(good.face, symbol="int"))
    assert kernels(("k", good)) == []
    assert kernels(("j", good), ("k", good)) == ["the kernel is called 'k' inside"]
    assert kernels(("k", good), ("int", evil)) == ["the kernel is called 'int' inside", "'int' is not a name for C"]
    assert kernels(("k", kernel_with(Fault(2))))[0].startswith("fault 2")


@pytest.mark.parametrize(("buffers", "sizes"), [(2, 1), (4, 1), (3, 0), (3, 2)])
def test_a_binding_passes_neither_more_nor_less(buffers: int, sizes: int) -> None:
    assert kernels(("k", kernel_with()), buffers=buffers, sizes=sizes) == [f"passes {buffers} buffers and {sizes} sizes to k"]


def test_sizes_of_a_kernel_are_a_bounded_number() -> None:
    assert MOST_SIZES == 4096
    assert faults(sizes=-1) == ["-1 sizes"] and faults(sizes=4097) == ["4097 sizes"]
    assert faults(sizes=0) == [] and faults(sizes=4096) == []


def test_the_face_of_a_kernel_is_that_of_its_parameters() -> None:
    good = kernel_with()
    for params in (
        PARAMS[:2],
        (*PARAMS, PARAMS[2]),
        (*PARAMS[:2], BufferParam("p2", F64, True)),
        (*PARAMS[:2], BufferParam("p2", F32)),
    ):
        found = verify_kernel(msgspec.structs.replace(good, params=params))
        assert [d.why for d in found] == ["its face and its parameters are not of the same types"]


def test_names_of_a_kernel_are_names_for_C() -> None:
    good = kernel_with()
    replace = msgspec.structs.replace
    bad = [
        replace(good, face=replace(good.face, symbol="a b")),
        replace(good, params=(*PARAMS[:2], BufferParam("a b", F32, written=True))),
        replace(good, functions=(Function("a b", (), ()),)),
        replace(good, functions=(Function("f", (IntegerParam("a b"),), ()),)),
    ]
    assert [[d.why for d in verify_kernel(k)] for k in bad] == [["'a b' is not a name for C"]] * 4
    assert "`about`" in verify_kernel(replace(good, about="x */ int"))[0].why
    assert verify_kernel(replace(good, about="rows: 4 x 16, tile")) == []


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (Function("f", (), (Fault(2),)), "fault 2"),
        (Function("f", (BufferParam("c", F32),), (Store("c", zero, number),)), "input c is written"),
        (Function("f", (BufferParam("c", F64, True),), (Store("c", zero, number),)), "fp32 is stored in c of fp64"),
        (Function("f", (IntegerParam("n"),), (Call("h", ()), let(IndexOf(var("n"), I64)))), "function h does not exist"),
        (Function("f", (), (Store("p2", zero, number),)), "buffer p2 does not exist"),
        (Function("f", (), (let(IndexOf(var("s0"), I64)),)), "index s0 names s0"),
        (Function("f", (BufferParam("c", F32),), (let(IndexOf(var("c"), I64)),)), "index c names c"),
    ],
)
def test_functions_see_their_own_parameters(f: Function, why: str) -> None:
    found = faults(functions=(f,))
    assert len(found) == 1 and why in found[0]


def test_stores_past_the_caches_are_checked_after_the_rest() -> None:
    past = Store("p2", zero, number, nontemporal=True)
    assert ["nontemporal" in w for w in faults(past)] == [True]
    assert [w[:7] for w in faults(past, Fault(2))] == ["fault 2"]


def in_place(body: tuple[Stmt, ...], pair: tuple[int, int]) -> list[str]:
    kernel = kernel_with(*body, sizes=0)
    face = msgspec.structs.replace(kernel.face, in_place=(pair,))
    return [d.why for d in verify_kernel(msgspec.structs.replace(kernel, face=face))]


def test_a_parameter_in_the_place_of_another_is_proved() -> None:
    copy = Store("p2", zero, Load("p0", zero, F32))
    assert in_place((copy,), (0, 2)) == []
    assert in_place((copy,), (1, 2)) == [
        "parameter 2 may not take the place of parameter 1: it may be written before that is read"
    ]
    assert [w[:7] for w in in_place((copy, Fault(2)), (1, 2))] == ["fault 2"]


NAME: Final = "tatami_user_0123456789abcdef"


def user(name: str = NAME, counter: str = "i") -> UserRoutine:
    return UserRoutine(
        name, (BufferParam("a", F32),), (BufferParam("o", F32, True),), ("n",), (counter,), VerbatimCode("o[0] = a[0];")
    )


def called(*args: Pointer | Integer, by: UserRoutine | None = None, name: str = NAME) -> list[str]:
    return faults(Call(name, args, routine=True), user=by or user())


def test_a_routine_of_a_user_gets_what_it_takes() -> None:
    a, o, n = Pointer("p0", zero), Pointer("p2", zero), Integer(one)
    assert called(a, o, n) == []
    takes = f"routine {NAME} takes fp32, fp32 and 1 sizes, the call gives "
    assert called(a, n) == [takes + "fp32 and 1"]
    assert called(a, Pointer("p1", zero), n) == [takes + "fp32, i64 and 1"]
    assert called(a, o) == [takes + "fp32, fp32 and 0"]
    assert called(a, o, n, n) == [takes + "fp32, fp32 and 2"]
    assert called(name="tatami_user_0") == ["routine 'tatami_user_0' does not exist"]
    assert faults(Call(NAME, ()), user=user()) == [f"function {NAME} does not exist"]
    assert called(a, o, n, by=user(counter="a b")) == ["'a b' is not a name for C"]
    for field in ("inputs", "outputs"):
        odd = msgspec.structs.replace(user(), **{field: (BufferParam("a b", F32),)})
        assert faults(user=odd) == ["'a b' is not a name for C"]
    assert faults(user=user("tatami_user_x")) == ["'tatami_user_x' cannot name a routine of a user"]
