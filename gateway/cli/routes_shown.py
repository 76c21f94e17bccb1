"""`gateway routes show` as text: the table, how its routes stand in each process, who serves which table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from gateway import limits
from gateway.cli.control import columns, table_of_workers

NOTHING: Final = "-"
ALL: Final = "all"
MODEL: Final = ("model", "routes by priority", "max_output_tokens")
ROUTE: Final = ("route", "transport", "base_url", "model", "concurrency", "state")
LIVE: Final = ("route", "worker", "open", "places", "circuit", "cools for", "why")
KEPT: Final = ("kept", "at")


def shown(answer: Mapping[str, Any]) -> Iterator[str]:
    """The answer of a running gateway, line by line."""
    yield from _table(answer)
    live = _live(answer)
    if live:
        yield from ("", *columns([LIVE, *live]))
    silent = [process for process in answer["live"] if process["error"]]
    if silent:
        yield ""
    yield from (f"worker {one['number']} {_pid(one)}{one['error']}: its routes are not shown" for one in silent)
    yield from ("", *table_of_workers(answer["workers"]))
    if answer["kept"]:
        kept = [(one["table"][: limits.TABLE_DIGITS], one["at"]) for one in answer["kept"]]
        yield from ("", *columns([KEPT, *kept]))


def shown_offline(table: Mapping[str, Any]) -> Iterator[str]:
    """A table that no gateway was asked about."""
    yield from _table(table)


def _table(answer: Mapping[str, Any]) -> Iterator[str]:
    yield f"table {answer['table'][: limits.TABLE_DIGITS]}, from {answer['file']}"
    if answer["problems"]:
        yield "the files as they are now cannot be used; what was read before serves:"
        yield from (f"  {problem}" for problem in answer["problems"])
    models = [(one["name"], _listed(one["listed"]), str(one["max_output_tokens"])) for one in answer["models"]]
    yield from ("", *columns([MODEL, *models]))
    routes = [[_cell(one[name]) for name in ("name", *ROUTE[1:])] for one in answer["routes"]]
    yield from ("", *columns([ROUTE, *routes]))


def _listed(entries: Sequence[Mapping[str, Any]]) -> str:
    """`1: openai x3, azure; 2: spare`: by priority, a weight where it is not 1 (M1)."""
    ordered = sorted(entries, key=lambda entry: int(entry["priority"]))
    return "; ".join(
        f"{priority}: {', '.join(map(_weighted, same))}"
        for priority, same in groupby(ordered, key=lambda entry: entry["priority"])
    )


def _weighted(entry: Mapping[str, Any]) -> str:
    return entry["name"] if entry["weight"] == 1 else f"{entry['name']} x{entry['weight']}"


def _live(answer: Mapping[str, Any]) -> list[Sequence[str]]:
    """The rows of each route: of all processes together, where there are several, and of each."""
    asked = [process for process in answer["live"] if not process["error"]]
    configured = {one["name"]: one["concurrency"] for one in answer["routes"]}
    rows: list[Sequence[str]] = []
    for whole in answer["summed"]:
        name = whole["name"]
        if len(asked) > 1:
            circuit = f"{whole['cooling_workers']} of {whole['workers']} cooling" if whole["cooling_workers"] else ""
            circuit = circuit or ("drained" if whole["is_drained"] else "serving")
            seconds = _seconds(whole["cools_for_seconds"])
            rows.append((name, ALL, str(whole["open_attempts"]), _cell(configured.get(name)), circuit, seconds, ""))
        rows += [_of(name, process) for process in asked if name in process["routes"]]
    return rows


def _of(name: str, process: Mapping[str, Any]) -> Sequence[str]:
    route = process["routes"][name]
    worker = str(process["number"]) + (" (draining)" if process["state"] == "draining" else "")
    row = (name, worker, str(route["open_attempts"]), _cell(route["places"]))
    return (*row, _circuit(route), _seconds(route["cools_for_seconds"]), _why(route))


def _circuit(route: Mapping[str, Any]) -> str:
    if not route["is_listed"]:
        return "in no table any more"
    if route["is_drained"]:
        return "drained"
    return "cooling" if route["is_cooling"] and route["state"] == "serving" else str(route["state"])


def _why(route: Mapping[str, Any]) -> str:
    """What it is left alone for; of one that serves, the faults so far."""
    if route["cooled_by"]:
        return f"{route['cooled_by']}, retry-after" if route["was_asked"] else str(route["cooled_by"])
    return f"{route['faults']} faults" if route["faults"] else ""


def _seconds(seconds: float | None) -> str:
    return NOTHING if seconds is None else f"{seconds:.1f} s"


def _pid(process: Mapping[str, Any]) -> str:
    return "" if process["pid"] is None else f"(pid {process['pid']}) "


def _cell(value: Any) -> str:
    return NOTHING if value is None else str(value)
