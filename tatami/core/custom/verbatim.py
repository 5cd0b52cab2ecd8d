"""Text that becomes code as it stands: the type that printers write out and a C or CUDA compiler is given.

    a caller's Python objects (`g.kernel_body`), a loader that was given trust, our own printers   ->   VerbatimCode
    anything else that is read (documents, texts, saved programs)                                  ->   str

The codec makes a VerbatimCode of a document's text only with `trust`; without, a field of this type is refused (E1610)
and a text in any other field stays a plain str, which `as_code` refuses where it would be printed. So trust is tested
where text becomes code, not where a document happens to say "custom". `tests/storage/test_verbatim_code.py` lists who may
construct one."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class VerbatimCode(str):
    """C or CUDA text that its caller answers for. Results of methods of str are plain str again."""

    __slots__ = ()


def rewritten(code: VerbatimCode, change: Callable[[str], str]) -> VerbatimCode:
    """The code changed by `change`, which puts our names in place of a user's: it is as trusted as before."""
    return VerbatimCode(change(as_code(code)))


def as_code(text: object) -> VerbatimCode:
    """The text, if it may be printed as it stands. Raises TypeError for any other: a defect of one of our loaders."""
    if not isinstance(text, VerbatimCode):
        raise TypeError(f"{type(text).__name__} {str(text)[:80]!r} would be printed as code, and nobody answers for it")
    return text


NO_CODE = VerbatimCode("")
"""The empty text, which needs no trust."""


class KernelCode(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A custom kernel's function bodies for each kind of target, and the text before each (includes, functions)."""

    c: VerbatimCode | None = None
    cuda: VerbatimCode | None = None
    preamble: VerbatimCode = NO_CODE
    cuda_preamble: VerbatimCode = NO_CODE


def code_texts(code: KernelCode | None) -> dict[str, str]:
    """Field -> text, for the texts that are not empty."""
    return {k: str(v) for k in KernelCode.__struct_fields__ if (v := getattr(code, k, None))}
