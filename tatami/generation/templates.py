"""A conversation as the text that a model's chat template makes of it, in a process of its own with limits of time and memory
(`template_process.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from tatami.core.diagnostic import TatamiError, fail

SECONDS = 5
"""Maximum seconds of the processor for a template: the largest known ones take some hundredths."""
WAIT = 60.0
"""Maximum seconds until the process ends, on a machine that is busy with others."""
MEMORY = 1 << 30
"""Maximum bytes of its address space, of which Python has a quarter."""
MOST_TEXT = 1 << 23
"""Maximum characters of a conversation: eight times those that a request may have."""
_PROCESS = Path(__file__).with_name("template_process.py")


class _Answer(msgspec.Struct, frozen=True):
    text: str | None = None
    why: str = ""


def render(template: str, values: Mapping[str, object]) -> str:
    """The text of a conversation. Raises InvalidAttribute if the template refuses `values` or exceeds a limit, MissingPackage."""
    if find_spec("jinja2") is None:
        raise fail("MissingPackage", "jinja2", "the package 'jinja2' is not installed", 'pip install "tatami[llm]"')
    limits = {"seconds": SECONDS, "memory": MEMORY, "text": MOST_TEXT}
    try:
        asked = msgspec.json.encode({"template": template, "values": values, **limits})
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise _refusal("the messages are not made of texts, numbers, lists and dicts") from None
    path = os.pathsep.join(p for p in sys.path if os.path.isabs(p))
    command = (sys.executable, "-B", "-P", str(_PROCESS))  # -P: no module of the folder that the user stands in
    try:
        done = subprocess.run(
            command, input=asked, capture_output=True, timeout=WAIT, env={**os.environ, "PYTHONPATH": path}, check=False
        )
    except subprocess.TimeoutExpired:
        raise _refusal(f"the model's template: no text within {WAIT:g} s") from None
    if done.returncode < 0:
        raise _refusal(f"the model's template: it needs more than {SECONDS} s or {MEMORY >> 30} GiB, or too deep a recursion")
    try:
        answer = msgspec.json.decode(done.stdout, type=_Answer)
    except msgspec.DecodeError:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise _refusal(f"the model's template: {said[-1][:200] if said else 'no text'}") from None
    if answer.text is None:
        raise _refusal(f"the model's template: {answer.why}")
    return answer.text


def _refusal(why: str) -> TatamiError:
    return fail("InvalidAttribute", "messages", why, "give roles and texts as the model knows them")
