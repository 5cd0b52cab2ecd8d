"""The kernels of a program under the machine's roofs, as SVG: operations per byte across, GFLOP/s up, both logarithmic.

A kernel without floating-point operations has no place under a roof; the picture says how many there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tatami.report.timings import Timing
from tatami.runtime.machine.peak import Peaks

WIDTH, HEIGHT = 820, 520
LEFT, RIGHT, TOP, BOTTOM = 70, 200, 40, 50
NAMED = 8
"""Number of kernels whose names are written: the ones that take longest."""
_INK = {"contraction": "#d97706", "streaming_pair": "#d97706", "stencil": "#0f766e", "rows": "#2563eb", "map": "#64748b"}
_OTHER = "#7c3aed"


def roofline_svg(timings: Sequence[Timing], peaks: Peaks, title: str) -> str:
    """The SVG text: a dot per kernel, its area the share of the time."""
    total = sum(t.seconds for t in timings) or 1.0
    dots = [(t, t.flops / t.bytes, t.flops / t.seconds / 1e9) for t in timings if t.flops and t.bytes and t.seconds > 0]
    xs = [x for _, x, _ in dots]
    top = peaks.flops / 1e9
    ridge = peaks.flops / peaks.memory
    frame = _Frame(
        (_floor10(min([*xs, ridge / 100])), _ceil10(max([*xs, ridge * 4]))),
        (_floor10(min([y for _, _, y in dots] + [top / 100])), _ceil10(max([top, *(y for _, _, y in dots)]) * 1.2)),
    )
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14" fill="#0f172a">{escape(title)}</text>',
        *frame.grid(),
        _roof(frame, top, peaks.cache / 1e9, f"cache {peaks.cache / 1e9:.0f} GB/s", "4 3"),
        _roof(frame, top, peaks.memory / 1e9, f"memory {peaks.memory / 1e9:.0f} GB/s", ""),
        f'<text x="{WIDTH - RIGHT + 6}" y="{frame.y(top) + 4:.1f}" fill="#0f172a">{top:.0f} GFLOP/s</text>',
    ]
    slow = sorted(dots, key=lambda d: -d[0].seconds)
    out += [_dot(frame, *d, d[0].seconds / total) for d in slow]
    taken: list[float] = []
    for t, x, y in sorted(slow[:NAMED], key=lambda d: frame.y(d[2])):
        at = max(frame.y(y) + 4, taken[-1] + 13 if taken else 0.0)
        taken.append(at)
        across = WIDTH - RIGHT + 6
        out.append(
            f'<path d="M{frame.x(x):.1f},{frame.y(y):.1f} L{across - 4},{at - 4:.1f}" stroke="#cbd5e1" stroke-width="0.7"/>'
            f'<text x="{across}" y="{at:.1f}" fill="{_ink(t)}">{escape(t.kernel[:20])} {t.seconds / total:.0%}</text>'
        )
    left_out = len(timings) - len(dots)
    if left_out:
        note = f"{left_out} kernel{'s' * (left_out > 1)} without floating-point operations not shown"
        out.append(f'<text x="{LEFT}" y="{HEIGHT - 6}" fill="#64748b">{note}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


class _Frame:
    """The frame of the picture: two logarithmic axes, with limits `across` and `up`."""

    def __init__(self, across: tuple[float, float], up: tuple[float, float]) -> None:
        self.across, self.up = across, up

    def x(self, v: float) -> float:
        low, high = map(math.log10, self.across)
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(v) - low) / (high - low)

    def y(self, v: float) -> float:
        low, high = map(math.log10, self.up)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(v) - low) / (high - low)

    def grid(self) -> list[str]:
        out = []
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        for v in _powers(self.across):
            at = f"{self.x(v):.1f}"
            out.append(f'<line x1="{at}" x2="{at}" y1="{TOP}" y2="{bottom}" stroke="#e2e8f0"/>')
            out.append(f'<text x="{at}" y="{bottom + 15}" text-anchor="middle" fill="#475569">{v:g}</text>')
        for v in _powers(self.up):
            at = f"{self.y(v):.1f}"
            out.append(f'<line x1="{LEFT}" x2="{right}" y1="{at}" y2="{at}" stroke="#e2e8f0"/>')
            out.append(f'<text x="{LEFT - 6}" y="{self.y(v) + 4:.1f}" text-anchor="end" fill="#475569">{v:g}</text>')
        middle = (LEFT + right) / 2
        out.append(f'<text x="{middle}" y="{bottom + 31}" text-anchor="middle" fill="#475569">operations per byte</text>')
        out.append(f'<text x="{LEFT - 6}" y="{TOP - 8}" text-anchor="end" fill="#475569">GFLOP/s</text>')
        return out


def _roof(frame: _Frame, top: float, slope: float, label: str, dash: str) -> str:
    """A roof: a slope of `slope` GB/s from the left or the lower edge up to the peak `top` in GFLOP/s, then level."""
    left, right = frame.across
    start = max(left, frame.up[0] / slope)
    ridge = min(max(top / slope, start), right)
    points = [(start, start * slope), (ridge, ridge * slope), (right, top)]
    line = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)
    at = (frame.x(start) + frame.x(ridge)) / 2, (frame.y(start * slope) + frame.y(ridge * slope)) / 2
    angle = math.degrees(math.atan2(frame.y(ridge * slope) - frame.y(start * slope), frame.x(ridge) - frame.x(start)))
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<polyline points="{line}" fill="none" stroke="#0f172a" stroke-width="1.4"{dashed}/>'
        f'<text transform="translate({at[0]:.1f},{at[1] - 5:.1f}) rotate({angle:.1f})" text-anchor="middle"'
        f' fill="#475569">{label}</text>'
    )


def _dot(frame: _Frame, t: Timing, x: float, y: float, share: float) -> str:
    note = f"{t.kernel}: {t.seconds * 1e3:.4g} ms, {y:.3g} GFLOP/s, {x:.3g} operations per byte, {share:.0%} of the time"
    return (
        f'<circle class="kernel" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="{3 + 16 * math.sqrt(share):.1f}"'
        f' fill="{_ink(t)}" fill-opacity="0.55" stroke="{_ink(t)}"><title>{escape(note)}</title></circle>'
    )


def _ink(t: Timing) -> str:
    return _INK.get(t.kind, _OTHER)


def _floor10(v: float) -> float:
    return float(10 ** math.floor(math.log10(v)))


def _ceil10(v: float) -> float:
    return float(10 ** math.ceil(math.log10(v)))


def _powers(limits: tuple[float, float]) -> list[float]:
    low, high = (round(math.log10(v)) for v in limits)
    return [10.0**e for e in range(low, high + 1)]
