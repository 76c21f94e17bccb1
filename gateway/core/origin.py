"""Where a request belongs that cannot be served anywhere (O2, O3): what ties it to a route. Pure.

previous_response_id   the route that made the response, or none at all (O2)
x-codex-turn-state     the route that gave it: the client holds it for no other
what S5 binds          the route that made the newest of it that is known; else the one that its affinity chooses
conversation           the same, by the conversation's id

A route is what its name stands for: once that is another upstream (C2), the one that is known is not there any more.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Final

from gateway.core.background import Fingerprint
from gateway.core.eligibility import CONTINUATION, ORIGIN_BOUND, TURN_STATE_HEADER
from gateway.core.failures import Refusal
from gateway.core.marks import CONVERSATION, TURN_STATE, conversation_id, mark
from gateway.core.request import WHITESPACE, RequestBody, TurnRequest

_DECODER: Final = json.JSONDecoder()
AFFINITY_CHARACTERS_MAX: Final = 65_536
"""What is hashed in some 50 µs."""
BINDING: Final = frozenset({CONTINUATION, ORIGIN_BOUND})
"""Reasons of R10 for which a request is not any route's."""


@dataclass(frozen=True, slots=True)
class Bond:
    """What ties a request to a route: the response it continues, or what may be known by its marks, the newest first.
    Where nothing is known, requests of one affinity go to one route."""

    response_id: str | None = None
    marks: tuple[str, ...] = ()
    affinity: str = ""


@dataclass(frozen=True, slots=True)
class Maker:
    """The route that made something, and which upstream it was then (Fingerprint.place). Of what an earlier version
    learned that is not known, and the name alone tells."""

    route: str
    place: str | None = None

    def is_still(self, route: str, now: Fingerprint | None) -> bool:
        """O2, C2: whether this is the route, and the same upstream still; a rotated key changes nothing."""
        return self.route == route and (self.place is None or now is None or self.place == now.place)


def bond_of(request: TurnRequest) -> Bond | None:
    """What ties the request to a route, None if nothing does. Raises Refusal `invalid_request`."""
    if BINDING.isdisjoint(request.stateful_reasons):
        return None
    body = request.body
    response_id = body.get("previous_response_id")
    if response_id:
        if not isinstance(response_id, str):
            raise Refusal("invalid_request", "'previous_response_id' must be a text", param="previous_response_id")
        return Bond(response_id)
    conversation = conversation_id(body.get("conversation"))
    named = () if conversation is None else (mark(CONVERSATION, conversation),)
    states = tuple(mark(TURN_STATE, value) for name, value in request.headers if name == TURN_STATE_HEADER)
    return Bond(None, (*states, *named, *body.contents.marks), _affinity(body, conversation))


def _affinity(body: RequestBody, conversation: str | None) -> str:
    """O3: what stays the same from turn to turn."""
    key = body.get("prompt_cache_key")
    if conversation is not None:
        return conversation
    return _short(key if isinstance(key, str) and key else _first_item(body))


def _short(affinity: str) -> str:
    """It is hashed once for each route: where it is long, an image maybe, its digest stands for it."""
    if len(affinity) <= AFFINITY_CHARACTERS_MAX:
        return affinity
    return hashlib.sha256(affinity.encode("utf-8", "surrogatepass")).hexdigest()


def _first_item(body: RequestBody) -> str:
    """The first item of the input as it is written; the input itself where it is no list."""
    text = body.text_of("input") or ""
    if not text.startswith("["):
        return text
    found = WHITESPACE.match(text, 1)
    start = 1 if found is None else found.end()
    if text.startswith("]", start):
        return ""
    return text[start : _DECODER.raw_decode(text, start)[1]]
