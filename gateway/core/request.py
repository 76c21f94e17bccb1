"""A turn's request: read once, strictly; forwarded as the client's own bytes (H3).

The body is parsed for its answers only. What goes upstream is the text as it came, with the values of a few top-level
members replaced, added or cut in place: order, spelling, spaces and number formats of everything else stay.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

from gateway.core.contents import Contents, contents_of
from gateway.core.events import lenient_integer
from gateway.core.money import TOKENS_MAX

WHITESPACE: Final = re.compile(r"[ \t\n\r]*")
OPENING: Final = re.compile(r"[ \t\n\r]*+\{[ \t\n\r]*+")
"""An object up to its first member."""
MEMBER_NAME: Final = re.compile(r'"([^"\\\x00-\x1f]*+)"[ \t\n\r]*+:[ \t\n\r]*+')
"""A member up to its value, if nothing in its name is escaped."""
BEHIND_VALUE: Final = re.compile(r"[ \t\n\r]*+([,}])[ \t\n\r]*+")
MEMBERS_MAX: Final = 1024
"""Top-level members of a body, each of which is read by itself: the API knows some forty."""
KEPT_CHARACTERS_MAX: Final = 65_536
"""A member's text, above which its value is not kept for as long as the turn runs."""
REREAD_BYTES_MAX: Final = 65_536
"""A body that takes a millisecond to be read again, which only a replay asks for."""
REREAD_BRACKETS_MAX: Final = 400
"""Of a body that is read again: it can be no deeper, so whatever stack it is read on, it is read as the first time."""
UTF8_BYTES_MAX: Final = 4
"""Of one character."""
MADE_OF_OTHERS: Final = (list, dict)
_LET_GO: Final = object()
NAME_CHARACTERS_MAX: Final = 64
"""How much of a client's own text a refusal repeats."""


class MalformedBody(Exception):
    """The body is not one JSON object; the message says what and where."""


class Member(NamedTuple):
    """A top-level member: its value and where it stands in the text (characters, half-open)."""

    value: Any
    key_start: int
    value_start: int
    value_end: int
    next_start: int
    """Where the next member's key stands; behind the value for the last member."""


Placed = tuple[Any, int, int, int, int]
member_of: Final[Callable[[Placed], Member]] = partial(tuple.__new__, Member)
"""A member of its fields, past the constructor, which takes twice as long."""


class RequestBody:
    """A JSON object with the places of its top-level members.

    Raises MalformedBody for what is not UTF-8, not JSON, not an object, has a key twice in one object (two readers
    would read two requests), holds NaN or Infinity, or is deeper or wider than any request is.
    """

    __slots__ = ("_contents", "_members", "size_bytes", "text")

    def __init__(self, raw: bytes) -> None:
        self.size_bytes = len(raw)
        self.text = _decode(raw)
        self._members: dict[str, Member] | None = _read_members(self.text)
        self._contents: Contents | None = None

    def __repr__(self) -> str:
        return f"<RequestBody {len(self.text)} characters: {', '.join(self.members)}>"

    @property
    def members(self) -> dict[str, Member]:
        """Those at the top, by name."""
        if self._members is None:
            self._members = _read_members(self.text)
        return self._members

    def get(self, name: str) -> Any:
        """The value of a top-level member, None where it is absent."""
        members = self.members if self._members is None else self._members
        if name not in members:
            return None
        found = members[name]
        return found.value if found.value is not _LET_GO else self._read_again(found)

    def _read_again(self, found: Member) -> Any:
        return _DECODER.raw_decode(self.text, found.value_start)[0]

    def text_of(self, name: str) -> str | None:
        """A member's value as it was written, None where it is absent."""
        found = self.members.get(name)
        return None if found is None else self.text[found.value_start : found.value_end]

    def extent_bytes_max(self, names: Iterable[str]) -> int:
        """More bytes than these members take, with what stands between them and the next ones."""
        found = [self.members[name] for name in names if name in self.members]
        return UTF8_BYTES_MAX * sum(one.next_start - one.key_start for one in found) + len(found)

    @property
    def fields(self) -> Mapping[str, Any]:
        """All top-level members by name."""
        return {
            name: found.value if found.value is not _LET_GO else self._read_again(found)
            for name, found in self.members.items()
        }

    def let_go(self, kept: Container[str] = ()) -> None:
        """Keep no value that is made of others, but those `kept`, and none whose text is long: it takes up to ten times
        as much as its text, and when its contents are known nobody asks for it but by exception. It is read again for
        who does."""
        members = self.members
        for name, (value, key_start, start, stop, following) in members.items():
            if (type(value) in MADE_OF_OTHERS and name not in kept) or stop - start > KEPT_CHARACTERS_MAX:
                members[name] = Member(_LET_GO, key_start, start, stop, following)

    def rest(self) -> None:
        """Nobody asks for anything of it for now: its text says all, and is read again for who does. Where that would
        take long, or could fail, the places are kept."""
        brackets = self.text.count("[") + self.text.count("{") if self.size_bytes <= REREAD_BYTES_MAX else math.inf
        if brackets <= REREAD_BRACKETS_MAX:
            self._members = self._contents = None

    @property
    def contents(self) -> Contents:
        """What stands below the members: walked when it is first asked for, and once."""
        if self._contents is None:
            self._contents = contents_of(self.fields)
        return self._contents

    def spliced(self, *, replaced: Mapping[str, Any], cut: Iterable[str] = ()) -> bytes:
        """The text with members `replaced` (added in front where absent) and `cut`, every other byte as it came."""
        members = self.members
        dropped = members.keys() & set(cut)
        if not (replaced or dropped):
            return self.text.encode()
        if not members:
            return _with_members(self.text, replaced).encode()
        spans = list(members.values())
        kept = [found for name, found in members.items() if name not in dropped]
        end = kept[-1].value_end if kept else spans[0].key_start
        pieces: list[str] = []
        copied = 0
        for name, found in members.items():
            if found.key_start >= end:
                break
            if name in dropped:
                pieces.append(self.text[copied : found.key_start])
                copied = found.next_start
            elif name in replaced:
                pieces += (self.text[copied : found.value_start], json.dumps(replaced[name]))
                copied = found.value_end
        pieces += (self.text[copied:end], self.text[spans[-1].value_end :])
        added = {name: value for name, value in replaced.items() if name not in members}
        return _with_members("".join(pieces), added).encode()

    def rewritten(self, written: Mapping[str, str], cut: Iterable[str], contents: Contents) -> RequestBody:
        """Another body: with the members `written` as these texts (in front where absent) and without those `cut`,
        every other character as it came. What is in it is known, so nothing is parsed: it may be megabytes (W10)."""
        rewritten = RequestBody.__new__(RequestBody)
        spans, dropped = list(self.members.values()), set(cut)
        kept = {name: found for name, found in self.members.items() if name not in dropped}
        last = next(reversed(kept), None)
        page = _Page(self.text[: spans[0].key_start] if spans else "{")
        added = [name for name in written if name not in kept]
        for name in added:
            page.add(name, f"{json.dumps(name)}:", written[name], "," if kept or name != added[-1] else "", _LET_GO)
        for name, found in kept.items():
            key = self.text[found.key_start : found.value_start]
            own = self.text[found.value_start : found.value_end]
            between = "" if name == last else self.text[found.value_end : found.next_start]
            page.add(name, key, written.get(name, own), between, _LET_GO if name in written else found.value)
        rewritten.text = page.end(self.text[spans[-1].value_end :] if spans else "}")
        rewritten.size_bytes = len(rewritten.text) if rewritten.text.isascii() else len(rewritten.text.encode())
        rewritten._members = page.members
        rewritten._contents = contents
        return rewritten


class _Page:
    """A body as it is written, and where its members stand."""

    def __init__(self, head: str) -> None:
        self.members: dict[str, Member] = {}
        self._pieces = [head]
        self._length = len(head)

    def add(self, name: str, key: str, value: str, between: str, read: Any) -> None:
        """A member, whose value was `read`, and what stands between it and the next one."""
        start = self._length
        value_start = start + len(key)
        value_end = value_start + len(value)
        self._length = value_end + len(between)
        self.members[name] = Member(read, start, value_start, value_end, self._length)
        self._pieces += (key, value, between)

    def end(self, tail: str) -> str:
        """The whole text."""
        return "".join([*self._pieces, tail])


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None


def _read_members(text: str) -> dict[str, Member]:
    try:
        return _scan_object(text)
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")  # some of Python's own words end so, for a place to follow
        raise MalformedBody(f"the body is not JSON: {what} at character {error.pos}") from None
    except RecursionError:
        raise MalformedBody("the body is nested too deeply") from None


def _scan_object(text: str) -> dict[str, Member]:
    opening = OPENING.match(text)
    if opening is None:
        _DECODER.decode(text)  # names what is wrong, if it is no JSON at all
        raise MalformedBody("the body is not a JSON object")
    members: dict[str, Member] = {}
    position = opening.end()
    is_open = not text.startswith("}", position)
    while is_open:
        named = MEMBER_NAME.match(text, position)
        name, start = _odd_name(text, position) if named is None else (named[1], named.end())
        value, stop = _DECODER.raw_decode(text, start)
        if name in members or len(members) == MEMBERS_MAX:
            _refuse_member(name, members)
        behind = BEHIND_VALUE.match(text, stop)
        if behind is None:
            raise json.JSONDecodeError("expected ',' or '}'", text, _skip_whitespace(text, stop))
        is_open = behind[1] == ","
        following = behind.end() if is_open else behind.start(1)
        members[name] = member_of((value, position, start, stop, following))
        position = following
    if _skip_whitespace(text, position + 1) != len(text):
        raise json.JSONDecodeError("something follows the object", text, position + 1)
    return members


def _odd_name(text: str, position: int) -> tuple[str, int]:
    """Read `"key":` at `position` where it is not as plain as most are, and where its value starts."""
    if not text.startswith('"', position):
        raise json.JSONDecodeError("expected a member name in double quotes", text, position)
    name, end = _DECODER.raw_decode(text, position)
    colon = _skip_whitespace(text, end)
    if not text.startswith(":", colon):
        raise json.JSONDecodeError("expected ':'", text, colon)
    return name, _skip_whitespace(text, colon + 1)


def _refuse_member(name: str, members: Mapping[str, Member]) -> NoReturn:
    if name in members:
        raise MalformedBody(f"the key {name[:NAME_CHARACTERS_MAX]!r} stands twice in the body")
    raise MalformedBody(f"the body has more than {MEMBERS_MAX} members")


def _skip_whitespace(text: str, position: int) -> int:
    found = WHITESPACE.match(text, position)
    return position if found is None else found.end()


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise MalformedBody(f"the key {twice[:NAME_CHARACTERS_MAX]!r} stands twice in one object")
    return value


def _refuse_constant(name: str) -> Any:
    raise MalformedBody(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant, parse_int=lenient_integer, strict=True
)


def _with_members(text: str, added: Mapping[str, Any]) -> str:
    if not added:
        return text
    opening = text.index("{") + 1
    members = json.dumps(added, separators=(",", ":"))[1:-1]
    is_empty = text.startswith("}", _skip_whitespace(text, opening))
    return text[:opening] + members + ("" if is_empty else ",") + text[opening:]


# --- the request as the engine and the upstreams see it ---------------------------------------------------------

CUT_FOR_SSE: Final = ("type", "event_id", "stream_id", "generate")
"""H3: members of a `response.create` frame that an HTTP upstream does not know."""
CUT_FOR_WEBSOCKET: Final = ("stream", "stream_id", "event_id")
"""H3: a frame streams by itself; lanes and event ids are between the client and the gateway."""
CREATE_TYPE: Final = "response.create"
RESPONSES: Final = "/responses"
COMPACT: Final = "/responses/compact"
INPUT_TOKENS: Final = "/responses/input_tokens"
"""Endpoints that a model's routes serve (H1, H2)."""


def is_background(body: RequestBody) -> bool:
    """S3: whether the response may go on without its exchange; what is neither true nor false is the upstream's to
    refuse, and the safe side here."""
    return body.get("background") not in (None, False)


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One client request, read and judged. `headers` are those that may go upstream (H4)."""

    body: RequestBody = field(repr=False)
    model: str
    stateful_reasons: tuple[str, ...]
    splices_store: bool
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    client_refused_replay: bool = False
    client_retry_count: str | None = None
    streams: bool = True
    """H1: whether the client asked for a stream; else it gets one body."""
    path: str = RESPONSES
    """Which endpoint it is for, below the base URL."""
    counts_as_continuation: bool = False
    """R10: it went on from what the gateway remembered (W10), and says so no more."""
    elsewhere: Callable[[], TurnRequest] | None = field(default=None, repr=False)
    """W10: makes the same turn for a socket that does not hold what this one goes on from."""
    is_warm_up: bool = field(init=False, repr=False, compare=False)
    """W9: nothing is to be generated, only remembered."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_warm_up", self.body.get("generate") is False)

    @property
    def is_background(self) -> bool:
        """S3, B9: its response may go on behind its exchange."""
        return is_background(self.body)

    def body_for_sse(self, upstream_model: str | None) -> bytes:
        """H3: the bytes an HTTP upstream gets; the same for each attempt but for the model's name. Where no stream was
        asked for, the client's own `stream` stays as it is (H1)."""
        own = {"stream": True} if self.streams and self.body.get("stream") is not True else {}
        return self.body.spliced(replaced={**own, **self._replaced(upstream_model)}, cut=CUT_FOR_SSE)

    def body_for_websocket(self, upstream_model: str | None) -> bytes:
        """H3: the frame a WebSocket upstream gets, a `response.create`."""
        own = {"type": CREATE_TYPE} if self.body.get("type") != CREATE_TYPE else {}
        return self.body.spliced(replaced={**own, **self._replaced(upstream_model)}, cut=CUT_FOR_WEBSOCKET)

    def _replaced(self, upstream_model: str | None) -> dict[str, Any]:
        replaced: dict[str, Any] = {}
        if upstream_model is not None and upstream_model != self.model:
            replaced["model"] = upstream_model
        if self.splices_store:
            replaced["store"] = False
        return replaced

    @property
    def max_output_tokens(self) -> int | None:
        """The request's own output limit, where it is a usable one (B6)."""
        value = self.body.get("max_output_tokens")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            return None
        return math.ceil(min(value, TOKENS_MAX))  # 1e999 is read as infinity
