"""An answer that is a stream of server-sent events, on its way to its turn (E, P6).

    bytes --decoded--> SSEParser --events--> batch --take--> past the turn's tasks to its client, now   (ports.Inputs)
                                              |
                                              +-----send---> the turn                      where that takes a wait

What comes is handed over as it comes, without a wake-up of this attempt's task, for as long as it can be: output behind
output, to a client that takes it at once. The task goes on where something has to wait, or takes long, and at the end.
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial

import structlog
import trio

from gateway import limits
from gateway.aside import Aside
from gateway.core.events import Event, EventClass
from gateway.core.failures import Failure
from gateway.core.messages import Batch
from gateway.core.sse import BlockTooLarge, SSEParser, read_block
from gateway.encodings import Decoder, Identity
from gateway.ports import Inputs
from gateway.upstream.answers import read_error, too_large, why
from gateway.upstream.calls import READ_ERROR, Answer, Broken

logger = structlog.get_logger("gateway.upstream")

Taken = tuple[list[Event], BlockTooLarge | None]
"""Events in their order, and why there can be no more."""


class EventStream:
    """One answer's. What is megabytes long is read by `aside`."""

    __slots__ = ("_answer", "_aside", "_at", "_decoder", "_inputs", "_is_plain", "_left", "_parser")

    def __init__(self, answer: Answer, decoder: Decoder, inputs: Inputs, event_bytes_max: int, aside: Aside) -> None:
        self._answer = answer
        self._decoder = decoder
        self._is_plain = isinstance(decoder, Identity)
        self._inputs = inputs
        self._aside = aside
        self._parser = SSEParser(event_bytes_max, limits.INLINE_BODY_BYTES_MAX)
        self._left: bytes | Taken | None = None
        """What has come and was not handed over: events, or bytes of which none were read yet, b"" at the end."""
        self._at = -math.inf
        """When it was seen to."""

    def __repr__(self) -> str:
        return f"<EventStream of {self._answer!r}, {self._parser}>"

    async def run(self, turn_id: str) -> Failure | None:
        """To its end: None after a terminal event, else why it ended without one. Raises Broken, EncodingError."""
        try:
            while True:  # noqa: ASYNC913 - it goes round only behind a read
                try:
                    await self._answer.pass_on(self._take)
                except OSError:
                    raise Broken(why(READ_ERROR)) from None
                self._at = trio.current_time()  # all is seen to from here on: a clock that ran out before has won
                if self._left == b"":
                    self._decoder.end()
                    return await self._end()
                if self._left is not None and await self._send_left():
                    await _drain(self._answer)
                    return None
        except BlockTooLarge as error:
            return too_large(str(error))
        finally:
            _log_what_was_not_forwarded(self._parser, turn_id)

    def _take(self, chunk: bytes, at: float) -> bool:
        """What one read brought, handed over now; False if there is something to wait for, or nothing more comes."""
        if not (chunk and self._is_plain):
            self._left = chunk
            return False
        self._parser.receive_data(chunk)
        events, too_large = taken = _take_events(self._parser)
        is_all = too_large is None and self._parser.long_block is None and len(events) < limits.BATCH_EVENTS_MAX
        if is_all and (not events or self._inputs.take(Batch(events), at)):
            return True
        self._left = taken
        return False

    async def _send_left(self) -> bool:
        """Send what came, in a frame of its own: nothing of it is kept while more is waited for. Whether the terminal
        event was in it."""
        left, self._left = self._left, None
        if isinstance(left, tuple):
            return await self._send_events(left)
        for piece in self._decoder.decode(left or b""):
            self._parser.receive_data(piece)
            if await self._send_events(_take_events(self._parser)):
                return True
        return False

    async def _send_events(self, taken: Taken) -> bool:
        """Send all complete events in batches; whether the last one is terminal. Raises BlockTooLarge behind them."""
        parser = self._parser
        while True:  # noqa: ASYNC913 - it goes round only behind a send, or a block that was read
            events, too_large = taken
            if events:
                await self._inputs.send((Batch(events), self._at))
            if too_large is not None:
                raise too_large
            if events and events[-1].kind is EventClass.TERMINAL:
                return True
            if parser.long_block is not None:
                if await self._send_long(parser.long_block):
                    return True
            elif len(events) < limits.BATCH_EVENTS_MAX:
                return False
            taken = _take_events(parser)

    async def _send_long(self, block: bytes) -> bool:
        """The same for one event of megabytes, which takes longer to read than others may wait."""
        self._parser.long_block = None
        event = await self._aside.run(len(block), partial(read_block, block))
        if event is None:
            self._parser.not_events += 1
            return False
        await self._inputs.send((Batch([event]), self._at))
        return event.kind is EventClass.TERMINAL

    async def _end(self) -> Failure | None:
        event = await self._aside.run(self._parser.pending_bytes, partial(self._parser.receive_end, clean=True))
        if event is not None:
            await self._inputs.send((Batch([event]), self._at))
            if event.kind is EventClass.TERMINAL:
                return None
        return read_error("the upstream ended the stream without a terminal event")


def _take_events(parser: SSEParser) -> Taken:
    """Up to a batch of events, none behind a terminal one (E9)."""
    try:
        return parser.next_events(limits.BATCH_EVENTS_MAX), None
    except BlockTooLarge as error:
        return error.events, error


def _log_what_was_not_forwarded(parser: SSEParser, turn_id: str) -> None:
    """E7, E9: blocks that were no events (comments too), and events that came in one read with the terminal one."""
    behind = 0
    with suppress(BlockTooLarge):
        while parser.next_event() is not None or parser.long_block is not None:
            parser.long_block = None
            behind += 1
    if behind or parser.not_events:
        logger.info(
            "not_forwarded", turn_id=turn_id, blocks_without_event=parser.not_events, events_behind_the_end=behind
        )


async def _drain(answer: Answer) -> None:
    """E9: read to the body's end, so that the connection can serve again; a break says nothing any more. The turn
    bounds the wait."""
    with suppress(Broken):
        while await answer.read():
            pass
