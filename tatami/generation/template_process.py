"""The process that renders a chat template: `templates.py` runs this file by its path, with JSON on stdin and on stdout.

    {"template", "values", "seconds", "memory", "text"}   ->   {"text"} or {"why"}

`seconds` of the processor, bytes of `memory` and characters of `text` are limits. A template is a program of the model's
maker: it runs in the sandbox of `jinja2`, and in a process that the system ends where the sandbox has no limit."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping


def render(template: str, values: Mapping[str, object], most: int) -> str:
    """The text that a template makes of `values`. Raises any exception, ValueError for more than `most` characters."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    world = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def refuse(why: object) -> None:
        raise ValueError(str(why))

    world.globals["raise_exception"] = refuse
    pieces: list[str] = []
    for piece in world.from_string(template).generate(**values):
        pieces.append(piece)
        most -= len(piece)
        if most < 0:
            raise ValueError("it writes a text without an end")
    return "".join(pieces)


def main() -> None:
    """Read a request, answer it."""
    asked = json.load(sys.stdin.buffer)
    for limit, value in (
        (resource.RLIMIT_CPU, asked["seconds"]),
        (resource.RLIMIT_AS, asked["memory"]),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(limit)
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (least, least))
    try:
        answer = {"text": render(asked["template"], asked["values"], asked["text"])}
    except MemoryError:
        answer = {"why": "it needs too much memory"}
    except Exception as error:
        answer = {"why": str(error)[:200] or type(error).__name__}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
