"""Background turns (B9): the response goes on upstream when its stream has ended, and with it the money stays set aside
until a terminal state is seen: by the stream, by a by-id call, or by the gateway's own poll. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.core.events import UNENDED, JsonObject, response_id
from gateway.core.messages import Finish
from gateway.core.money import Ended, EndedBy, Price, read_usage

ENDINGS: Final[Mapping[str, EndedBy]] = {
    "completed": EndedBy.TERMINAL,
    "incomplete": EndedBy.TERMINAL,
    "cancelled": EndedBy.TERMINAL,
    "failed": EndedBy.UPSTREAM_OR_CLIENT,
}
"""The states that a response does not leave, and by whom B3 takes it to be ended."""
FAILED_TYPE: Final = "response.failed"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Which upstream stands behind a route's name: `place` tells hosts and accounts apart, and nobody else is asked
    about a response. `access` tells keys and headers apart: keys are rotated, so who has another one may be asked, but
    knows nothing by not knowing the response, for the key may be another account's. Both are digests."""

    place: str
    access: str


@dataclass(frozen=True, slots=True)
class BackgroundTurn:
    """A turn whose response goes on: who has it, and what its end is charged by, as they were when it began (C2). Of
    turns that an earlier version kept `fingerprint` and `price` are None. `age_seconds` and `is_due`, for a poll, are
    as of when it was looked up."""

    turn_id: str
    account: str
    response_id: str
    route: str
    reserved_nanodollars: int
    input_tokens: int
    text_bytes: int = 0
    fingerprint: Fingerprint | None = None
    price: Price | None = None
    age_seconds: float = 0.0
    is_due: bool = False


def goes_on(finish: Finish) -> str | None:
    """The id of a background response whose stream or body has ended and which has not; None if there is none."""
    if finish.report is None or finish.report.response_id is None:
        return None
    if finish.outcome in UNENDED:
        return finish.report.response_id
    if finish.ended.by is EndedBy.TERMINAL:
        return None
    told = () if finish.failure is None else finish.failure.events
    return None if any(event.type == FAILED_TYPE for event in told) else finish.report.response_id


def end_seen(response: JsonObject, text_bytes: int) -> Ended | None:
    """What a response object says of the end of its turn, None if it has not ended. What was delivered of it, to whom
    and when, is not known: that it has output is taken for its delivery."""
    status = response.get("status")
    by = ENDINGS.get(status) if isinstance(status, str) else None
    if by is None:
        return None
    usage = read_usage(response.get("usage"))
    return Ended(by, bool(response.get("output")), usage, status == "failed", text_bytes)


def end_unseen(turn: BackgroundTurn) -> Ended:
    """The end of a turn of which nothing will be known any more: the estimate (B9)."""
    return Ended(EndedBy.UPSTREAM_OR_CLIENT, True, None, failed=False, delivered_text_bytes=turn.text_bytes)


def may_know(fingerprint: Fingerprint, turn: BackgroundTurn) -> bool:
    """Whether what this upstream says of the turn's response is of that response."""
    return turn.fingerprint is None or turn.fingerprint.place == fingerprint.place


def would_know(fingerprint: Fingerprint, turn: BackgroundTurn) -> bool:
    """Whether a response that this upstream does not know is no more."""
    return turn.fingerprint is None or turn.fingerprint == fingerprint


def names(response: JsonObject, turn: BackgroundTurn) -> bool:
    """Whether the object is the turn's response."""
    return response_id({"response": response}) == turn.response_id
