"""Functions of the entry file that change the sizes of a loop's body to those of its next turn (execution/views/growth.py).

T -> T + 1        const int64_t to[] = {most(0, (s[1] + INT64_C(1)))};
                  s[1] = to[0];
                  return s[1] <= room[1];
"""

from __future__ import annotations

from tatami.c.size_text import size_text
from tatami.core.page import page
from tatami.execution.frames import Layouts
from tatami.execution.views.growth import growths


def follow_symbol(number: int) -> str:
    """The name of the function for the program of that number."""
    return f"tatami_follow_{number}"


def print_following(layouts: Layouts) -> list[str]:
    """The functions for all loops whose state grows."""
    numbers = {name: k for k, name in enumerate(layouts.module.programs)}
    out: list[str] = []
    for body, following in growths(layouts).items():
        place = {s: f"s[{k}]" for k, s in enumerate(layouts.symbols(body))}
        at = [place[name] for name in following]
        out.append(
            page("tatami.c", "entry_follow.c").fill(
                NAME=follow_symbol(numbers[body]),
                VALUES=", ".join(f"most(0, {size_text(size, place)})" for size in following.values()) or "0",
                ASSIGN=[f"{text} = to[{k}];" for k, text in enumerate(at)],
                WITHIN=" && ".join(f"{text} <= {text.replace('s[', 'room[')}" for text in at) or "1",
            )
        )
    return out
