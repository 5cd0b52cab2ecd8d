"""`tatami compile --wheel`: a package of one model, which pip installs and which needs numpy only.

NAME-VERSION-py3-none-linux_x86_64.whl
  NAME/__init__.py      model_package.py as it is
  NAME/libmodel.so  NAME/constants.bin
  NAME-VERSION.dist-info/METADATA  WHEEL  RECORD
"""

from __future__ import annotations

import base64
import hashlib
import io
import keyword
import re
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import tatami
from tatami.compilation import Compilation
from tatami.core.diagnostic import fail
from tatami.core.signature import Input, Output
from tatami.deploy.library import make_library
from tatami.deploy.linking import Form, Libc, link, machine_of
from tatami.storage.dump import write_pieces

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,5}(?:(?:a|b|rc)\d{1,9})?(?:\.post\d{1,9})?(?:\.dev\d{1,9})?")
FIRST_VERSION = "0.1.0"
"""Version of a wheel whose name comes without one."""
_DATE = (1980, 1, 1, 0, 0, 0)
"""Date of the files, so that equal wheels are equal byte by byte: the earliest that an archive has."""
_OURS = ("numpy", "ml_dtypes", "tatami")


@dataclass(frozen=True)
class Project:
    """The name and the version of a wheel. `module`: what Python imports."""

    name: str
    version: str
    module: str


def read_project(text: str) -> Project:
    """The project of ``NAME`` or ``NAME==VERSION``, by the rules of packages. Raises InvalidAttribute."""
    name, _, version = text.partition("==")
    version = version if "==" in text else FIRST_VERSION
    shown = text[:80]
    if not _NAME.fullmatch(name):
        why = "a package's name has letters, digits and . _ - between them, at most 64"
        raise fail("InvalidAttribute", f"--wheel {shown}", why, "write --wheel digits, or --wheel digits==1.2")
    if not _VERSION.fullmatch(version):
        why = f"{version[:40]!r} is not the version of a package"
        raise fail("InvalidAttribute", f"--wheel {shown}", why, "write numbers: --wheel digits==1.2.0")
    module = re.sub(r"[-_.]+", "_", name).lower()
    if not module.isidentifier() or keyword.iskeyword(module) or module in sys.stdlib_module_names or module in _OURS:
        why = f"Python would import it as {module!r}, which means something else"
        raise fail("InvalidAttribute", f"--wheel {shown}", why, "give a name that begins with a letter and is not Python's")
    return Project(name, version, module)


def write_wheel(compilation: Compilation, folder: Path, project: Project, libc: Libc = "") -> Path:
    """Write the wheel into `folder`. Raises TatamiError."""
    library = make_library(compilation)
    tag = f"py3-none-{_platform(machine_of(compilation.target), libc)}"
    contents: dict[str, bytes] = {
        f"{project.module}/__init__.py": (files("tatami.deploy") / "model_package.py").read_bytes(),
        f"{project.module}/libmodel.so": link(library, compilation.target, Form(libc=libc)),
    }
    if library.constants:
        contents[f"{project.module}/constants.bin"] = b"".join(library.constants)
    narrow = any(p.dtype.value in ("bf16",) or p.dtype.is_small for p in _ports(compilation))
    information = f"{project.module}-{project.version}.dist-info"
    contents[f"{information}/METADATA"] = _metadata(project, narrow).encode()
    contents[f"{information}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: tatami {tatami.__version__}\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    contents[f"{information}/RECORD"] = _record(contents, f"{information}/RECORD").encode()
    return write_pieces(folder / f"{project.module}-{project.version}-{tag}.whl", (_zip(contents),))


def _ports(compilation: Compilation) -> list[Input | Output]:
    signature = compilation.stages["execution"].main.signature
    return [*signature.inputs, *signature.outputs]


def _platform(machine: str, libc: Libc) -> str:
    return f"musllinux_1_2_{machine}" if libc == "musl" else f"linux_{machine}"


def _metadata(project: Project, narrow: bool) -> str:
    needs = ["numpy>=1.26", *(["ml_dtypes>=0.5"] if narrow else [])]
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project.name}",
        f"Version: {project.version}",
        "Summary: A model compiled by Tatami",
        "Requires-Python: >=3.9",
        *(f"Requires-Dist: {n}" for n in needs),
    ]
    return "\n".join(lines) + "\n"


def _record(contents: Mapping[str, bytes], own: str) -> str:
    rows = []
    for name, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join(rows) + f"{own},,\n"


def _zip(contents: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return buffer.getvalue()
