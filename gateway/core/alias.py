"""M3: where a route calls the model by another name, the client still reads its own, by splice and nothing else.

Only lifecycle and terminal events carry a response; all other events pass untouched, and unparsed.
"""

from __future__ import annotations

from typing import Final

from gateway.core.events import Event, EventClass
from gateway.core.request import MalformedBody, RequestBody

LEADS: Final = (b"\ndata: ", b"\rdata: ", b"\ndata:", b"\rdata:")
"""What a payload of one line may follow."""
CARRY_A_RESPONSE: Final = (EventClass.LIFECYCLE, EventClass.TERMINAL)


def with_model(event: Event, model: str) -> Event:
    """The event as the client shall see it: `response.model` is `model`, every other byte as it came."""
    if event.kind not in CARRY_A_RESPONSE:
        return event
    data = _respelled_body(event.data, model) if event.is_whole else _respelled(event.data, model)
    if data is None or event.body is None:
        return event
    body = {**event.body, "response": {**event.body["response"], "model": model}}
    return Event(event.kind, event.type, data, _block_around(event, data), body, event.is_whole)


def _respelled(data: bytes, model: str) -> bytes | None:
    """The payload with the model's name in the client's words; None where there is no name to replace."""
    try:
        payload = RequestBody(data)
        response = payload.members.get("response")
        if response is None:
            return None
    except MalformedBody:
        return None
    spliced = _respelled_body(payload.text[response.value_start : response.value_end].encode(), model)
    if spliced is None:
        return None
    return payload.text[: response.value_start].encode() + spliced + payload.text[response.value_end :].encode()


def _respelled_body(data: bytes, model: str) -> bytes | None:
    """The same for a bare response."""
    try:
        response = RequestBody(data)
    except MalformedBody:
        return None
    if not isinstance(response.get("model"), str) or response.get("model") == model:
        return None
    return response.spliced(replaced={"model": model})


def _block_around(event: Event, data: bytes) -> bytes:
    """The block with its payload replaced; a payload of several data lines becomes as many again."""
    if event.block == event.data:
        return data
    at = _payload_start(event)
    if at is not None:
        return event.block[:at] + data + event.block[at + len(event.data) :]
    lines = b"".join(b"data: " + line + b"\n" for line in data.split(b"\n"))
    return b"event: " + event.type.encode() + b"\n" + lines + b"\n"


def _payload_start(event: Event) -> int | None:
    """Where in its block the payload stands, behind the field's name that begins a line: a comment, or another field,
    may repeat it. None if it has several lines."""
    if b"\n" in event.data:
        return None
    block = b"\n" + event.block
    for lead in LEADS:
        at = block.find(lead + event.data)
        if at >= 0:
            return at + len(lead) - 1
    return None
