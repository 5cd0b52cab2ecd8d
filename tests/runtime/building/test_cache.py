import os
import shutil
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from tatami.runtime.building.cache import Cache, content_key, default_cache, open_cache

KEY = content_key(("one",))


def entry(cache: Cache, key: str = KEY) -> Path:
    assert cache.root is not None
    return cache.root / key[:2] / key[2:]


def test_keys_do_not_run_together() -> None:
    assert content_key(("ab", "c")) != content_key(("a", "bc"))


def test_what_is_stored_is_found(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "c")
    assert cache.get(KEY) is None
    cache.put(KEY, b"body")
    assert cache.get(KEY) == b"body"
    assert open_cache(tmp_path / "c").get(KEY) == b"body"


def test_the_folder_is_ours_alone(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "c")
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    assert not cache.diagnostics


@pytest.mark.parametrize("keep", [0, 5, 20, 100, 140, 150])
def test_a_truncated_entry_is_a_miss(tmp_path: Path, keep: int) -> None:
    cache = open_cache(tmp_path / "c")
    cache.put(KEY, b"body" * 10)
    path = entry(cache)
    path.write_bytes(path.read_bytes()[:keep])
    assert cache.get(KEY) is None
    assert not path.exists()
    assert [d.code for d in cache.diagnostics] == ["W2701"]


def test_any_flipped_byte_is_a_miss(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "c")
    cache.put(KEY, b"body")
    good = entry(cache).read_bytes()
    for i in range(len(good)):
        entry(cache).write_bytes(good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :])
        assert cache.get(KEY) is None


def test_an_entry_under_another_key_is_a_miss(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "c")
    cache.put(KEY, b"body")
    other = content_key(("two",))
    cache.put(other, b"other")
    entry(cache).write_bytes(entry(cache, other).read_bytes())
    assert cache.get(KEY) is None


def test_a_folder_others_can_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    cache = open_cache(folder)
    assert cache.root != folder
    assert "mode 777" in cache.diagnostics[0].why
    cache.put(KEY, b"body")
    assert cache.get(KEY) == b"body"
    assert list(folder.iterdir()) == []


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert "symbolic link" in open_cache(tmp_path / "link").diagnostics[0].why


def test_a_foreign_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "c"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "belongs to user" in open_cache(folder).diagnostics[0].why


def test_a_write_that_fails_leaves_nothing_and_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = open_cache(tmp_path / "c")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache.put(KEY, b"body")
    cache.put(KEY, b"body")
    assert cache.get(KEY) is None
    assert len(cache.diagnostics) == 1
    assert not [p for p in (tmp_path / "c").rglob("*") if p.is_file()]


def test_the_oldest_entries_go_when_the_limit_is_passed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c", size_limit=5000)
    keys = [content_key((str(i),)) for i in range(10)]
    for i, key in enumerate(keys):
        cache.put(key, b"x" * 1000)
        if entry(cache, key).exists():
            os.utime(entry(cache, key), (i, i))
    assert cache.get(keys[0]) is None
    assert cache.get(keys[-1]) is not None


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path / "mine"))
    assert default_cache().root == tmp_path / "mine"


def test_memory_serves_without_a_folder() -> None:
    cache = Cache(None)
    cache.put(KEY, b"body")
    assert cache.get(KEY) == b"body"


@pytest.mark.parametrize("umask", [0o022, 0o002, 0])
def test_folders_are_made_for_their_owner_alone(tmp_path: Path, umask: int) -> None:
    """Folders of the cache, their missing parents and entries are made so at first and after they have vanished."""
    before = os.umask(umask)
    try:
        cache = open_cache(tmp_path / "a" / "b" / "c")
        for _ in range(2):
            cache.put(KEY, b"body")
            assert cache.get(KEY) == b"body"
            made = list(tmp_path.rglob("*"))
            assert len(made) == 5
            assert not [p for p in made if stat.S_IMODE(p.stat().st_mode) & 0o077]
            assert open_cache(tmp_path / "a" / "b" / "c").root == cache.root
            shutil.rmtree(tmp_path / "a")
    finally:
        os.umask(before)


def test_an_entry_that_is_no_plain_file_is_a_miss(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "c")
    cache.put(KEY, b"body")
    path = entry(cache)
    real = tmp_path / "real"
    path.rename(real)
    os.mkfifo(path)
    assert cache.get(KEY) is None
    path.unlink()
    path.symlink_to(real)
    assert cache.get(KEY) is None
    assert [d.code for d in cache.diagnostics] == ["W2701"]
    cache.put(KEY, b"body")
    assert cache.get(KEY) == b"body"


def test_an_entry_that_others_can_write_is_a_miss(tmp_path: Path) -> None:
    """The folder is looked at once; whoever made it anew in the meantime could have put machine code there."""
    cache = open_cache(tmp_path / "c")
    cache.put(KEY, b"body")
    entry(cache).chmod(0o666)
    assert cache.get(KEY) is None
    assert "mode 666" in cache.diagnostics[0].why


@pytest.mark.parametrize("kind", ["device", "folder", "sparse", "sparse with a head", "socket"])
def test_what_lies_in_the_place_of_an_entry_is_a_miss_at_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = open_cache(tmp_path / "c")
    cache.put(KEY, b"body")
    path = entry(cache)
    head = path.read_bytes()[:-4]
    path.unlink()
    if kind == "device":
        path.symlink_to("/dev/zero")
        if os.geteuid() == 0:
            path.unlink()
            try:
                os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
            except OSError:
                path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        monkeypatch.chdir(path.parent)  # an address has some hundred characters at most
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    else:
        with path.open("wb") as file:
            file.write(head if kind == "sparse with a head" else b"")
            file.truncate(100 << 30)
    start = time.perf_counter()
    assert cache.get(KEY) is None
    assert time.perf_counter() - start < 1
    assert [d.code for d in cache.diagnostics] == ["W2701"]
    cache.put(KEY, b"body")
    assert cache.get(KEY) == (None if kind == "folder" else b"body")
    assert not list(path.parent.glob(".new-*"))


def test_the_folder_may_vanish_at_any_moment(tmp_path: Path) -> None:
    """One thread removes it again and again while others read and write."""
    cache = open_cache(tmp_path / "c")
    end = time.monotonic() + 2
    found: list[bytes | None] = []

    def use(name: int) -> None:
        while time.monotonic() < end:
            key = f"{name:064x}"
            cache.put(key, b"body")
            found.append(cache.get(key))

    threads = [threading.Thread(target=use, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    while time.monotonic() < end:
        shutil.rmtree(tmp_path / "c", ignore_errors=True)
    for t in threads:
        t.join()
    assert set(found) <= {None, b"body"} and b"body" in found
    cache.put(KEY, b"body")
    assert cache.get(KEY) == b"body"
