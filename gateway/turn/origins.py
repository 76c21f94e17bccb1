"""Where responses, and what they left with their clients, were made: learned beside a turn, asked before one (O).

    events that a client gets --Traces--> what is new in them --Origins--> this process's memory, and the records
    a request --core.origin--> its bond --Origins--> the route that it belongs to, if that is known

The memory bridges the moment in which the records are being written, and it alone knows the responses that no upstream
stores: a WebSocket to an upstream remembers those for as long as it lasts (W10), and it is this process's own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from gateway import limits
from gateway.core.eligibility import TURN_STATE_HEADER
from gateway.core.events import ITEM_DONE, Event, member, parse_object, response_id
from gateway.core.failures import Refusal
from gateway.core.marks import CONVERSATION, TURN_STATE, conversation_id, mark, marks_of_item
from gateway.core.messages import Deliver, Head
from gateway.core.origin import Bond, Maker
from gateway.ports import LedgerUnavailable, Origin, Records
from gateway.turn.steps import Step

SEALED_KEY: Final = b'"encrypted_content"'
Key = tuple[str, str, str]
"""An account, which kind of name, and the name."""
RESPONSE: Final = "response"
MARK: Final = "mark"


NO_MARKS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Trace:
    """What is new in some events: a response's id, and marks."""

    response_id: str | None
    marks: tuple[str, ...]


class Traces:
    """What one turn's events tell of their origin. Whose response is stored nowhere has ids that nobody can resolve
    later; what it has sealed can be sent again (O3)."""

    __slots__ = ("_is_stored", "_marks", "_response_id", "_saw_head")

    def __init__(self, *, is_stored: bool) -> None:
        self._is_stored = is_stored
        self._saw_head = False
        self._response_id: str | None = None
        self._marks = NO_MARKS

    def __repr__(self) -> str:
        return f"<Traces of {self._response_id}, {len(self._marks)} marks>"

    def new(self, delivered: Deliver) -> Trace | None:
        """What has not been told yet. Deltas, and what else is no item, are not looked into."""
        telling = [event for event in delivered.events if event.body is not None or event.type == ITEM_DONE]
        named = None
        marks = self._marks_of_head(delivered.head)
        for event in telling:
            if event.body is not None:
                named = named or self._new_response(event)
                marks += self._marks_of_response(event)
            else:
                marks += self._marks_of_done(event)
        if not marks:
            return None if named is None else Trace(named, ())
        fresh = tuple(one for one in dict.fromkeys(marks) if one not in self._marks)
        fresh = fresh[: limits.TURN_MARKS_MAX - len(self._marks)]
        if fresh:
            self._marks = self._marks.union(fresh)
        return Trace(named, fresh) if named is not None or fresh else None

    def _marks_of_head(self, head: Head | None) -> list[str]:
        """The state that the client is to send back to this route. A head is told once."""
        if head is None or self._saw_head:
            return []
        self._saw_head = True
        return [mark(TURN_STATE, value) for name, value in head.headers if name == TURN_STATE_HEADER]

    def _new_response(self, event: Event) -> str | None:
        if self._response_id is None:
            self._response_id = response_id(event.body)
            return self._response_id
        return None

    def _marks_of_response(self, event: Event) -> Iterator[str]:
        response = member(event.body, "response")
        if type(response) is not dict:
            return
        conversation = conversation_id(response.get("conversation"))
        if conversation is not None:
            yield mark(CONVERSATION, conversation)
        output = response.get("output")
        for item in output if type(output) is list else ():
            yield from marks_of_item(item, is_stored=self._is_stored)

    def _marks_of_done(self, event: Event) -> Iterator[str]:
        """An item of megabytes holds an image; the terminal event names it again."""
        is_telling = self._is_stored or SEALED_KEY in event.data
        if is_telling and len(event.data) <= limits.TRACED_ITEM_BYTES_MAX:
            yield from marks_of_item(member(parse_object(event.data), "item"), is_stored=self._is_stored)


class Origins:
    """Where an account's responses and marks were made."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._recent: OrderedDict[Key, tuple[float, Origin]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Origins, {len(self._recent)} are recent>"

    # --- learning -----------------------------------------------------------------------------------------------

    def learn(
        self, told: Trace, account: str, maker: Maker, model: str, *, is_stored: bool, is_held: bool
    ) -> Mapping[str, Step]:
        """O1, O3: remember it, and the steps that make it last, for whoever serves the client's next request. A
        response that is neither stored nor held by a socket is nowhere, and not asked for anywhere (O2)."""
        steps: dict[str, Step] = {}
        if told.response_id is not None and (is_stored or is_held):
            origin = Origin(account, told.response_id, maker.route, model, maker.place, is_stored)
            self._remember((account, RESPONSE, told.response_id), origin)
            if is_stored:
                steps["learn_origin"] = partial(self._records.learn_origin, origin)
        for one in told.marks:
            self._remember((account, MARK, one), Origin(account, one, maker.route, place=maker.place))
        if told.marks:
            steps["learn_marks"] = partial(self._records.learn_marks, account, maker, told.marks)
        return steps

    def _remember(self, key: Key, origin: Origin) -> None:
        """The first stays, as in the records."""
        if self._recall(key) is None:
            self._recent[key] = (trio.current_time() + limits.CONNECTION_SECONDS_MAX, origin)
            self._recent.move_to_end(key)
            while len(self._recent) > limits.RECENT_ORIGINS_MAX:
                self._recent.popitem(last=False)

    def _recall(self, key: Key) -> Origin | None:
        until, origin = self._recent.get(key, (0.0, None))
        return origin if trio.current_time() < until else None

    def recent(self, account: str, named: str) -> Origin | None:
        """Where the account's response was made, as far as this process remembers it."""
        return self._recall((account, RESPONSE, named))

    # --- asking -------------------------------------------------------------------------------------------------

    async def of_response(self, account: str, named: str) -> Origin | None:
        """O2: where the account's response was made, None if that is not known. Raises Refusal
        `ledger_unavailable`."""
        known = self._recall((account, RESPONSE, named))
        if known is not None:
            return known
        try:
            return await self._records.origin(account, named)
        except LedgerUnavailable:
            raise _away() from None

    async def of_bond(self, account: str, bond: Bond, is_gone: Callable[[Maker], bool]) -> Maker | None:
        """The route that a request must go to, None if that is not known and it continues no response. What a route
        held on a socket went with it if the route `is_gone`: its client learns that it must send everything. Raises
        Refusal `previous_response_not_found` or `ledger_unavailable`."""
        if bond.response_id is None:
            return await self._of_marks(account, bond.marks)
        origin = await self.of_response(account, bond.response_id)
        if origin is None or not (origin.is_stored or not is_gone(origin.maker)):
            text = f"the response {bond.response_id[:64]!r} is not known here"
            raise Refusal("previous_response_not_found", text, param="previous_response_id")
        return origin.maker

    async def _of_marks(self, account: str, marks: Sequence[str]) -> Maker | None:
        """The newest that is known decides."""
        recent = {one: origin.maker for one in marks if (origin := self._recall((account, MARK, one))) is not None}
        if not marks or marks[0] in recent:
            return recent.get(marks[0]) if marks else None
        try:
            makers = {**await self._records.origins_of_marks(account, marks), **recent}
        except LedgerUnavailable:
            raise _away() from None
        return next((makers[one] for one in marks if one in makers), None)


def _away() -> Refusal:
    return Refusal("ledger_unavailable", "where the request belongs cannot be looked up while the ledger is away")
