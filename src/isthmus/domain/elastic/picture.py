"""Draws a comparison as SVG: nodes over time, and what each way of having them costs in hours and in waiting."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from isthmus.domain.elastic.comparison import KEDA, POLICY, POWER_SAVING, STATIC, Figures
from isthmus.domain.elastic.simulation import Outcome

_WIDTH: Final = 960
_LEFT: Final = 60
_RIGHT: Final = 940
_TOP: Final = 60
_BOTTOM: Final = 260
_BARS: Final = 320
_ROW: Final = 30
_STEPS: Final = 440

_COLORS: Final = {POLICY: "#0969da", POWER_SAVING: "#bc4c00", KEDA: "#8250df", STATIC: "#8c959f"}
_STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 } .small { font-size: 12px; fill: #59636e }
  .end { text-anchor: end } .middle { text-anchor: middle }
  .grid { stroke: #d1d9e0; stroke-width: 1 } .busy { fill: #8c959f; fill-opacity: 0.35 }
  .line { fill: none; stroke-width: 1.6 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .grid { stroke: #3d444d }
  }
"""


def draw(found: Mapping[str, tuple[Figures, Outcome]], *, size: int) -> str:
    """Draw what `comparison.compare` found."""
    height = _BARS + 60 + _ROW * len(found)
    title = "Nodes that are on over time, and node-hours and waiting, by how nodes are started"
    body = "\n".join([*_course(found, size), *_bars(found)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n{body}\n</svg>\n"
    )


def _course(found: Mapping[str, tuple[Figures, Outcome]], size: int) -> Iterator[str]:
    begin = min(it.begin for _, it in found.values())
    end = max(it.end for _, it in found.values())
    yield f'<text class="title" x="{_LEFT}" y="24">Nodes that are on</text>'
    yield from _legend(found)
    for share in (0, 0.5, 1):
        y = _BOTTOM - (_BOTTOM - _TOP) * share
        yield f'<path class="grid" d="M{_LEFT} {y:g}H{_RIGHT}"/>'
        yield f'<text class="small end" x="{_LEFT - 8}" y="{y + 4:g}">{size * share:g}</text>'
    day = 86400.0
    first = (begin // day + 1) * day
    shown = max(1, round((end - begin) / day / 10))
    for place in range(int((end - first) // day) + 1):
        x = _LEFT + (_RIGHT - _LEFT) * (first + place * day - begin) / (end - begin)
        yield f'<path class="grid" d="M{x:.1f} {_TOP}V{_BOTTOM}"/>'
        if place % shown == 0:
            name = datetime.fromtimestamp(first + place * day, UTC).strftime("%a %d %b")
            yield f'<text class="small middle" x="{x:.1f}" y="{_BOTTOM + 18}">{name}</text>'
    leading = found[POLICY][1]
    area = _steps(leading.levels, 2, begin, end, size)
    yield f'<path class="busy" d="M{_LEFT} {_BOTTOM}{area}V{_BOTTOM}z"/>'
    for name in (STATIC, POWER_SAVING, POLICY):
        if name in found:
            line = _steps(found[name][1].levels, 1, begin, end, size)
            yield f'<path class="line" stroke="{_COLORS[name]}" d="M{_LEFT} {_BOTTOM}{line}"/>'


def _steps(levels: Sequence[tuple[float, int, int]], column: int, begin: float, end: float, size: int) -> str:
    """A path over the means of many equal stretches of time; every change alone would be too much to draw."""
    width = (end - begin) / _STEPS
    sums = [0.0] * _STEPS
    for place, level in enumerate(levels):
        start = level[0]
        stop = levels[place + 1][0] if place + 1 < len(levels) else end
        index = min(_STEPS - 1, int((start - begin) / width))
        while index < _STEPS and begin + index * width < stop:
            lower, upper = max(start, begin + index * width), min(stop, begin + (index + 1) * width)
            sums[index] += max(0.0, upper - lower) * level[column]
            index += 1
    scale = (_BOTTOM - _TOP) / max(1, size)
    step = (_RIGHT - _LEFT) / _STEPS
    return "".join(
        f"L{_LEFT + (place + 0.5) * step:.1f} {_BOTTOM - it / width * scale:.1f}" for place, it in enumerate(sums)
    )


def _legend(found: Mapping[str, tuple[Figures, Outcome]]) -> Iterator[str]:
    x = 260
    for name in (POLICY, POWER_SAVING, STATIC):
        if name in found:
            yield f'<path class="line" stroke="{_COLORS[name]}" d="M{x} 20h24"/>'
            yield f'<text x="{x + 30}" y="24">{escape(name)}</text>'
            x += 150
    yield f'<path class="busy" d="M{x} 12h24v14h-24z"/><text x="{x + 30}" y="24">with jobs (policy)</text>'


def _bars(found: Mapping[str, tuple[Figures, Outcome]]) -> Iterator[str]:
    most_hours = max(it.node_hours for it, _ in found.values()) or 1.0
    most_wait = max(it.wait.mean for it, _ in found.values()) or 1.0
    yield f'<text class="title" x="170" y="{_BARS}">Node-hours</text>'
    yield f'<text class="small" x="270" y="{_BARS}">the dark part ran jobs</text>'
    yield f'<text class="title" x="590" y="{_BARS}">Mean wait</text>'
    yield f'<text class="small" x="680" y="{_BARS}">the dark part was for nodes to start</text>'
    for place, (name, (each, _)) in enumerate(found.items()):
        y = _BARS + 14 + _ROW * place
        color = _COLORS[name]
        hours, busy = (300 * it / most_hours for it in (each.node_hours, each.busy_hours))
        wait, boot = (220 * it / most_wait for it in (each.wait.mean, each.boot.mean))
        yield f'<text class="end" x="160" y="{y + 15}">{escape(name)}</text>'
        yield f'<rect x="170" y="{y}" width="{hours:.1f}" height="20" fill="{color}" fill-opacity="0.45"/>'
        yield f'<rect x="170" y="{y}" width="{busy:.1f}" height="20" fill="{color}"/>'
        yield f'<text class="small" x="{176 + hours:.1f}" y="{y + 15}">{each.node_hours:,.0f}</text>'
        yield f'<rect x="590" y="{y}" width="{wait:.1f}" height="20" fill="{color}" fill-opacity="0.45"/>'
        yield f'<rect x="590" y="{y}" width="{boot:.1f}" height="20" fill="{color}"/>'
        stuck = f", {each.unstarted} never started" if each.unstarted else ""
        yield f'<text class="small" x="{596 + wait:.1f}" y="{y + 15}">{each.wait.mean:,.0f} s{stuck}</text>'
