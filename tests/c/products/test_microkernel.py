import ctypes

import ml_dtypes
import numpy as np
import pytest

from tatami.c.products.microkernel import panel_units, routine_unit
from tatami.runtime.building.objects import Unit, build, load
from tatami.runtime.machine.host import detect_host

CASES = [
    ("f32", np.float32, 12, 32, 16),
    ("f32", np.float32, 6, 16, 8),
    ("f64", np.float64, 12, 16, 8),
    ("f32", np.float32, 4, 8, 4),
]


def routine(name: str):
    unit = routine_unit(name)
    assert unit is not None
    return exported(name, (Unit(unit.text, unit.contract),))


def exported(name: str, units: tuple[Unit, ...]):
    texts = [u.text.replace(f"int {name}(", f'__attribute__((visibility("default"))) int {name}(') for u in units]
    built = build(tuple(Unit(t, u.contract) for t, u in zip(texts, units)), detect_host())
    function = getattr(load(built), name)

    def call(arrays: tuple[np.ndarray, ...], *sizes: int) -> int:
        pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        return int(function(pointers, (ctypes.c_int64 * len(sizes))(*sizes)))

    return call


def aligned(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    size = int(np.prod(shape))
    raw = np.zeros(size * np.dtype(dtype).itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size * np.dtype(dtype).itemsize].view(dtype).reshape(shape)


def panels(a: np.ndarray, mr: int) -> np.ndarray:
    rows, _ = a.shape
    count = -(-rows // mr)
    parts = [a[rows * p // count : rows * (p + 1) // count].T.ravel() for p in range(count)]
    return np.concatenate(parts) if parts else np.zeros(1, a.dtype)


@pytest.mark.parametrize(("element", "dtype", "mr", "nr", "lanes"), CASES)
def test_every_row_count_and_depth_agrees_with_numpy(element: str, dtype: type, mr: int, nr: int, lanes: int) -> None:
    run = routine(f"tatami_gemm_{element}_{mr}x{nr}_{lanes}")
    rng = np.random.default_rng(0)
    for rows in [*range(1, mr + 1), 2 * mr + 1, 5 * mr - 1]:
        for kc in (0, 1, 3, 4, 7, 33):
            a: np.ndarray = rng.standard_normal((rows, kc)).astype(dtype)
            b = aligned((max(kc, 1), nr), dtype)
            b[:kc] = rng.standard_normal((kc, nr))
            c = aligned((rows, nr), dtype)
            c[...] = 7
            packed = panels(a, mr)
            assert run((packed, b, c), rows, kc, 0, kc) == 0
            np.testing.assert_allclose(c, a @ b[:kc], rtol=1e-4, atol=1e-5)
            half = kc // 2
            assert run((packed, b, c), rows, kc, 0, half) == 0
            assert run((packed, b[half:], c), rows, kc, half, kc) == 0
            if half:
                np.testing.assert_allclose(c, a @ b[:kc], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("element", "dtype", "mr", "nr", "lanes"), CASES)
def test_operands_and_results_may_be_parts_of_wider_matrices(element: str, dtype: type, mr: int, nr: int, lanes: int) -> None:
    shape = f"{element}_{mr}x{nr}_{lanes}"
    into, lies = routine(f"tatami_into_{shape}"), routine(f"tatami_lies_{shape}")
    rng = np.random.default_rng(0)
    for rows in (*range(1, mr + 1), 5 * mr - 1):
        for depth in (1, 6, 33):
            a: np.ndarray = rng.standard_normal((rows, depth)).astype(dtype)
            b: np.ndarray = rng.standard_normal((depth, nr + 7)).astype(dtype)
            wanted = np.full((rows, nr + 5), 7, dtype)
            wanted[:, 3 : nr + 3] = a @ b[:, 2 : nr + 2]
            half = depth // 2
            for run, given, size in ((into, panels(a, mr), depth), (lies, a, depth)):
                c = np.full_like(wanted, 7)
                for k0, k1 in ((0, half), (half, depth)) if half else ((0, depth),):
                    assert run((given, b[k0:, 2:], c[:, 3:]), rows, size, k0, k1, b.shape[1], c.shape[1]) == 0
                np.testing.assert_allclose(c, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("element", "dtype", "mr", "nr", "lanes"), CASES)
def test_rows_may_begin_where_a_table_says(element: str, dtype: type, mr: int, nr: int, lanes: int) -> None:
    run = routine(f"tatami_table_{element}_{mr}x{nr}_{lanes}")
    rng = np.random.default_rng(0)
    b: np.ndarray = rng.standard_normal(400).astype(dtype)
    for rows in (*range(1, mr + 1), 5 * mr - 1):
        for depth in (1, 6, 33):
            a: np.ndarray = rng.standard_normal((rows, depth)).astype(dtype)
            table = rng.integers(0, 400 - nr, depth)
            wanted = a @ np.stack([b[at : at + nr] for at in table])
            c = np.full((rows, nr), 7, dtype)
            for k0, k1 in ((0, depth // 2), (depth // 2, depth)) if depth > 1 else ((0, depth),):
                assert run((panels(a, mr), b, c, table), rows, depth, k0, k1) == 0
            np.testing.assert_allclose(c, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("element", "dtype", "mr", "nr", "lanes"), CASES)
def test_one_panel_of_rows_meets_any_number_of_columns(element: str, dtype: type, mr: int, nr: int, lanes: int) -> None:
    wide = routine(f"tatami_wide_{element}_{mr}x{nr}_{lanes}")
    rng = np.random.default_rng(0)
    for rows in range(1, mr + 1):
        for depth, columns in ((1, nr), (8, 1), (33, 3 * nr + 5), (19, 0), (0, nr + 1)):
            a: np.ndarray = rng.standard_normal((rows, depth)).astype(dtype)
            b: np.ndarray = rng.standard_normal((depth + 1, columns + 7)).astype(dtype)
            wanted: np.ndarray = np.full((rows, columns + 5), 7, dtype)
            wanted[:, 3 : columns + 3] = a @ b[:depth, 2 : columns + 2]
            half = depth // 2
            c = np.full_like(wanted, 7)
            for k0, k1 in ((0, half), (half, depth)) if half else ((0, depth),):
                sizes = (rows, depth, k0, k1, b.shape[1], c.shape[1], columns)
                assert wide((panels(a, mr), b[k0:, 2:], c[:, 3:]), *sizes) == 0
            np.testing.assert_allclose(c, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("element", "dtype", "lanes"),
    [
        ("f32", np.float32, 16),
        ("f32", np.float32, 8),
        ("f64", np.float64, 8),
        ("f32b16", ml_dtypes.bfloat16, 16),
        ("f32b16", ml_dtypes.bfloat16, 4),
        ("f32h16", np.float16, 8),
        ("f32i8", np.int8, 16),
        ("f32u8", np.uint8, 8),
    ],
)
def test_pack_transposes_and_writes_nothing_else(element: str, dtype: type, lanes: int) -> None:
    run = routine(f"tatami_pack_{element}_{lanes}")
    rng = np.random.default_rng(1)
    for columns in (1, 5, 8, 11, 12, 16, 17, 32):
        for kc in (0, 1, 15, 16, 17, 31, 48, 50):
            for pitch in {columns, 32}:
                source: np.ndarray = (rng.standard_normal((columns, kc + 3)) * 50 + 60).astype(dtype)
                to: np.ndarray = np.full(kc * pitch + 64, 9, np.float32 if element[:3] == "f32" else dtype)
                wanted = to.copy()
                if pitch >= columns:
                    wanted[: kc * pitch].reshape(kc, pitch)[:, :columns] = source[:, :kc].T
                assert run((to, source), columns, pitch, source.shape[1], kc) == 0
                np.testing.assert_array_equal(to, wanted)


@pytest.mark.parametrize(("element", "dtype", "nr", "lanes"), [("f32", np.float32, 16, 8), ("f64", np.float64, 8, 4)])
def test_slivers_are_copies_and_the_last_one_is_filled_up(element: str, dtype: type, nr: int, lanes: int) -> None:
    run = routine(f"tatami_slivers_{element}_4x{nr}_{lanes}")
    rng = np.random.default_rng(1)
    for rows in (0, 1, 3, 4, 9):
        for columns in (0, 1, nr - 1, nr, nr + 1, 3 * nr, 3 * nr + 5):
            source: np.ndarray = rng.standard_normal((rows + 1, columns + 7)).astype(dtype)
            slivers, each = -(-columns // nr), rows * nr + 24
            to: np.ndarray = np.full(slivers * each + 8, 9, dtype)
            wanted = to.copy()
            for s in range(slivers):
                own = source[:rows, 2 + s * nr : 2 + min(columns, (s + 1) * nr)]
                block = wanted[s * each : s * each + rows * nr].reshape(rows, nr)
                block[:] = 0
                block[:, : own.shape[1]] = own
            assert run((to, source[:, 2:]), rows, columns, source.shape[1], each) == 0
            np.testing.assert_array_equal(to, wanted)


def test_other_names_are_not_ours() -> None:
    assert routine_unit("tatami_sort") is None


def test_rows_that_are_known_need_few_heights_of_panels() -> None:
    name = "tatami_gemm_f32_4x8_4"
    units = panel_units(name, {0, 5, 9})
    assert list(units) == [f"{name}.c", f"{name}_2.c", f"{name}_3.c"]
    run = exported(name, tuple(Unit(u.text, u.contract) for u in units.values()))
    rng = np.random.default_rng(0)
    b = rng.standard_normal((6, 8)).astype(np.float32)
    for rows in (5, 9):
        a, c = rng.standard_normal((rows, 6)).astype(np.float32), np.zeros((rows, 8), np.float32)
        assert run((panels(a, 4), b, c), rows, 6, 0, 6) == 0
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
    refused = 3
    assert run((panels(b, 4), b, b), 4, 6, 0, 6) == refused
    assert panel_units(name, {0}) == panel_units("tatami_sort", {5}) == panel_units("tatami_pack_f32_16", {5}) == {}
