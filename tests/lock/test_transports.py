"""C5, §0: any door over any transport gives the same turn.

Every scenario is played once more with all its routes over WebSocket, and gives the columns that are recorded: to the
event, to the instant, to the nano-dollar. What is each transport's own is not compared: the request's framing, the
words in which a broken connection is told, the id of the handshake that an attempt's socket was opened with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from gateway.config import Config
from gateway.lock.pack import shipped
from gateway.lock.parity import decoded
from gateway.lock.player import play
from gateway.lock.scenario import COLUMNS, Scenario, read_scenario
from gateway.lock.transcript import Columns, read_transcript

HELD: Final = "W10: over WebSocket the upstream's own socket holds what HTTP has to be sent in full"
NOWHERE: Final = "O2: over WebSocket an upstream may hold what over HTTP nobody has"
WARM_UP: Final = "W9: over WebSocket the warm-up is the upstream's own"

OTHERWISE: Final[Mapping[str, str]] = {
    "e10-invalid-utf8-after-output": "E10: a frame that is no UTF-8 is a read error, a block is passed on",
    "e10-invalid-utf8-before-output": "E10: a frame that is no UTF-8 is a read error, a block is passed on",
    "e9-the-upstream-stays-open": "a socket is free for its next turn at its terminal, a body is drained behind it",
    "p1-line-ends": "a socket is free for its next turn at its terminal, a body is drained behind it",
    "f2-a-403-in-the-stream": "X5, F2: a frame's status before any event is judged as a handshake's",
    "f2-exhausted-quotas": "E6: on an open socket a status is an error frame, which waits for its grace",
    "f6-a-status-in-the-stream": "X5: before any event it is a status on the HTTP door, without a number",
    "r5-status-504-in-the-stream": "X5: before any event it is a status on the HTTP door, without a number",
    "c5-too-large-for-a-route": "C5: a frame has a type where a body has stream",
    "c3-too-much-before-output-is-no-fault": "R7: what came in one read with the event too much is dropped, too",
    "h1-an-empty-body": "H1: a stream's events come before its response is whole, and are on record",
    "h1-break-before-the-first-byte": "H1: a stream's events come before its response is whole, and are on record",
    "h1-break-behind-the-first-byte": "H1: one JSON body is no answer to a handshake",
    "h1-cut-at-a-clean-end": "H1: one JSON body is no answer to a handshake",
    "h1-failed": "H1: a stream's events come before its response is whole, and are on record",
    "h1-no-response": "H1: one JSON body is no answer to a handshake",
    "h1-one-body": "H1: a stream's events come before its response is whole, and are on record",
    "h1-start-early": "H1: a stream's events come before its response is whole, and are on record",
    "h1-the-clients-name-of-the-model": "H1: one JSON body is no answer to a handshake",
    "h1-without-stream": "H1: a stream's events come before its response is whole, and are on record",
    "r7-held-events": "R7: what came in one read with the event too much is dropped, too",
    "h4-headers": "H4: the upstream's hop-by-hop headers are those that spoil a handshake",
    "p7-an-event-at-its-limit": "P7: the bytes of a frame are counted, not those of a block around it",
    "r7-held-bytes-at-the-limit": "R7: a frame counts with the block that it becomes",
    "r7-one-event-too-large-after-output": "R7: an event without an end is never a frame",
    "r7-what-was-discarded-counts-no-more": "R7: a frame counts with the block that it becomes",
    "p8-a-compressed-stream": "P8: a handshake is not compressed",
    "p9-no-event-stream": "P9: an empty body is a read error, a handshake answered without an upgrade is not",
    "r10-the-first-of-two-reasons": "a socket that stands is not opened anew, and cannot fail to connect",
    "stream-agent-over-websocket": "E6: on an open socket a status is an error frame, which waits for its grace",
    "w10-an-expanded-continuation-is-replayed": HELD,
    "w10-sealed-content-is-not-replayed": HELD,
    "w10-a-failure-evicts": NOWHERE,
    "w10-no-more-than-the-limit": NOWHERE,
    "w10-only-what-completed-is-remembered": NOWHERE,
    "w10-a-warm-up-is-a-continuation": WARM_UP,
    "w9-a-warm-up-and-its-turns": WARM_UP,
    "w9-what-is-stored-elsewhere": WARM_UP,
    "w9-prepared-where-turns-are-stored": WARM_UP,
}
"""What is recorded over SSE and goes another way over WebSocket, by the rule that has it so."""
OWN_WORDS: Final = (
    "stream_read_error",
    "upstream_bad_response",
    "upstream_connect_error",
    "upstream_stream_buffer_limit",
)
"""Codes whose message says what happened to the transport."""


def over_websocket(config: Config) -> Config:
    return replace(
        config, routes={name: replace(route, transport="websocket") for name, route in config.routes.items()}
    )


def compared(columns: Columns) -> dict[str, Any]:
    by_name = {name: without_own_words(decoded(columns, name)) for name in COLUMNS}
    calls = [{name: call[name] for name in ("at", "route", "closed_at")} for call in columns["upstream"]]
    return {**by_name, "upstream": calls}


def without_own_words(value: Any) -> Any:
    if isinstance(value, list):
        return [without_own_words(one) for one in value]
    if not isinstance(value, dict):
        return value
    dropped = {"upstream_request_id"} | ({"message"} if value.get("code") in OWN_WORDS else set())
    return {name: without_own_words(one) for name, one in value.items() if name not in dropped}


def recorded_over_sse() -> list[str]:
    """But for the scenarios that are about a transport."""
    pack = shipped()
    return [name for name in pack.names if not _names_a_transport(read_scenario(pack.scenario(name)))]


def _names_a_transport(scenario: Scenario) -> bool:
    routes = (scenario.config.get("route", {}), *scenario.config.get("routes", {}).values())
    return any("transport" in route for route in routes)


SLICED = [
    pytest.param(name, marks=[pytest.mark.long] if number % 2 else [])
    for number, name in enumerate(recorded_over_sse())
]
"""Every other one is in the fast suite: tests/turn has its own turns over WebSocket there."""


@pytest.mark.parametrize("name", SLICED)
def test_a_scenario_is_the_same_turn_over_either_transport(name: str) -> None:
    pack = shipped()
    scenario = read_scenario(pack.scenario(name))
    recorded = {door: compared(columns) for door, columns in read_transcript(pack.transcript(name)).items()}
    framed = {door: compared(columns) for door, columns in play(scenario, name, change=over_websocket).items()}
    if name in OTHERWISE:
        assert framed != recorded, "it is the same: take it from the table"
    else:
        assert framed == recorded
