"""Plays for the property tests: what upstreams do, what the client does, through which door, under which task order.

A play is data, made by hypothesis: so a failing one is small, and its repr is a bug report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from gateway.core.messages import Headers
from gateway.upstream.scripted import EVENT_STREAM, JSON_BODY, Break, Reply, Silence, Step
from gateway.upstream.scripts import event, response_object, usage_object

CONNECT_SECONDS = 5.0
"""T3."""
LIMITS = (0.25, 10.0, 25.0, 60.0, 300.0)
"""T9, T1, T2, T6, T4."""
INSTANTS = tuple(sorted({0.0, 0.001, 0.1, 1.0, 5.0, *(limit + d for limit in LIMITS for d in (-0.001, 0.0, 0.001))}))

TERMINAL_TYPES = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
LIFECYCLE_TYPES = ("response.created", "response.in_progress", "response.queued")
NEUTRAL_TYPES = ("keepalive", "codex.rate_limits", "response.metadata")
OUTPUT_TYPES = ("response.output_text.delta", "response.output_item.added", "response.unknown")
NOISE = (b": ping\n\n", b"data: [DONE]\n\n", b"event: keepalive\n\n", b"data: 7\n\n", b"data: {broken\n\n", b"\n\n")


@dataclass(frozen=True)
class Said:
    """One event that an upstream says: its type, its unlikely properties, and a pause in the middle of its bytes."""

    type: str
    code: str | None = None
    usage: object = None
    is_utf8: bool = True
    cut_pause: float | None = None


@dataclass(frozen=True)
class Part:
    """What one upstream does when it is called. `moves` are events, pauses, and bytes that are no events."""

    moves: Sequence[Said | float | bytes] = ()
    ending: str = "eof"
    status: int = 200
    refuses: bool = False
    connect_seconds: float = 0.0
    head_seconds: float = 0.0


@dataclass(frozen=True)
class Manners:
    """What the client does: it leaves (or closes its sending side only) at a time, stalls, and reads again or not."""

    leaves_at: float | None = None
    half_closes: bool = False
    stalls_at: float | None = None
    stalls_for: float = 0.0

    @property
    def reads_to_the_end(self) -> bool:
        """Nothing that is written stays unread."""
        return self.leaves_at is None and self.stalls_at is None


@dataclass(frozen=True)
class Play:
    """A whole turn's circumstances."""

    parts: tuple[Part, ...]
    manners: Manners
    door: str
    store: bool
    order: int
    starts_early: bool


ENDINGS: Mapping[str, Sequence[Step]] = {
    "eof": (),
    "half an event": (b'data: {"type":"response.comp',),
    "reset": (Break(),),
    "reset in an event": (b'data: {"type":"response.comp', Break()),
    "silence": (Silence(),),
}


# --- from a part to a reply -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One event of a part as it goes over the wire: its mark, which is nowhere else, and when its last byte is sent,
    in seconds from the call."""

    mark: str
    said: Said
    block: bytes
    at: float


def lines_of(part: Part, route: str) -> list[Line]:
    """The part's events, in order; none where it is a status, or cannot be reached."""
    is_stream = part.status == 200 and not part.refuses and part.connect_seconds < CONNECT_SECONDS
    return _lines_of_stream(part, route) if is_stream else []


def _lines_of_stream(part: Part, route: str) -> list[Line]:
    lines: list[Line] = []
    at = part.connect_seconds + part.head_seconds
    for move in part.moves:
        if isinstance(move, Said):
            at += move.cut_pause or 0.0
            mark = f"{route}-{len(lines)}"
            lines.append(Line(mark, move, _block(move, route, mark, len(lines)), at))
        elif isinstance(move, float):
            at += move
    return lines


def reply_of(part: Part, route: str) -> Reply:
    """The part as the scripted upstream plays it."""
    if part.status != 200:
        body = json.dumps({"error": {"message": f"failure of_{route}", "type": "t", "code": "some_code"}}).encode()
        return Reply((body,), status=part.status, headers=JSON_BODY, head_seconds=part.head_seconds)
    lines = iter(_lines_of_stream(part, route))
    steps: list[Step] = []
    for move in part.moves:
        steps += _cut(next(lines).block, move.cut_pause) if isinstance(move, Said) else [move]
    steps += ENDINGS[part.ending]
    headers: Headers = (*EVENT_STREAM, ("x-request-id", f"req_of_{route}"))
    return Reply(
        steps,
        headers=headers,
        refuses=part.refuses,
        connect_seconds=part.connect_seconds,
        head_seconds=part.head_seconds,
    )


def _cut(block: bytes, pause: float | None) -> list[Step]:
    middle = len(block) // 2
    return [block] if pause is None else [block[:middle], pause, block[middle:]]


def _block(said: Said, route: str, mark: str, number: int) -> bytes:
    fields: dict[str, Any] = {"mark": mark, "sequence_number": number}
    if said.type == "error":
        fields["error"] = {"code": said.code, "message": "failure"}
    elif said.type in (*TERMINAL_TYPES, *LIFECYCLE_TYPES):
        status = said.type.removeprefix("response.")
        fields["response"] = response_object(f"resp_of_{route}", status, usage=said.usage)
        fields["response"]["error"] = {"code": said.code, "message": "failure"} if status == "failed" else None
    else:
        fields["delta"] = f"word of_{route}"
    block = event(said.type, **fields)
    return block if said.is_utf8 else block.replace(b"word", b"wor\xff")


# --- strategies -----------------------------------------------------------------------------------------------------

CODES = st.sampled_from(["server_error", "invalid_prompt", "timeout_error", "insufficient_quota", "strange", None])
USAGE = usage_object(7, 3)
USAGES = st.sampled_from([None, None, USAGE, usage_object(0, 0), {"input_tokens": "4"}, {"output_tokens": 2}])


def weighted(*weights: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """One of the strategies, each as often as its weight says; `one_of` would take the same one only once."""
    return st.sampled_from([strategy for weight, strategy in weights for _ in range(weight)]).flatmap(_itself)


def _itself(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return strategy


def _then_fail(moves: list[Said | float | bytes]) -> list[Said | float | bytes]:
    """Events behind which the upstream says that it is overloaded: what a replay is for."""
    return [*moves, Said("error", "server_error"), Said("response.failed", "server_error")]


INSTANT = st.sampled_from(INSTANTS)
SHORT = st.sampled_from([0.0, 0.001, 0.1, 0.249, 0.25, 0.251, 1.0])
CUTS = weighted((5, st.none()), (1, st.sampled_from([0.0, 0.1, 10.0])))

LIFECYCLE = st.builds(Said, st.sampled_from(LIFECYCLE_TYPES), cut_pause=CUTS)
NEUTRAL = st.builds(Said, st.sampled_from(NEUTRAL_TYPES))
OUTPUT = st.builds(Said, st.sampled_from(OUTPUT_TYPES), is_utf8=st.sampled_from([True] * 8 + [False]), cut_pause=CUTS)
FAILING = st.builds(Said, st.sampled_from(["error", "response.failed"]), code=CODES, usage=USAGES)
ENDING = st.builds(
    Said, st.sampled_from(["response.completed", "response.incomplete", "response.cancelled"]), usage=USAGES
)
NOISES = st.sampled_from(NOISE)
BEFORE_OUTPUT = weighted((5, LIFECYCLE), (2, NEUTRAL), (3, SHORT), (1, INSTANT), (1, NOISES))
MOVE = weighted(
    (4, LIFECYCLE), (2, NEUTRAL), (8, OUTPUT), (2, FAILING), (1, ENDING), (4, SHORT), (2, INSTANT), (1, NOISES)
)
WHOLE = st.tuples(st.lists(MOVE, max_size=6), ENDING).map(lambda both: [*both[0], both[1]])
FAILED = st.lists(BEFORE_OUTPUT, max_size=4).map(_then_fail)
MOVES = weighted((3, st.lists(MOVE, max_size=10)), (2, WHOLE))

ENDING_NAMES = st.sampled_from(list(ENDINGS))
HEAD_SECONDS = st.sampled_from([0.0, 1.0, 24.999, 25.0, 25.001])
AT_ONCE = st.builds(Part, MOVES, ENDING_NAMES)
SLOW = st.builds(
    Part, MOVES, ENDING_NAMES, connect_seconds=st.sampled_from([0.0, 4.999, 5.0]), head_seconds=HEAD_SECONDS
)
OVERLOADED = st.builds(Part, FAILED)
STATUSES = st.builds(Part, status=st.sampled_from([400, 401, 429, 500, 503, 504]), head_seconds=HEAD_SECONDS)
REFUSES = st.just(Part(refuses=True))
PARTS = weighted((12, AT_ONCE), (2, SLOW), (1, STATUSES), (1, REFUSES))
FIRST_PARTS = weighted((4, AT_ONCE), (5, OVERLOADED), (1, SLOW), (1, STATUSES), (1, REFUSES))

LEAVES = st.builds(Manners, leaves_at=INSTANT, half_closes=st.booleans())
STALLS = st.builds(Manners, stalls_at=INSTANT, stalls_for=INSTANT)
DOES_BOTH = st.builds(Manners, leaves_at=INSTANT, half_closes=st.booleans(), stalls_at=INSTANT, stalls_for=INSTANT)
MANNERS = weighted((4, st.just(Manners())), (1, LEAVES), (1, STALLS), (1, DOES_BOTH))
PLAYS = st.builds(
    Play,
    weighted((1, st.tuples(PARTS)), (2, st.tuples(FIRST_PARTS, PARTS))),
    MANNERS,
    st.sampled_from(["http", "websocket"]),
    store=st.sampled_from([False] * 6 + [True]),
    order=st.integers(0, 99),
    starts_early=st.booleans(),
)
