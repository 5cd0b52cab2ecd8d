"""`short_call.c` as a type of this interpreter: compiled in parallel with the first program, kept in the cache.

It needs the headers of Python and of numpy, and an interpreter that counts references exactly. Without them calls go through
`quick_call.py`, which takes four times as many microseconds."""

from __future__ import annotations

import contextvars
import importlib.machinery
import importlib.util
import logging
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from tatami.core.diagnostic import TatamiError
from tatami.runtime.building.apart import apart
from tatami.runtime.building.cache import content_key, default_cache
from tatami.runtime.building.compiler import find_compiler, run_compiler, time_limit
from tatami.runtime.building.temporary import build_folder, loaded_prefix
from tatami.runtime.cpu.results import COUNTS_ARE_EXACT

NAME = "tatami_short_call"
"""Name of the extension module."""
FLAGS = ("-std=gnu17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
"""Flags of the C compiler for it."""
_log = logging.getLogger("tatami.runtime")


class Run(Protocol):
    """The type of `QuickCall.run`: outputs by name; None if the arrays have to go the long way."""

    def __call__(self, given: Mapping[str, object]) -> dict[str, np.ndarray] | None: ...


MakeCall: TypeAlias = Callable[..., Run]
"""The type `Call` of `short_call.c`."""
_loaded: list[MakeCall | None] = []
"""The result of `short_call`, once it is known."""


@contextmanager
def made_beside(stop: threading.Event, other: Callable[[], object]) -> Iterator[None]:
    """A context in which it is compiled, unless it exists or cannot be, in parallel with the programs compiled in the block,
    so that no call waits for it. `stop` ends its compiler, also if the block fails. `other`: further work in parallel; its
    faults are raised where its result is needed."""
    with ThreadPoolExecutor(2) as pool:
        try:
            pool.submit(_make, stop)
            pool.submit(contextvars.copy_context().run, other)
            yield
        except BaseException:
            stop.set()
            raise


def _make(stop: threading.Event) -> None:
    folders = _headers()
    if folders is None or default_cache().get(_key()) is not None:
        return
    try:
        with build_folder() as folder:
            (folder / "short_call.c").write_text(_text())
            arguments = (*FLAGS, *(f"-I{path}" for path in folders), "short_call.c", "-o", "all.so")
            run_compiler(find_compiler(), arguments, cwd=folder, timeout=time_limit(), stop=stop)
            default_cache().put(_key(), (folder / "all.so").read_bytes())
    except (TatamiError, OSError) as error:
        _log.info("calls stay in Python: %s", error)


def short_call() -> MakeCall | None:
    """The type `Call`; None if it cannot be compiled, or is not compiled yet."""
    if not _loaded and _headers() is not None and (body := default_cache().get(_key())) is not None:
        _loaded.append(apart(lambda _: _load(body)))
    return _loaded[0] if _loaded else None


def _load(body: bytes) -> MakeCall | None:
    """The type in a shared object; None if the interpreter does not accept it."""
    try:
        with tempfile.NamedTemporaryFile(prefix=loaded_prefix(), suffix=".so") as file:
            file.write(body)
            file.flush()
            loader = importlib.machinery.ExtensionFileLoader(NAME, file.name)
            spec = importlib.util.spec_from_loader(NAME, loader)
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
            made: MakeCall = module.Call
            return made
    except (ImportError, OSError) as error:
        _log.info("calls stay in Python: %s", error)
        return None


@lru_cache(maxsize=1)
def _headers() -> tuple[str, str] | None:
    """The folders of Python's and numpy's headers; None if one is missing or references are not counted exactly."""
    folders = (sysconfig.get_paths()["include"], np.get_include())
    wanted = (Path(folders[0]) / "Python.h", Path(folders[1]) / "numpy" / "arrayobject.h")
    return folders if COUNTS_ARE_EXACT and all(p.exists() for p in wanted) else None


@lru_cache(maxsize=1)
def _text() -> str:
    return (files("tatami.runtime.cpu") / "short_call.c").read_text()


@lru_cache(maxsize=1)
def _key() -> str:
    """The key of the machine code in the cache: everything that it depends on, except the compiler."""
    interpreter = (sys.version, sysconfig.get_platform(), str(sysconfig.get_config_var("EXT_SUFFIX")), np.__version__)
    return content_key(("short call", _text(), *FLAGS, *interpreter))
