"""`tatami compile --wheel`: pip installs it where Tatami is not, and the model runs there with numpy alone."""

from __future__ import annotations

import csv
import hashlib
import io
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64decode
from pathlib import Path

import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.deploy.wheel import read_project, write_wheel
from tatami.frontend.graph import Graph
from tests.deploy.test_library import DIGITS
from tests.runtime.test_compiled_models import F32

RUN = """\
import sys
import numpy as np
import digits
assert "tatami" not in sys.modules and digits.__file__.startswith(sys.argv[1])
model = digits.Model(threads=2)
x = np.load(sys.argv[2])["image"]
y = model(image=x)["probability"]
assert np.array_equal(y, model(x)["probability"])
assert np.array_equal(model(x[::-2])["probability"], model(np.ascontiguousarray(x[::-2]))["probability"])
out = np.empty_like(y)
assert model.run({"image": x}, {"probability": out})["probability"] is out and np.array_equal(out, y)
for bad, words in (
    (dict(image=x.astype(np.float64)), "dtype float64"), (dict(image=x[0]), "rank 3"), (dict(image=x[:, :, :7]), "axis 2: the size is 7"),
    (dict(), "missing: ['image']"), (dict(image=x, other=x), "unknown: ['other']"),
):
    try:
        model(**bad)
    except digits.ModelError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
np.save(sys.argv[3], y)
"""


def digits_wheel(folder: Path) -> Path:
    return write_wheel(prepare(DIGITS, target="cpu:generic"), folder, read_project("digits==1.2"))


def installed(wheel: Path, folder: Path) -> Path:
    """The folder of packages that pip installs the wheel into, without what it needs."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def alone(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The code run by a Python that sees numpy and the installed wheel, and no Tatami."""
    numpy = folder / "numpy"
    if not numpy.exists():
        source = Path(np.__file__).parent
        numpy.symlink_to(source)
        if (libs := source.parent / "numpy.libs").exists():
            (folder / "numpy.libs").symlink_to(libs)
    start = f"import sys; sys.path.insert(0, {str(folder)!r}); exec(sys.stdin.read())"
    command = [sys.executable, "-I", "-S", "-c", start, *arguments]
    return subprocess.run(command, input=code, capture_output=True, text=True, env={}, cwd=folder, check=False)


def test_the_wheel_runs_without_tatami(tmp_path: Path) -> None:
    wheel = digits_wheel(tmp_path)
    folder = installed(wheel, tmp_path / "site")
    held_out = Path(DIGITS).with_name("held_out.npz")
    done = alone(folder, RUN, str(folder), str(held_out), str(tmp_path / "y.npy"))
    assert done.returncode == 0, done.stderr
    want = tt.compile(DIGITS, target="reference")(image=np.load(held_out)["image"])["probability"]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want, rtol=1e-3, atol=1e-5)
    assert alone(folder, "import tatami").returncode != 0


def test_the_wheel_is_as_packages_are(tmp_path: Path) -> None:
    wheel = digits_wheel(tmp_path)
    assert (
        wheel.name.startswith("digits-1.2-py3-none-linux_")
        and digits_wheel(tmp_path / "again").read_bytes() == wheel.read_bytes()
    )
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read("digits-1.2.dist-info/RECORD").decode()))}
        assert set(names) == set(rows)
        for name, (digest, size) in rows.items():
            if name.endswith("RECORD"):
                continue
            data = archive.read(name)
            assert int(size) == len(data)
            assert urlsafe_b64decode(digest.removeprefix("sha256=") + "=") == hashlib.sha256(data).digest()
        assert "Requires-Dist: numpy" in archive.read("digits-1.2.dist-info/METADATA").decode()


def test_a_state_is_updated_in_the_array_of_the_caller(tmp_path: Path) -> None:
    g = Graph()
    s, x = g.input("s", ("B", 8), F32, mutability="mutable"), g.input("x", ("B", 8), F32)
    g.update(s, s * 0.5 + x)
    g.output("y", x * 2.0)
    wheel = write_wheel(prepare(g, target="cpu:generic"), tmp_path, read_project("state-ful"))
    folder = installed(wheel, tmp_path / "site")
    code = """\
import numpy as np, state_ful
model = state_ful.Model()
s, x = np.ones((4, 8), np.float32), np.full((2, 8), 3, np.float32)
model.run({"s": s[::2], "x": x})
assert np.array_equal(s[::2], np.full((2, 8), 3.5)) and np.array_equal(s[1::2], np.ones((2, 8)))
model.run({"s": s[:2], "x": x})
assert s[0, 0] == 4.75 and s[1, 0] == 3.5
both = np.ones((3, 8), np.float32)
for given, words in (({"s": both[:2], "x": both[1:]}, "shares memory"), ({"s": both[:2], "x": both[:2]}, "shares memory")):
    try:
        model.run(given)
    except state_ful.ModelError as error:
        assert words in str(error), error
    else:
        raise AssertionError
assert (both == 1).all()
for threads in (-1, 1 << 32, (1 << 32) + 1, 2.0, True, "2"):
    try:
        state_ful.Model(threads)
    except state_ful.ModelError as error:
        assert "threads" in str(error)
    else:
        raise AssertionError
s.flags.writeable = False
try:
    model.run({"s": s[:2], "x": x})
except state_ful.ModelError as error:
    assert "updated in place" in str(error)
else:
    raise AssertionError
"""
    done = alone(folder, code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-x",
        "x-",
        "a b",
        "../x",
        "x/y",
        "x\n",
        "é",
        "1x",
        "class",
        "json",
        "numpy",
        "Tatami",
        "x==",
        "x==1;2",
        "x==../1",
        "x" * 70,
    ],
)
def test_names_that_are_no_packages_are_refused(text: str) -> None:
    with pytest.raises(TatamiError, match="InvalidAttribute"):
        read_project(text)


def test_names_of_packages_and_of_modules() -> None:
    found = read_project("My.Model-2==1.0rc1")
    assert (found.name, found.module, found.version) == ("My.Model-2", "my_model_2", "1.0rc1")
