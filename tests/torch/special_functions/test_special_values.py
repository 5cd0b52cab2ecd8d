"""A share of the grid of special values."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

from tests.torch.special_functions.special_values import DTYPES, KINDS, Case, check, check_all, line  # noqa: E402


@pytest.mark.parametrize("kind", KINDS)
def test_special_values_are_as_in_eager(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not list(check_all([kind], DTYPES, [], (7, 30)))


NAMED = ["floor_divide", "remainder", "fmod", "clamp", "maximum", "max", "argmax", "argmin", "sort", "topk", "median", "hypot"]


def test_what_reports_were_about() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not list(check_all(["binary", "reduction", "bounds"], DTYPES[:1], NAMED, (0, 1)))


def test_a_difference_is_seen() -> None:
    is_compiling = torch.compiler.is_compiling
    case = Case("wrong", lambda x: x.nan_to_num(1.0) if is_compiling() else x.nan_to_num(2.0), (line(torch.float32),))
    assert [name for name, _ in check([case])] == ["wrong"]
