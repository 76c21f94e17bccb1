"""The results as a picture: bars of the systems beside each other, on a logarithmic scale, as SVG by hand.

CPU per event at paced256   |   CPU per short turn   |   memory per held stream
gateway   ######            |   gateway  ####        |   ...
nginx     ###               |   nginx    #           |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from bench.lab import results as figure
from bench.lab.loads import DIRECT, OURS, WEBSOCKET
from bench.lab.report import written
from bench.lab.results import Results

WIDTH: Final = 1000
PANEL: Final = 320
LABEL: Final = 150
BAR: Final = 118
ROW: Final = 22
HEAD: Final = 58
OURS_COLOUR: Final = "#2563eb"
PEER_COLOUR: Final = "#94a3b8"


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the picture's three: less is better in each."""

    title: str
    unit: str
    load: str
    name: str


PANELS: Final = (
    Panel("CPU per event, 256 paced streams", "µs", "paced256", figure.CPU_US_PER_EVENT),
    Panel("CPU per short turn", "ms", "short", figure.CPU_MS_PER_TURN),
    Panel("memory per held stream", "KB", "held", figure.KB_PER_STREAM),
    Panel("CPU per event, 64 paced streams", "µs", "paced64", figure.CPU_US_PER_EVENT),
)


def picture(results: Results) -> str:
    """The SVG; at most three panels, the first of them that have figures."""
    filled = [(panel, bars) for panel in PANELS if (bars := bars_of(results, panel))][:3]
    height = HEAD + ROW * max((len(bars) for _, bars in filled), default=0) + 24
    parts = [drawn(panel, bars, 10 + number * (PANEL + 10)) for number, (panel, bars) in enumerate(filled)]
    said = (results.about.get(name, "") for name in ("date", "machine", "gateway"))
    foot = escape(f"Less is better; the scale is logarithmic. {', '.join(said)}")
    frame = f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {frame}>
<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>
{"".join(parts)}<text x="10" y="{height - 8}" fill="#64748b" font-size="11">{foot}</text>
</svg>
"""


def bars_of(results: Results, panel: Panel) -> Mapping[str, float]:
    """The figures, the least first."""
    names = (name for name in results.figures if name != DIRECT)
    values = {name: results.median(name, panel.load, panel.name) for name in names}
    found = {name: value for name, value in values.items() if value is not None and value > 0}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def drawn(panel: Panel, bars: Mapping[str, float], left: int) -> str:
    """One panel."""
    lengths = scaled([*bars.values()])
    lines = [f'<text x="{left}" y="28" font-weight="bold" fill="#0f172a">{escape(panel.title)}, {panel.unit}</text>\n']
    for number, ((name, value), length) in enumerate(zip(bars.items(), lengths, strict=True)):
        y = HEAD + number * ROW
        is_ours = name in OURS or name == WEBSOCKET
        colour = OURS_COLOUR if is_ours else PEER_COLOUR
        label = name.removeprefix("gateway, ") if is_ours else name
        lines += [
            f'<text x="{left + LABEL - 6}" y="{y + 4}" text-anchor="end" fill="#334155">{escape(label)}</text>\n',
            f'<rect x="{left + LABEL}" y="{y - 8}" width="{length:.1f}" height="15" rx="2" fill="{colour}"/>\n',
            f'<text x="{left + LABEL + length + 5:.1f}" y="{y + 4}" fill="#0f172a">{written(value)}</text>\n',
        ]
    return "".join(lines)


def scaled(values: Sequence[float]) -> list[float]:
    """Lengths on a logarithmic scale that begins at half of the least."""
    if not values:
        return []
    begin, end = math.log(min(values) / 2), math.log(max(values))
    return [BAR * (math.log(value) - begin) / (end - begin) for value in values]
