"""Going on from what a connection remembers (W10): what is remembered, the way of a continuation, its full input. Pure.

    a turn that completed --remembered--> Remembered: its effective input and its output items, as they were written
    a continuation of it  --path_of----> SOCKET    the upstream's own socket holds the response: the frame as it came
                                         EXPANDED  a warm-up, or stored nowhere: what was remembered before its input
                                         ORIGIN    neither: the route that stored the response knows it (O2)

Law of the bytes: items are cut out of requests and events where they stand, and put behind each other; nothing that a
client or an upstream wrote is written anew (E10, H3). Two things are not items as they came: a text that is the whole
input becomes the user's message around that very text, and a reasoning item that has neither content nor encrypted
content is left out, for it only refers to what was stored nowhere, and every upstream refuses it.

What a warm-up prepared (its tools and instructions) holds for what goes on from it, until a request says otherwise; of
any other response only the items go on, as the API has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, NamedTuple

from gateway.core.contents import NOTHING, Part, contents_of, continued
from gateway.core.eligibility import STORED, StatePolicy, eligibility
from gateway.core.events import ITEM_DONE, JSON_WHITESPACE, Event, EventClass, member, response_id
from gateway.core.money import InputMeasure
from gateway.core.request import MalformedBody, RequestBody, TurnRequest

PREVIOUS: Final = "previous_response_id"
PREPARED: Final = ("tools", "instructions")
"""What a warm-up prepares beside its input."""
WHITESPACE: Final = JSON_WHITESPACE.decode()
OUTPUT: Final = EventClass.OUTPUT
"""By a name of its own: it is asked for with every event."""
AROUND_ITEMS_BYTES: Final = 65_536
"""What events have around their items: some hundred bytes each."""
Item = tuple[bytes, Any]
"""As it was written, and its value."""


class Prepared(NamedTuple):
    """A member of a warm-up, as it was written, and what it holds (S5, S6, B4)."""

    name: str
    text: str
    holds: Part


@dataclass(frozen=True, slots=True)
class Remembered:
    """A completed response and all that led to it."""

    response_id: str
    items: tuple[bytes, ...] = field(repr=False)
    """The effective input and the output: items with commas between them, in pieces."""
    holds: Part = field(repr=False)
    """What these items hold (S5, S6, B4)."""
    is_warm_up: bool = False
    is_stored: bool = False
    """S1, as far as the request says it."""
    says_store: bool = True
    """S1: if not, its route's default decides."""
    prepared: tuple[Prepared, ...] = field(default=(), repr=False)
    """What warm-ups prepared."""

    @property
    def size_bytes(self) -> int:
        """What it takes."""
        return sum(map(len, self.items)) + sum(len(one.text) for one in self.prepared)


class Path(Enum):
    """Which way a continuation goes."""

    SOCKET = "socket"
    EXPANDED = "expanded"
    ORIGIN = "origin"


def path_of(*, is_held: bool, is_expandable: bool) -> Path:
    """W10: the socket that holds the response before anything else; what is stored is not expanded."""
    if is_held:
        return Path.SOCKET
    return Path.EXPANDED if is_expandable else Path.ORIGIN


def is_expandable(remembered: Remembered, *, stores_by_default: bool) -> bool:
    """W10: a warm-up, or what is stored nowhere. `stores_by_default` is its route's (S1)."""
    return remembered.is_warm_up or not (remembered.is_stored and (remembered.says_store or stores_by_default))


# --- expanding --------------------------------------------------------------------------------------------------


def expanded(request: TurnRequest, remembered: Remembered, policy: StatePolicy) -> TurnRequest | None:
    """The continuation with its full input, for any route; None if its own input is none of items."""
    own = items_of(request.body)
    if own is None:
        return None
    items = b",".join(piece for piece in (*remembered.items, own) if piece).decode()
    added, beside = _added(request.body, remembered)
    contents = continued(request.body.contents, remembered.holds, beside)
    body = request.body.rewritten({**added, "input": f"[{items}]"}, (PREVIOUS,), contents)
    return replace(
        request,
        body=body,
        stateful_reasons=eligibility(body, dict(request.headers), policy),
        counts_as_continuation=not policy.replay_expanded_continuations,
    )


def prepared(request: TurnRequest, remembered: Remembered, policy: StatePolicy) -> TurnRequest:
    """The continuation for the route that stored the response: it does not know what a warm-up prepared here."""
    added, beside = _added(request.body, remembered)
    if not added:
        return request
    body = request.body.rewritten(added, (), continued(request.body.contents, NOTHING, beside))
    return replace(request, body=body, stateful_reasons=eligibility(body, dict(request.headers), policy))


def _added(body: RequestBody, remembered: Remembered) -> tuple[Mapping[str, str], Part]:
    """What a warm-up prepared and the request does not say anew, and what that holds."""
    added = [one for one in remembered.prepared if one.name not in body.members]
    holds = NOTHING
    for one in added:
        holds = one.holds.behind(holds)
    return {one.name: one.text for one in added}, holds


def input_measure(request: TurnRequest, remembered: Remembered | None) -> InputMeasure:
    """B4, B6: what a model reads for a request: where its upstream has what went before, that too."""
    own = request.body.contents.measure
    if remembered is None or not request.body.get(PREVIOUS):
        return own
    _, beside = _added(request.body, remembered)
    return Part(measure=own).behind(remembered.holds).behind(beside).measure


def items_of(body: RequestBody) -> bytes | None:
    """A request's own input as items, empty for none of it; None if it is something else."""
    text = body.text_of("input") or "null"
    if text.startswith('"'):
        return f'{{"type":"message","role":"user","content":{text}}}'.encode()
    if text.startswith("["):
        return text[1:-1].strip(WHITESPACE).encode()
    return b"" if text == "null" else None


# --- remembering ------------------------------------------------------------------------------------------------


class Heard:
    """What a turn's client was given, as far as it is worth remembering: items by reference, while they stream by."""

    def __init__(self, bytes_max: int) -> None:
        self.ending: Event | None = None
        self.has_failed = False
        self._bytes_max = bytes_max + AROUND_ITEMS_BYTES
        self._done: list[bytes] = []
        self._bytes = 0
        self._saw_output = False

    def __repr__(self) -> str:
        return f"<Heard {len(self._done)} items, failed={self.has_failed}>"

    @property
    def size_bytes(self) -> int:
        """How much there is to be read."""
        return self._bytes + (0 if self.ending is None else len(self.ending.data))

    def note(self, events: Iterable[Event]) -> None:
        """These were delivered. Nothing is parsed, and no more is kept than may be remembered."""
        for event in events:
            if event.kind is OUTPUT:
                self._saw_output = True
                if event.type == ITEM_DONE:
                    self._keep(event.data)
            elif event.kind is EventClass.TERMINAL:
                self.ending = event if event.type == "response.completed" else None
                self.has_failed = event.type == "response.failed"
            elif event.kind is EventClass.ERROR:
                self.has_failed = True

    def _keep(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > self._bytes_max:
            self._done.clear()
        else:
            self._done.append(data)

    def output(self) -> tuple[bytes, Part] | None:
        """The output items, behind each other, and what they hold; None if they are not known. Backends tell them as
        they are done, in the terminal event, or in both: the fuller one counts."""
        if self.ending is None or self._bytes > self._bytes_max:
            return None
        told = member(self.ending.body, "response", "output")
        count = len(told) if isinstance(told, list) else 0
        try:
            found = _told_at_the_end(self.ending) if count > len(self._done) else _in_their_places(self._done)
        except (MalformedBody, KeyError):
            return None
        if self._saw_output and not found:
            return None
        kept = [(text, value) for text, value in found if not _refers_only(value)]
        return b",".join(text for text, _ in kept), contents_of({"input": [value for _, value in kept]}).of_input


def _in_their_places(done: Sequence[bytes]) -> list[Item]:
    """The items of their events: in the order of the output where all tell their place in it, else as they came."""
    events = [RequestBody(data) for data in done]
    if all(type(event.get("output_index")) is int for event in events):
        events.sort(key=lambda event: event.members["output_index"].value)
    return [((event.text_of("item") or "").encode(), event.members["item"].value) for event in events]


def _told_at_the_end(event: Event) -> list[Item]:
    """The items of the terminal event's response: each is an element of a list, cut out where it stands."""
    response = RequestBody((RequestBody(event.data).text_of("response") or "").encode())
    found = response.members["output"]
    return _elements(response.text, found.value_start, found.value)


def _elements(text: str, start: int, values: Sequence[Any]) -> list[Item]:
    position = start + 1
    elements: list[Item] = []
    for value in values:
        while text[position] in f"{WHITESPACE},":
            position += 1
        end = _DECODER.raw_decode(text, position)[1]
        elements.append((text[position:end].encode(), value))
        position = end
    return elements


_DECODER: Final = json.JSONDecoder()


def _refers_only(item: Any) -> bool:
    """A reasoning item of which nothing but its id is there."""
    if not isinstance(item, Mapping) or item.get("type") != "reasoning":
        return False
    return not item.get("content") and not item.get("encrypted_content")


def is_self_contained(request: TurnRequest, parent: Remembered | None) -> bool:
    """Whether all that a request goes on from is here: nothing, or what is remembered."""
    body = request.body
    if body.get("conversation") is not None or member(body.get("prompt"), "id") is not None:
        return False
    return parent is not None or not body.get(PREVIOUS)


def remembered(request: TurnRequest, parent: Remembered | None, heard: Heard, bytes_max: int) -> Remembered | None:
    """What is remembered of a turn that completed; None if that is not all of it, or too much. `request` is as the
    client made it."""
    name = None if heard.ending is None else response_id(heard.ending.body)
    own = items_of(request.body)
    if name is None or own is None or not is_self_contained(request, parent):
        return None
    output = heard.output()
    if output is None:
        return None
    earlier = () if parent is None else parent.items
    made = Remembered(
        response_id=name,
        items=(*earlier, *(piece for piece in (own, output[0]) if piece)),
        holds=output[1].behind(request.body.contents.of_input.behind(NOTHING if parent is None else parent.holds)),
        is_warm_up=request.is_warm_up,
        is_stored=STORED in request.stateful_reasons,
        says_store=request.body.get("store") is not None,
        prepared=tuple(_prepared(request, parent)),
    )
    return made if made.size_bytes <= bytes_max else None


def _prepared(request: TurnRequest, parent: Remembered | None) -> Iterable[Prepared]:
    for earlier in () if parent is None else parent.prepared:
        if earlier.name not in request.body.members:
            yield earlier
    for name in PREPARED:
        own = (request.body.text_of(name) or "null") if request.is_warm_up else "null"
        if own != "null":
            yield Prepared(name, own, contents_of({name: request.body.get(name)}))
