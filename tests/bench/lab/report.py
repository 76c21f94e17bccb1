"""The results as a page of Markdown: how it was measured, the systems side by side, the targets, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench.lab import results as figure
from bench.lab.loads import OTHERS, OURS, STEADY, WEBSOCKET
from bench.lab.results import PACE_MIN, Results
from bench.lab.targets import TARGETS, Target

BEHIND: Final = "¹"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table of systems: its head, and whose figure of which load it shows."""

    head: str
    load: str
    name: str


COLUMNS: Final = (
    Column("paced64<br>µs/event", "paced64", figure.CPU_US_PER_EVENT),
    Column("paced256<br>µs/event", "paced256", figure.CPU_US_PER_EVENT),
    Column("burst16<br>µs/event", "burst16", figure.CPU_US_PER_EVENT),
    Column("short<br>ms/turn", "short", figure.CPU_MS_PER_TURN),
    Column("held<br>KB/stream", "held", figure.KB_PER_STREAM),
    Column("streams<br>per core", "ladder", figure.STREAMS_MAX),
    Column("low32 event<br>p50 ms", "low32", figure.EVENT_P50_MS),
    Column("low32 event<br>p99 ms", "low32", figure.EVENT_P99_MS),
    Column("low32 first<br>p50 ms", "low32", figure.FIRST_P50_MS),
)


def page(results: Results, plot: str) -> str:
    """The whole page; `plot` is the picture's file name."""
    parts = [
        "# Speed\n",
        how(results),
        f"![The gateway and its peers: CPU per event, CPU per short turn, memory per held stream]({plot})\n",
        "## Systems\n",
        table(["", *(column.head for column in COLUMNS)], [*rows(results)]),
        f"{BEHIND} It fell behind: fewer than {PACE_MIN:.0%} of its events came through. Empty: not measured.\n",
        "## Targets\n",
        table(["", "measured", "must", "goal", ""], [target_row(target, results) for target in TARGETS]),
        *others(results),
    ]
    if results.missing:
        parts += ["## What was not measured\n", "".join(f"- {one_line(said)}\n" for said in results.missing)]
    return "\n".join(parts)


def how(results: Results) -> str:
    """The run's conditions."""
    whats = {load.name: load.what for load in STEADY.values()} | OTHERS
    loads = "".join(f"- *{name}*: {what}\n" for name, what in whats.items())
    about = "".join(f"- {name}: {value}\n" for name, value in results.about.items())
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    return f"""\
What a gateway costs: its processor time from the kernel's account of its process, children included, over the events or
turns that came through whole. The gateway under test has one core, the upstream and the load client have the other;
systems not under test are stopped; rounds alternate in order; figures are medians of {results.rounds}.
Latencies contain the upstream and the client, and are for orientation.

{about}- beside it: {versions or "nobody"}
{loads}"""


def rows(results: Results) -> Iterator[Sequence[str]]:
    """One for each entrant, ours first."""
    ours = [name for name in results.figures if name in OURS or name == WEBSOCKET]
    for name in [*ours, *(name for name in results.figures if name not in ours)]:
        cells = [cell(results, name, column) for column in COLUMNS]
        if any(cells):
            yield [name, *cells]


def cell(results: Results, entrant: str, column: Column) -> str:
    """A figure, marked where the system fell behind."""
    value = results.median(entrant, column.load, column.name)
    if value is None:
        return ""
    pace = results.median(entrant, column.load, figure.PACE)
    return written(value) + (BEHIND if pace is not None and pace < PACE_MIN else "")


def target_row(target: Target, results: Results) -> Sequence[str]:
    """What it is, what it must be, what it should be, and the verdict."""
    sign = "≥" if target.is_least else "≤"
    value = target.value(results)
    bounds = ["" if bound is None else f"{sign} {written(bound)} {target.unit}" for bound in (target.must, target.goal)]
    measured = "" if value is None else f"{written(value)} {target.unit}"
    return [target.what, measured, *bounds, target.verdict(results).value]


def others(results: Results) -> list[str]:
    """The rows that have no column and no target of their own."""
    found = [
        (entrant, load, name, value)
        for entrant, loads in results.figures.items()
        for load, names in loads.items()
        for name in names
        if name in {figure.CPU_MS_PER_TURN, figure.KB_PER_1000_TURNS}
        and load not in STEADY
        and (value := results.median(entrant, load, name)) is not None
    ]
    unit = {figure.CPU_MS_PER_TURN: "ms/turn", figure.KB_PER_1000_TURNS: "KB per 1,000 turns"}
    shown = [[entrant, load, f"{written(value)} {unit[name]}"] for entrant, load, name, value in found]
    return ["## Crowds and many turns\n", table(["", "load", "measured"], shown)] if shown else []


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def written(value: float) -> str:
    """Two significant digits, or all before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def one_line(text: str) -> str:
    return " ".join(text.split())[:500]
