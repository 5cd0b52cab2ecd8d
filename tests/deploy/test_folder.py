"""`tatami compile --library`: the folder builds with one command, alone, and runs where there is nothing else."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import tatami as tt
from tatami.cli import main
from tatami.runtime.building.compiler import find_compiler, find_cxx_compiler
from tests.deploy.test_library import DIGITS

QEMU = next((q for n in ("qemu-aarch64-static", "qemu-aarch64") if (q := shutil.which(n))), None)
HASWELL = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
LINKED = ("-lm", "-pthread", "-Wl,-rpath,$ORIGIN")


def tatami(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["compile", *arguments])


def written(folder: Path, *options: str, target: str = "cpu:generic") -> set[str]:
    done = tatami(DIGITS, "-o", str(folder), "--library", "--target", target, *options)
    assert done.exit_code == 0, done.output
    names = {p.name for p in folder.iterdir()}
    assert names == {Path(line).name for line in done.stdout.splitlines()}
    return names


def shown(stdout: str) -> np.ndarray:
    found = re.fullmatch(r"probability \[3, 10\]:((?: \S+){8})\n", stdout)
    assert found is not None, stdout
    return np.array(found[1].split(), np.float32)


def wanted() -> np.ndarray:
    x = ((np.arange(3 * 64) % 129 - 64) / 64).astype(np.float32).reshape(3, 1, 8, 8)
    return tt.compile(DIGITS, target="reference")(image=x)["probability"].ravel()[:8]


@pytest.mark.parametrize("options", [(), ("--static",), ("--embed",), ("--static", "--embed")], ids=" ".join)
def test_the_examples_build_and_run_in_an_empty_environment(options: tuple[str, ...], tmp_path: Path) -> None:
    names = written(tmp_path, *options)
    library = "libmodel.a" if "--static" in options else "libmodel.so"
    constants = set() if "--embed" in options else {"constants.bin"}
    assert names == {library, "model.h", "CMakeLists.txt", "example.c", "example.cpp"} | constants
    for compiler, source in ((find_compiler(), "example.c"), (find_cxx_compiler(), "example.cpp")):
        command = [*compiler.argv, "-Wall", "-Wextra", "-Werror", source, library, *LINKED, "-o", f"./{source}.out"]
        subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./example.c.out", "3"], cwd=tmp_path, capture_output=True, text=True, check=True, env={})
    np.testing.assert_allclose(shown(done.stdout), wanted(), rtol=1e-3, atol=1e-8)
    done = subprocess.run(["./example.cpp.out"], cwd=tmp_path, capture_output=True, text=True, check=True, env={})
    assert done.stdout.startswith("probability: 40 bytes, first ")


def test_a_library_exports_its_interface_only(tmp_path: Path) -> None:
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("binutils are not installed")
    written(tmp_path)
    done = subprocess.run([nm, "-D", "--defined-only", "libmodel.so"], cwd=tmp_path, capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in done.stdout.splitlines()}
    declared = set(re.findall(r"\b(tatami_model_\w+)\(", (tmp_path / "model.h").read_text()))
    assert names == declared and len(names) == 10


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_the_folder_is_a_cmake_project_and_a_part_of_one(tmp_path: Path) -> None:
    written(tmp_path / "lib")
    (tmp_path / "lib" / "example.c").rename(tmp_path / "app.c")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(app LANGUAGES C CXX)\nadd_subdirectory(lib)\n"
        "add_executable(app app.c)\ntarget_link_libraries(app PRIVATE tatami_model)\n"
    )
    subprocess.run(["cmake", "-B", "build", "."], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", "build"], cwd=tmp_path, check=True, capture_output=True)
    command = ["build/app", "3", "lib/constants.bin", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env={})
    np.testing.assert_allclose(shown(done.stdout), wanted(), rtol=1e-3, atol=1e-8)


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")
def test_an_archive_for_another_machine(tmp_path: Path, zig_caches: dict[str, str]) -> None:
    written(tmp_path, "--static", "--libc", "musl", target="cpu:neon")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static"]
    subprocess.run(
        [*zig, "example.c", "libmodel.a", "-o", "example"], cwd=tmp_path, check=True, env={**os.environ, **zig_caches}
    )
    assert (tmp_path / "example").read_bytes()[18:20] == b"\xb7\x00"  # EM_AARCH64
    if QEMU is None:
        pytest.skip("compiled; no qemu-user to run it")
    done = subprocess.run([QEMU, "./example", "3"], cwd=tmp_path, capture_output=True, text=True, check=True)
    np.testing.assert_allclose(shown(done.stdout), wanted(), rtol=1e-3, atol=1e-8)


@pytest.mark.skipif(HASWELL is None or platform.machine() != "x86_64", reason="no qemu-user for x86-64")
@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_a_cpu_without_the_instructions_is_told_what_it_lacks(target: str, tmp_path: Path) -> None:
    written(tmp_path, target=target)
    command = [*find_compiler().argv, "example.c", "libmodel.so", *LINKED, "-o", "example"]
    subprocess.run(command, cwd=tmp_path, check=True)
    emulated = [str(HASWELL), "-cpu", "Haswell", "./example", "3"]
    done = subprocess.run(emulated, cwd=tmp_path, capture_output=True, text=True, check=False)
    if target == "cpu:avx2":
        np.testing.assert_allclose(shown(done.stdout), wanted(), rtol=1e-3, atol=1e-8)
    else:
        assert done.returncode == 1 and "error 6: this CPU or its system lacks AVX-512F" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--library", "--target", "sm80"), "a library without Python has code for a CPU"),
        (("--static",), "it is an option of --library"),
        (("--libc", "musl"), "it is an option of --library"),
        (("--library", "--dump=all"), "--library does not go with it"),
        (("--library", "--wheel", "x"), "--wheel does not go with it"),
        (("--wheel", "x", "--static"), "--wheel does not go with it"),
        (("--wheel", "x", "--embed"), "--wheel does not go with it"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = tatami(DIGITS, "-o", str(tmp_path / "out"), *arguments)
    assert done.exit_code == 1 and words in done.stderr and not (tmp_path / "out").exists()


def test_steps_that_need_python_are_named(tmp_path: Path) -> None:
    (tmp_path / "m.harp").write_text("graph<N> main(x: f32[N]) -> (y: i64[1, K]) {\n    return nonzero(x, size=K)\n}\n")
    done = tatami(str(tmp_path / "m.harp"), "-o", str(tmp_path / "out"), "--library")
    assert done.exit_code == 1 and "E1802" in done.stderr and "steps of the model run in Python: " in done.stderr
    assert "nonzero" in done.stderr and not (tmp_path / "out").exists()
