"""A turn's request: read once, strictly; judged stateless or not; forwarded as the client's own bytes (H3, S).

The body is parsed for its answers only. What goes upstream is the text as it came, with the values of a few top-level
members replaced, added or cut in place: order, spelling, spaces and number formats of everything else stay.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gateway.core.events import lenient_integer
from gateway.core.money import TOKENS_MAX, InputMeasure

WHITESPACE: Final = re.compile(r"[ \t\n\r]*")
MEMBERS_MAX: Final = 1024
"""Top-level members of a body, each of which is read by itself: the API knows some forty."""
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


class RequestBody:
    """A JSON object with the places of its top-level members.

    Raises MalformedBody for what is not UTF-8, not JSON, not an object, has a key twice in one object (two readers
    would read two requests), holds NaN or Infinity, or is deeper or wider than any request is.
    """

    def __init__(self, raw: bytes) -> None:
        self.text = _decode(raw)
        self.members: dict[str, Member] = _read_members(self.text)

    def __repr__(self) -> str:
        return f"<RequestBody {len(self.text)} characters: {', '.join(self.members)}>"

    def get(self, name: str) -> Any:
        """The value of a top-level member, None where it is absent."""
        found = self.members.get(name)
        return None if found is None else found.value

    @property
    def fields(self) -> Mapping[str, Any]:
        """All top-level members by name."""
        return {name: found.value for name, found in self.members.items()}

    def spliced(self, *, replaced: Mapping[str, Any], cut: Iterable[str] = ()) -> bytes:
        """The text with members `replaced` (added in front where absent) and `cut`, every other byte as it came."""
        if not self.members:
            return _with_members(self.text, replaced).encode()
        dropped = set(cut)
        kept = [name for name in self.members if name not in dropped]
        spans = list(self.members.values())
        parts = [self.text[: spans[0].key_start]]
        parts += [self._rendered(name, replaced, is_last=name == kept[-1]) for name in kept]
        parts.append(self.text[spans[-1].value_end :])
        added = {name: value for name, value in replaced.items() if name not in self.members}
        return _with_members("".join(parts), added).encode()

    def _rendered(self, name: str, replaced: Mapping[str, Any], *, is_last: bool) -> str:
        """One kept member, with what stands between it and the next one unless it is the last that is kept."""
        found = self.members[name]
        value = json.dumps(replaced[name]) if name in replaced else self.text[found.value_start : found.value_end]
        separator = "" if is_last else self.text[found.value_end : found.next_start]
        return self.text[found.key_start : found.value_start] + value + separator


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None


def _read_members(text: str) -> dict[str, Member]:
    try:
        return _scan_object(text)
    except json.JSONDecodeError as error:
        raise MalformedBody(f"the body is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise MalformedBody("the body is nested too deeply") from None


def _scan_object(text: str) -> dict[str, Member]:
    position = _skip_whitespace(text, 0)
    if not text.startswith("{", position):
        _DECODER.decode(text)  # names what is wrong, if it is no JSON at all
        raise MalformedBody("the body is not a JSON object")
    members: dict[str, Member] = {}
    position = _skip_whitespace(text, position + 1)
    is_open = not text.startswith("}", position)
    while is_open:
        name, found = _scan_member(text, position)
        _refuse_member(name, members)
        members[name] = found
        position = found.next_start
        is_open = _comma_stands_before(text, found)
    if _skip_whitespace(text, position + 1) != len(text):
        raise json.JSONDecodeError("something follows the object", text, position + 1)
    return members


def _refuse_member(name: str, members: Mapping[str, Member]) -> None:
    if name in members:
        raise MalformedBody(f"the key {name[:NAME_CHARACTERS_MAX]!r} stands twice in the body")
    if len(members) == MEMBERS_MAX:
        raise MalformedBody(f"the body has more than {MEMBERS_MAX} members")


def _scan_member(text: str, position: int) -> tuple[str, Member]:
    """Read `"key": value` at `position`, with the comma behind it if there is one."""
    if not text.startswith('"', position):
        raise json.JSONDecodeError("expected a member name in double quotes", text, position)
    name, end = _DECODER.raw_decode(text, position)
    colon = _skip_whitespace(text, end)
    if not text.startswith(":", colon):
        raise json.JSONDecodeError("expected ':'", text, colon)
    start = _skip_whitespace(text, colon + 1)
    value, stop = _DECODER.raw_decode(text, start)
    following = _skip_whitespace(text, stop)
    if text.startswith(",", following):
        following = _skip_whitespace(text, following + 1)
    return name, Member(value, position, start, stop, following)


def _comma_stands_before(text: str, found: Member) -> bool:
    """Whether a comma, not the closing brace, follows a member; anything else is an error."""
    if "," in text[found.value_end : found.next_start]:
        return True
    if text.startswith("}", found.next_start):
        return False
    raise json.JSONDecodeError("expected ',' or '}'", text, found.next_start)


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


# --- eligibility: which requests are stateless (S) --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatePolicy:
    """What the operator decided about state."""

    absent_store_is_false: bool = False
    replay_side_effect_tools: bool = False


STORED: Final = "stored"
CONTINUATION: Final = "continuation"
ORIGIN_BOUND: Final = "origin_bound"
BACKGROUND: Final = "background"
SIDE_EFFECT_TOOL: Final = "side_effect_tool"

ORIGIN_BOUND_KEYS: Final = frozenset(
    {
        "encrypted_content",
        "file_id",
        "file_ids",
        "container_id",
        "vector_store_ids",
        "skill_id",
        "connector_id",
        "tunnel_id",
        "fingerprint",
        "continuation_id",
    }
)
"""S5: members of `input` or `tools` that only the account which made their value can resolve."""
BOUND_MEMBERS: Final = ("input", "tools", "background_options")
"""S5: where these keys are looked for; `continuation_id` stands in `background_options`."""
SCHEMA_KEYS: Final = frozenset({"parameters", "schema", "input_schema", "output_schema", "json_schema"})
"""S5: below these stand descriptions of data, not data."""
SIDE_EFFECT_TOOLS: Final = frozenset({"mcp", "code_interpreter"})
"""S6: hosted tools that write; the hosted `shell` is told from the client's own by its environment."""
TURN_STATE_HEADER: Final = "x-codex-turn-state"


def eligibility(body: RequestBody, header_names: Iterable[str], policy: StatePolicy) -> tuple[str, ...]:
    """S7: every reason why the request is stateful, in the order of R10; empty for a stateless one."""
    checks: tuple[tuple[str, Callable[[], bool]], ...] = (
        (STORED, lambda: effective_store(body, policy) is not False),
        (CONTINUATION, lambda: bool(body.get("previous_response_id")) or body.get("conversation") is not None),
        (ORIGIN_BOUND, lambda: is_origin_bound(body) or TURN_STATE_HEADER in {name.lower() for name in header_names}),
        (BACKGROUND, lambda: _is_background(body)),
        (SIDE_EFFECT_TOOL, lambda: not policy.replay_side_effect_tools and has_side_effect_tool(body)),
    )
    return tuple(reason for reason, applies in checks if applies())


def effective_store(body: RequestBody, policy: StatePolicy) -> Any:
    """S1: the value the upstream will act on; None is its default, which is to store."""
    return False if makes_store_explicit(body, policy) else body.get("store")


def makes_store_explicit(body: RequestBody, policy: StatePolicy) -> bool:
    """S1: whether `"store": false` is spliced in. Never beside `background`, which needs a stored response."""
    return policy.absent_store_is_false and body.get("store") is None and not _is_background(body)


def _is_background(body: RequestBody) -> bool:
    """S3; what is neither true nor false is the upstream's to refuse, and the safe side here."""
    return body.get("background") not in (None, False)


def is_origin_bound(body: RequestBody) -> bool:
    """S4, S5: whether anything in the request can be resolved by its origin alone."""
    prompt = body.get("prompt")
    if isinstance(prompt, dict) and prompt.get("id") is not None:
        return True
    return any(map(_refers_to_item, _items(body))) or any(_holds_bound_key(body.get(name)) for name in BOUND_MEMBERS)


def _items(body: RequestBody) -> list[Any]:
    """The input's items; a text has none."""
    held = body.get("input")
    return held if isinstance(held, list) else [held]


def _refers_to_item(item: Any) -> bool:
    """An `item_reference` (also without its type), or a reasoning item whose content only its origin holds."""
    if not isinstance(item, dict) or item.get("id") is None:
        return isinstance(item, dict) and item.get("type") == "item_reference"
    if item.get("type") is None:
        return item.get("role") is None and item.get("content") is None
    return item["type"] == "item_reference" or (item["type"] == "reasoning" and not item.get("content"))


def _holds_bound_key(value: Any) -> bool:
    """Walk objects and lists (never text, never schemas) for a bound key with a value."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, list):
            pending += current
        elif isinstance(current, dict):
            if any(_binds(name, held) for name, held in current.items()):
                return True
            pending += [held for name, held in current.items() if name not in SCHEMA_KEYS]
    return False


def _binds(name: str, held: Any) -> bool:
    if held is None:
        return False
    if name == "container":
        return isinstance(held, str) or (isinstance(held, dict) and held.get("id") is not None)
    return name in ORIGIN_BOUND_KEYS


def has_side_effect_tool(body: RequestBody) -> bool:
    """S6: in the request's tools, in those that a tool search found, and in groups of either."""
    pending = [body.get("tools"), *(item.get("tools") for item in _items(body) if isinstance(item, dict))]
    while pending:
        tools = pending.pop()
        for tool in tools if isinstance(tools, list) else ():
            if _writes(tool):
                return True
            pending += [tool["tools"]] if isinstance(tool, dict) and "tools" in tool else []
    return False


def _writes(tool: Any) -> bool:
    if not isinstance(tool, dict):
        return False
    if tool.get("type") == "shell":
        environment = tool.get("environment")
        return not (isinstance(environment, dict) and environment.get("type") == "local")
    return isinstance(tool.get("type"), str) and tool["type"] in SIDE_EFFECT_TOOLS


# --- the request as the engine and the upstreams see it ---------------------------------------------------------

CUT_FOR_SSE: Final = ("type", "event_id", "stream_id", "generate")
"""H3: members of a `response.create` frame that an HTTP upstream does not know."""
CUT_FOR_WEBSOCKET: Final = ("stream", "stream_id", "event_id")
"""H3: a frame streams by itself; lanes and event ids are between the client and the gateway."""
CREATE_TYPE: Final = "response.create"


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

    def body_for_sse(self, upstream_model: str | None, *, streams: bool = True) -> bytes:
        """H3: the bytes an HTTP upstream gets; the same for each attempt but for the model's name. Without `streams`
        the client's own `stream` stays as it is (H1)."""
        own = {"stream": True} if streams and self.body.get("stream") is not True else {}
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
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            return None
        return min(value, TOKENS_MAX)


# --- what the estimate counts (B4) ------------------------------------------------------------------------------

TEXT_MEMBERS: Final = ("instructions", "input", "tools", "text", "prompt")
"""Top-level members whose strings a model reads."""
ENCODED_KEYS: Final = frozenset({"image_url", "file_url", "file_data", "data", "result", "encrypted_content"})
"""Members that hold base64 or a link: never counted as text."""
IMAGE_TYPES: Final = frozenset({"input_image", "computer_screenshot", "image_generation_call"})
FILE_TYPES: Final = frozenset({"input_file", "input_audio"})


def measure_input(body: RequestBody) -> InputMeasure:
    """What the request gives a model to read: text bytes, images and files."""
    text_bytes = images = files = 0
    pending = [body.get(name) for name in TEXT_MEMBERS]
    while pending:
        current = pending.pop()
        if isinstance(current, str):
            text_bytes += _utf8_bytes(current)
        elif isinstance(current, list):
            pending += current
        elif isinstance(current, dict):
            kind = current.get("type")
            images += kind in IMAGE_TYPES if isinstance(kind, str) else 0
            files += kind in FILE_TYPES if isinstance(kind, str) else 0
            pending += (held for name, held in current.items() if name not in ENCODED_KEYS)
    return InputMeasure(text_bytes, images, files)


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
