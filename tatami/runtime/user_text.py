"""Where text that a user wrote stands in a unit, so that a compiler's words about it name their node and their lines."""

from __future__ import annotations

import re

import msgspec

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.kernel_body import user_text

_ERROR = re.compile(r"(body|preamble)(?::|\()(\d+)(?:[:,]\d+)?\)?:\s*(?:fatal )?error:\s*(.*)")
STRICT = ("-Werror=implicit-function-declaration", "-Werror=implicit-int", "-Werror=int-conversion")
"""Slips that C lets pass and a program stumbles over later."""


class UserText(msgspec.Struct, frozen=True):
    """The node a unit's text belongs to, and the text as it was written."""

    at: str
    body: str = ""
    preamble: str = ""


def body_refused(user: UserText, said: str) -> TatamiError | None:
    """The diagnostic of a body that does not compile, or None when the compiler speaks of something else."""
    errors = list(dict.fromkeys(m.groups() for line in said.splitlines() if (m := _ERROR.match(line)) is not None))
    if not errors:
        return None
    where, line, message = errors[0]
    text = (user.body if where == "body" else user.preamble).split("\n")
    shown = text[int(line) - 1].strip() if 0 < int(line) <= len(text) else ""
    why = f"{user_text(_plain(message))}\n    {_plain(shown)}" if shown else user_text(_plain(message))
    more = [f"line {n}: {user_text(_plain(m))}" for w, n, m in errors[1:4] if w == where]
    if more:
        why += "\n  also " + "\n  also ".join(more)
    return fail(
        "CompilerFailed",
        f"{user.at}: {where} line {line}",
        why,
        f"mend line {line} of the kernel's {where}; a CPU body is C (gnu17) with math, stdint, stdlib, string",
        line=line,
    )


def _plain(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", text)[:300]
