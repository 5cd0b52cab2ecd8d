"""Files of arrays that are not what numpy writes: refused by their first bytes."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tatami.core.files.array_file import MAX_HEADER, UNREADABLE, ArrayArchive, header_of, read_array_file, reason
from tatami.core.files.plain_file import open_plain, read_plain


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_writes_is_read(tmp_path: Path, version: tuple[int, int], order: str) -> None:
    array = np.asarray(np.arange(24, dtype=">i4").reshape(2, 3, 4), order=order)  # type: ignore[call-overload]
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version)
    (tmp_path / "a.npy").write_bytes(out.getvalue())
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", out.getvalue())
    found = header_of(tmp_path / "a.npy")
    assert (found.dtype, found.shape, found.data_bytes) == (array.dtype, array.shape, 96)
    assert (read_array_file(tmp_path / "a.npy") == array).all()
    with ArrayArchive(tmp_path / "a.npz") as opened:
        assert opened.names == ("x",)
        assert opened.header("x") == found
        assert (opened.read("x") == array).all()


def damaged(what: str) -> bytes:
    out = io.BytesIO()
    np.save(out, np.zeros(3, np.float32))
    whole = out.getvalue()
    match what:
        case "long header":  # its length is 32 bits wide: numpy reads so many before it looks
            return b"\x93NUMPY\x02\x00" + (MAX_HEADER + 1).to_bytes(4, "little") + bytes(MAX_HEADER + 1)
        case "unknown version":
            return whole.replace(b"NUMPY\x01\x00", b"NUMPY\x01\x01")
        case "data missing":
            return whole[:-1]
        case "shape too large":
            return whole.replace(b"(3,), }" + b" " * 12, b"(1099511627776,), }")
        case "negative":
            return whole.replace(b"(3,), }" + b" ", b"(-3,), }")
        case "objects":
            return whole.replace(b"'<f4'", b"'|O' ")
        case "nested":
            return whole.replace(b"\x76\x00{", b"\xf4\x1f{").replace(b"(3,), }" + b" " * 55, b"(" * 8112)
        case "no literal":
            return whole.replace(b"(3,), }", b"(3,)}}}")
    return whole[: {"empty": 0, "cut magic": 5, "cut length": 9, "cut header": 30}[what]]


@pytest.mark.parametrize(
    "what",
    [
        "long header",
        "unknown version",
        "data missing",
        "shape too large",
        "negative",
        "objects",
        "nested",
        "no literal",
        "empty",
        "cut magic",
        "cut length",
        "cut header",
    ],
)
def test_a_damaged_header_is_refused(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = damaged(what)
    (tmp_path / "a.npy").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", data)
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: 1 // 0)
    with pytest.raises(UNREADABLE) as error:
        read_array_file(tmp_path / "a.npy")
    assert not isinstance(error.value, ZeroDivisionError) and reason(error.value)
    with ArrayArchive(tmp_path / "a.npz") as opened, pytest.raises(UNREADABLE):
        opened.read("x")


def test_an_archive_packed_in_another_way_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x.npy", damaged("data missing") + b"\0")
    with ArrayArchive(tmp_path / "a.npz") as opened, pytest.raises(ValueError, match="numpy does not use"):
        opened.read("x")


def test_only_plain_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_plain(tmp_path / "file", follow=False) == read_plain(tmp_path / "link") == b"data"
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path, tmp_path / "none"):
        with pytest.raises(OSError):
            open_plain(path)
    with pytest.raises(OSError):
        open_plain(tmp_path / "link", follow=False)
