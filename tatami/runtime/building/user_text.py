"""Text of a user inside a unit, so that a compiler's messages about it name the user's node and lines."""

from __future__ import annotations

import re

import msgspec

from tatami.core.custom.kernel_body import user_text
from tatami.core.diagnostic import TatamiError, fail

_ERROR = re.compile(r"(body|preamble)(?::|\()(\d+)(?:[:,]\d+)?\)?:\s*(?:fatal )?error:\s*(.*)")
STRICT = ("-Werror=implicit-function-declaration", "-Werror=implicit-int", "-Werror=int-conversion")
"""Flags that turn mistakes which C allows, and at which a program fails later, into errors."""


class UserText(msgspec.Struct, frozen=True):
    """The node that a unit's text belongs to, and the text that the user wrote."""

    at: str
    body: str = ""
    preamble: str = ""


def body_refused(user: UserText, said: str) -> TatamiError | None:
    """The diagnostic of a body that does not compile; None if the compiler's message is about something else."""
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
