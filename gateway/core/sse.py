"""Server-sent events on bytes, incremental and in linear time (P1–P7).

    receive_data(chunk)  ->  next_events() until none  ->  ...  ->  receive_end(clean=...) gives the last event, if any

- Lines end at CR, LF or CRLF, mixed, and nowhere else (P1): not at U+2028, U+2029, U+0085, VT or FF.
- A block is complete with its blank line, without waiting for another byte (P2). A line feed that turns out to belong
  to a carriage return already taken leads the next block, where it is one more blank line.
- A byte order mark is dropped once (P3). Comments, `[DONE]`, blocks without data and data that is no JSON object are
  not events: counted, never returned (P4, E7). Multi-line data is joined by LF (P5).
- At a clean end a pending block that parses counts, with its missing line ends added; after a reset it does not (P6).
- One block may have `block_bytes_max` bytes (P7); then `BlockTooLarge` is raised, and nothing more is returned.

    chunk:    ....|event: x\\ndata: {}\\n\\n|event: y\\nda      blocks are cut off at the cursor; what is left when no
                  ^ at                                     blank line follows moves to `pending`, once
"""

from __future__ import annotations

import math
import re
from typing import Final

from gateway.core.events import PARSED_TYPES, Event, EventClass, event_of, parse_object, read_event, read_parsed

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
BLANK_LINE: Final = re.compile(rb"[\r\n](?:\r\n?|(?<=\n)\n)")
"""A line end and the empty line's own: two of CR, LF and CRLF, with the LF of the last CRLF if it is there. CR LF alone
is one line end and does not match."""
PLAIN_BLOCK: Final = re.compile(
    rb'(?:event:.*+\n)?data: ?(\{ ?"type" ?: ?"(response\.[A-Za-z0-9_.]++)" ?[,}].*+)'
    rb"(?:(?<=\})\n\n|(?<=\}\r)\n\r\n)"
)
"""How an event stands at every known upstream: its payload in one line, its type in front."""
PLAIN_BLOCKS: Final = re.compile(rb"(%b)|[\s\S]++" % PLAIN_BLOCK.pattern)
"""Such blocks one behind the other, each found with its payload and its type; then all the rest at once, without
either. So what is odd is never searched for something plain, and a byte is looked at once."""
BURST_BYTES_MIN: Final = 4096
"""From here on a chunk holds enough events for one look at all of them: 0.9 us an event, where each by itself costs
1.7. It is taken where the chunk's first output stands: what begins a turn is parsed, and stands before it."""
LINE_END: Final = re.compile(rb"\r\n|\r|\n")
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,256}")


def sse_block(event_type: str, payload: bytes) -> bytes:
    """E10: a payload as a block: its type if that is a plain name, and one `data` line for each line of it."""
    name = b"event: " + event_type.encode() + b"\n" if PLAIN_NAME.fullmatch(event_type) else b""
    if b"\n" not in payload and b"\r" not in payload:
        return name + b"data: " + payload + b"\n\n"
    return name + b"".join(b"data: " + line + b"\n" for line in LINE_END.split(payload)) + b"\n"


def read_framed(payload: bytes) -> Event | None:
    """E10: the event in a WebSocket's frame, or None where there is none (E7): the frame is the payload, and an HTTP
    client gets it as a block."""
    event = read_event(payload, b"")
    if event is None:
        return None
    kind, event_type, data, _, body, is_whole = event
    return event_of((kind, event_type, data, sse_block(event_type, payload), body, is_whole))


class BlockTooLarge(Exception):
    """P7: one block passed the limit. `events` are those that one look found before it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.events: list[Event] = []


class SSEParser:
    """One stream's bytes in, its events out. `not_events` counts the blocks that were none (E7). A block of more than
    `inline_bytes_max` is left as `long_block` to whoever asks for the next event."""

    __slots__ = (
        *("_at", "_block_bytes_max", "_chunk", "_has_carriage_returns", "_inline_bytes_max", "_mark", "_pending"),
        *("_scanned", "long_block", "not_events"),
    )

    def __init__(self, block_bytes_max: int, inline_bytes_max: float = math.inf) -> None:
        self._block_bytes_max = block_bytes_max
        self._inline_bytes_max = inline_bytes_max
        self._chunk = b""
        self._at = 0
        self._pending = bytearray()
        self._scanned = 0
        self._mark: bytes | None = b""
        """What may become a byte order mark; None once the stream has begun."""
        self._has_carriage_returns = False
        self.not_events = 0
        self.long_block: bytes | None = None
        """The next block, which is too long to be read here. Whoever reads it puts None in its place."""

    def __repr__(self) -> str:
        return f"<SSEParser {self.pending_bytes} bytes pending, {self.not_events} blocks were no events>"

    @property
    def pending_bytes(self) -> int:
        """How much has come of what is no whole block yet, or has not been asked for."""
        return len(self._pending) + len(self._chunk) - self._at

    def receive_data(self, chunk: bytes) -> None:
        """Take bytes as they came off the wire, cut anywhere."""
        if self._mark is not None:
            chunk = self._without_byte_order_mark(self._mark + chunk)
        if chunk.find(b"\r") >= 0:
            self._has_carriage_returns = True
        if self._chunk:
            self._set_aside()
        if self._pending:
            self._pending += chunk
        else:
            self._chunk, self._at = chunk, 0

    def next_event(self) -> Event | None:
        """The next complete event, or None until more bytes come, or a `long_block` was read. Raises BlockTooLarge."""
        events = self.next_events(1)
        return events[0] if events else None

    def next_events(self, events_max: int) -> list[Event]:
        """The next complete events: so many, or none behind a terminal one (E9), or all until more bytes come or a
        `long_block` was read. Raises BlockTooLarge."""
        events: list[Event] = []
        left = events_max
        try:
            while left and (self._chunk or self._pending):
                found = self._plain_events(left) or self._odd_event()
                events += found
                left = left - len(found) if found and found[-1].kind is not EventClass.TERMINAL else 0
        except BlockTooLarge as error:
            error.events = events
            raise
        return events

    def receive_end(self, *, clean: bool) -> Event | None:
        """The stream ended. The pending event, if the end was clean and the event is whole (P6)."""
        self._set_aside()
        pending = bytes(self._pending)
        self._pending.clear()
        if not clean or not _has_fields(pending):
            return None
        event = read_block(pending + _missing_line_ends(pending))
        is_whole = event is not None and parse_object(event.data) is not None
        self.not_events += not is_whole
        return event if is_whole else None

    def _plain_events(self, events_max: int) -> list[Event]:
        """From the cursor on the events in plain blocks that lie whole in the chunk. What is odd is left: it ends the
        run, and is read as any block."""
        events: list[Event] = []
        chunk, at, end = self._chunk, self._at, len(self._chunk)
        may_be_burst = at == 0 and BURST_BYTES_MIN < end <= self._block_bytes_max and not self._has_carriage_returns
        while len(events) < events_max:
            found = PLAIN_BLOCK.match(chunk, at)
            if found is None:
                break
            block, data, name = found.group(0, 1, 2)
            size = len(block)
            if size > self._block_bytes_max:
                break
            if self._has_carriage_returns:
                data = data.removesuffix(b"\r")
                if b"\r" in block.replace(b"\r\n", b"\n"):  # it ends a line, too
                    break
            if name not in PARSED_TYPES:
                if may_be_burst:
                    run, size = leading_output(chunk, at, events_max - len(events))
                else:
                    run = [event_of((EventClass.OUTPUT, name.decode(), data, block, None, False))]
                may_be_burst = False  # one look for each chunk: time is linear
            elif size > self._inline_bytes_max or (read := read_parsed(data, block)) is None:
                break
            else:
                run = [read]
            events += run
            at += size
            if at == end or run[-1].kind is EventClass.TERMINAL:
                break
        self._chunk, self._at = (chunk, at) if at < end else (b"", 0)
        return events

    def _odd_event(self) -> list[Event]:
        """The next event in a block of any kind, if there is one."""
        while (block := self._next_block()) is not None:
            if len(block) > self._inline_bytes_max:
                self.long_block = block
                return []
            event = read_block(block)
            if event is not None:
                return [event]
            self.not_events += _has_fields(block)
        return []

    def _next_block(self) -> bytes | None:
        if self._at == len(self._chunk) and not self._pending:
            return None
        return self._block_of_pending() if self._pending else self._block_of_chunk()

    def _block_of_chunk(self) -> bytes | None:
        end = self._find_blank_line(self._chunk, self._at)
        if end is None:
            self._set_aside()
            self._note_scanned()
            return None
        self._refuse_too_large(self._chunk, self._at, end)
        block = self._chunk[self._at : end]
        self._at = end
        return block

    def _block_of_pending(self) -> bytes | None:
        end = self._find_blank_line(self._pending, 0)
        if end is None:
            self._note_scanned()
            return None
        self._refuse_too_large(self._pending, 0, end)
        block = bytes(self._pending[:end])
        self._chunk, self._at = bytes(self._pending[end:]), 0
        self._pending.clear()
        self._scanned = 0
        return block

    def _note_scanned(self) -> None:
        """What is pending was looked through; its last byte may yet be half of a blank line."""
        self._scanned = len(self._pending) - 1
        self._refuse_too_large(self._pending, 0, len(self._pending))

    def _find_blank_line(self, buffer: bytes | bytearray, start: int) -> int | None:
        """Where the next blank line ends."""
        if not self._has_carriage_returns:
            found = buffer.find(b"\n\n", start + self._scanned)
            return None if found < 0 else found + 2
        match = BLANK_LINE.search(buffer, start + self._scanned)
        return None if match is None else match.end()

    def _set_aside(self) -> None:
        """Keep what the chunk still holds: its blank line has not come, or nobody has asked for its events yet."""
        self._pending += self._chunk[self._at :]
        self._chunk, self._at = b"", 0

    def _without_byte_order_mark(self, start: bytes) -> bytes:
        """The stream's first bytes without the mark; none as long as they may be a part of it."""
        is_undecided = len(start) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(start)
        self._mark = start if is_undecided else None
        return b"" if is_undecided else start.removeprefix(BYTE_ORDER_MARK)

    def _refuse_too_large(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        """P7. A leading LF does not count: it may be the rest of the CRLF before; the limit is alike for any chunks."""
        excess = end - start - self._block_bytes_max
        if excess > 0 and not (excess == 1 and buffer.startswith(b"\n", start)):
            raise BlockTooLarge(f"an event of more than {self._block_bytes_max} bytes")


def leading_output(chunk: bytes, at: int, events_max: int) -> tuple[list[Event], int]:
    """The output events in plain blocks that stand there in the chunk, one behind the other, and how many bytes."""
    events: list[Event] = []
    known: bytes | None = None
    event_type = ""
    for block, data, name in PLAIN_BLOCKS.findall(chunk, at):
        if name != known:
            if not name or name in PARSED_TYPES:
                break
            known, event_type = name, name.decode()
        events.append(event_of((EventClass.OUTPUT, event_type, data, block, None, False)))
    events = events[:events_max]
    return events, sum([len(event.block) for event in events])


def read_block(block: bytes) -> Event | None:
    """The event in one whole block, or None if it holds none: no data, `[DONE]`, no JSON object (E7)."""
    return read_event(block_data(block), block)


def block_data(block: bytes) -> bytes:
    """The `data` lines of a whole block, joined by LF (P5); empty where there are none."""
    lines = block if block.find(b"\r") < 0 else block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    start = lines.find(b"\n") + 1 if lines.startswith(b"event:") else 0
    if lines.startswith(b"data: ", start) and lines.find(b"\n", start) == len(lines) - 2:
        return lines[start + 6 : -2]
    return b"\n".join(_data_of(line) for line in lines.split(b"\n") if line == b"data" or line.startswith(b"data:"))


def _data_of(line: bytes) -> bytes:
    return line[6:] if line.startswith(b"data: ") else line[5:]


def _has_fields(block: bytes) -> bool:
    return bool(block.strip(b"\r\n"))


def _missing_line_ends(pending: bytes) -> bytes:
    """What turns `pending` into a whole block, in the line ends the stream uses."""
    line_end = b"\r\n" if b"\r\n" in pending else b"\r" if b"\r" in pending else b"\n"
    return line_end if pending.endswith((b"\r", b"\n")) else line_end * 2
