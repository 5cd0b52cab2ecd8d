"""The first page of the site: home.md with sentences of the README and figures of the pages that the benchmarks write."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import sections

FIELD = re.compile(r"\{(\w+)\}")
MACHINE = "avx512"
"""The heading of docs/performance.md whose table is shown: the instruction set with the fewest void rows."""


def home(root: Path) -> str:
    """The page, with links as from the folder website/ of the repository `root`."""
    performance = section(root / "docs/performance.md", MACHINE)
    about, commands = section(root / "README.md", "Tatami"), section(root / "README.md", "Two commands")
    fields = {
        "about": paragraphs(about)[0],
        "commands": paragraphs(commands)[0],
        "after": paragraphs(commands)[1],
        "trained": trained((root / "docs/real-models.md").read_text(encoding="utf-8")),
        "ratios": ratios(performance),
        "machine": machine(performance),
    }
    template = (root / "website/home.md").read_text(encoding="utf-8")
    return FIELD.sub(lambda m: fields[m[1]], template)


def section(page: Path, title: str) -> str:
    """Text below the one heading `title` of `page`."""
    (found,) = (s.body for s in sections(page.read_text(encoding="utf-8")) if s.title == title)
    return found


def paragraphs(text: str) -> list[str]:
    return [p.strip("\n") for p in text.split("\n\n") if p.strip()]


def trained(page: str) -> str:
    """One sentence of the figures of trained models."""
    models = re.search(r"\*\*(\d+) models", page)
    speed = re.search(r"Speed against ONNX Runtime: ([\d.]+) in the mean \(geometric\), least ([\d.]+)", page)
    if models is None or speed is None:
        raise ValueError(
            "docs/real-models.md lacks the sentence of its figures: write it anew with `python -m benchmarks.real --report`"
        )
    return (
        f"[{models[1]} trained models](../docs/real-models.md) run **{speed[1]} times as fast as in ONNX Runtime** "
        f"(geometric mean; the slowest {speed[2]} times)."
    )


def rows(table: str) -> list[dict[str, str]]:
    """Rows of a table of Markdown; of columns with one name the first."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")]
    return [dict(reversed(list(zip(lines[0], line, strict=True)))) for line in lines[2:]]


def ratios(performance: str) -> str:
    """The table of groups: geometric mean of the ratio to the best peer by number of threads, and the least of all rows."""
    groups: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows(performance):
        groups.setdefault(row["group"], {})[row["threads"]] = row
    counts = sorted({n for by_threads in groups.values() for n in by_threads}, key=int)
    head = ["kernels", *(f"{n} thread{'s' if n != '1' else ''}" for n in counts), "slowest"]
    out = [head, ["---"] + ["--:"] * (len(head) - 1)]
    for group, by_threads in groups.items():
        means = [by_threads[n]["geomean"] if n in by_threads else "" for n in counts]
        out.append([group, *means, min((r["least"] for r in by_threads.values()), key=float)])
    return "\n".join(f"| {' | '.join(line)} |" for line in out)


def machine(performance: str) -> str:
    """Text below the table: the meaning of a ratio, and the machine of the measurement."""
    where = paragraphs(performance)[0].partition(" [")[0].rstrip(". ")
    return (
        "Time of the fastest of PyTorch (eager and compiled), ONNX Runtime and numpy over Tatami's: above 1 Tatami is faster. "
        f"{MACHINE}, {where}. [Every row](../docs/performance.md)."
    )
