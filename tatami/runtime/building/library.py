"""A shared object in this process: closed when nothing refers to it or to one of its functions (decision 0053).

A handler of Python may interrupt a finalizer that is Python, and the collector of cycles calls a finalizer before others of
the same cycle, which may still call into the library. So nothing here runs in Python: the last reference frees an array, and
freeing it calls `dlclose`."""

from __future__ import annotations

import atexit
import ctypes
import sys
import weakref
from typing import Any

_close: Any = ctypes.CDLL(None).dlclose if sys.platform == "linux" else None
"""The C function that closes a library; None on systems other than Linux, where loaded libraries stay."""
if _close is not None:
    _close.argtypes = (ctypes.c_void_p,)


class _Ending(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to an array that calls `dlclose` when the array is freed; ctypes takes it for the handle."""

    __slots__ = ("_as_parameter_",)
    _as_parameter_: ctypes.c_void_p


_endings: dict[int, _Ending] = {}
"""The weak references of open libraries, by `id`; the next library removes those that have called."""
atexit.register(_endings.clear)  # libraries open at the end of the interpreter are closed by the system


class _Opened:
    """The handle of an open library: the library and its functions refer to it, and it is closed with the last reference."""

    __slots__ = ("_handle", "_held")

    def __init__(self, handle: int, stays: bool) -> None:
        import numpy as np  # not needed by a command that finds its program in the cache and loads no library

        self._handle = handle
        self._held = np.empty(0, np.uint8)
        """An array, since no cycle holds one: it is freed when everything that may still run has run."""
        if _close is not None and not stays:
            for key, ending in list(_endings.items()):
                if ending() is None:
                    _endings.pop(key, None)
            ending = _Ending(self._held, _close)
            ending._as_parameter_ = ctypes.c_void_p(handle)
            _endings[id(ending)] = ending


class Library(ctypes.CDLL):
    """A shared object that is mapped. stays: it is not closed before the process ends."""

    def __init__(self, path: str, *, stays: bool = False) -> None:
        super().__init__(path)
        self.opened = _Opened(self._handle, stays)

    def __getitem__(self, name: str) -> ctypes._NamedFuncPointer:
        """A function, which keeps the library open; `library.name` is always the same one. Not to be passed to `ctypes.cast`,
        which makes it refer to itself. Raises AttributeError."""
        function: Any = self._FuncPtr(self.address(name))  # ctypes makes a function by name refer to itself, too
        function.__name__ = name
        function.opened = self.opened
        return function

    def address(self, name: str) -> int:
        """The address of a symbol, valid while something else keeps the library open. Raises AttributeError."""
        try:
            return ctypes.addressof(ctypes.c_char.in_dll(self, name))
        except ValueError as error:
            raise AttributeError(str(error)) from None
