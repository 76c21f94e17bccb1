"""What a client asks and what it shows: the same conversation for all, and its visible result in a few lines.

A result has one line for each turn: the text that was shown, or the tool that was called, and in brackets how the turn
ended unless it was completed: `A retry [APIError stream_read_error]`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clients.situations import FOUND, Situation, first_request

COMPLETED = "completed"
CONNECTION_LIMIT = "websocket_connection_limit_reached"

TERMINAL = frozenset({"response.completed", "response.failed", "response.incomplete", "error"})

Seen = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """Where a client goes, with which key, for which cell."""

    base_url: str
    key: str
    model: str
    situation: Situation

    @property
    def websocket_url(self) -> str:
        """The WebSocket endpoint."""
        return f"{self.base_url.replace('http', 'ws', 1)}/responses"

    @property
    def headers(self) -> dict[str, str]:
        """Of a client that has to write them itself."""
        return {"Authorization": f"Bearer {self.key}"}

    @property
    def first_request(self) -> dict[str, Any]:
        """What it sends first."""
        return first_request(self.situation, self.model)


Client = Callable[[Asked], Seen]


@dataclass(slots=True)
class Ear:
    """What a program hears of a turn."""

    text: str = ""
    ending: str = "nothing"
    code: str | None = None
    response_id: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)

    def hear(self, event: Mapping[str, Any]) -> bool:
        """One event; whether it ends the turn."""
        kind = event["type"]
        if kind == "response.output_text.delta":
            self.text += event["delta"]
        elif kind == "response.output_item.done" and event["item"]["type"] == "function_call":
            self.calls.append(event["item"])
        elif kind == "response.completed":
            self.ending, self.response_id = COMPLETED, event["response"]["id"]
        elif kind in {"response.failed", "response.incomplete"}:
            self.hear_error(kind, (event["response"].get("error") or {}).get("code"))
        elif kind == "error":
            self.hear_error(kind, (event.get("error") or event).get("code"))
        return kind in TERMINAL

    def hear_error(self, kind: str, code: str | None) -> None:
        """It ended so."""
        self.ending, self.code = f"{kind} {code}", code

    @property
    def line(self) -> str:
        """The turn as the result shows it."""
        shown = self.text + "".join(f"{call['name']}({call['arguments']})" for call in self.calls)
        return shown if self.ending == COMPLETED else f"{shown}[{self.ending}]"


def converse(asked: Asked, turn: Callable[[dict[str, Any]], Ear]) -> Seen:
    """Ask turn by turn, until a turn fails or all are done. What the end of a connection cut is asked for once more."""
    request, lines, done = asked.first_request, [], 0
    may_ask_again = True
    while done < asked.situation.turns:
        ear = turn(request)
        lines.append(ear.line)
        if ear.ending == COMPLETED:
            request, done = next_request(asked, request, ear), done + 1
            time.sleep(asked.situation.pause_seconds)
        elif ear.code == CONNECTION_LIMIT and may_ask_again:
            may_ask_again = False
        else:
            break
    return tuple(lines)


def next_request(asked: Asked, request: Mapping[str, Any], heard: Ear) -> dict[str, Any]:
    """What follows on a turn: a tool's output behind its call, a chain's next link, or the same once more."""
    if heard.calls:
        outputs = [
            {"type": "function_call_output", "call_id": call["call_id"], "output": FOUND} for call in heard.calls
        ]
        return {**request, "input": [*request["input"], *heard.calls, *outputs]}
    if asked.situation.is_chained:
        return {**request, "previous_response_id": heard.response_id}
    return dict(request)
