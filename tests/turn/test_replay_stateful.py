"""R10 and §6: which requests are stateful, seen through both doors where they let them in, else at the engine."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio

from gateway.core.eligibility import StatePolicy, eligibility
from gateway.core.events import Event
from gateway.core.messages import Deliver, DeliverFailure, Door, Taken
from gateway.core.request import RequestBody, TurnRequest
from gateway.ports import Order
from gateway.upstream.scripted import Break, Reply
from support.gateways import MODEL, Seen, World, play, seen, world
from support.known_origins import TO_A, a_made_resp_1
from support.virtual import in_every_order
from support.voices import ANSWERED, A, B

pytestmark = pytest.mark.usefixtures("each_transport")

BREAKS = A.reply(Break())
REFUSES = A.reply(refuses=True)

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    # what the request says, and the reason it gives
    "store: true": ("stored", {"store": True}),
    "store: null": ("stored", {"store": None}),
    'store: "false"': ("stored", {"store": "false"}),
    "previous_response_id": ("continuation", {"previous_response_id": "resp_1"}),
    "conversation": ("continuation", {"conversation": "conv_1"}),
    "prompt": ("origin_bound", {"prompt": {"id": "pmpt_1"}}),
    "item_reference": ("origin_bound", {"input": [{"type": "item_reference", "id": "msg_1"}]}),
    "encrypted_content": ("origin_bound", {"input": [{"type": "reasoning", "encrypted_content": "x"}]}),
    "file_id": ("origin_bound", {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}),
    "container": ("origin_bound", {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}),
    "mcp": ("side_effect_tool", {"tools": [{"type": "mcp", "server_url": "http://mcp.test"}]}),
    "shell": ("side_effect_tool", {"tools": [{"type": "shell"}]}),
    "code_interpreter": ("side_effect_tool", {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}),
}
STATELESS: dict[str, dict[str, Any]] = {
    "previous_response_id: null": {"previous_response_id": None},
    'previous_response_id: ""': {"previous_response_id": ""},
    "background: false": {"background": False},
    "a function": {"tools": [{"type": "function", "name": "f", "parameters": {"file_id": {"type": "string"}}}]},
    "words about it": {"input": 'say {"file_id": "f"} and encrypted_content'},
    "asking for it": {"include": ["reasoning.encrypted_content"]},
    "web search": {"tools": [{"type": "web_search"}]},
}


@pytest.mark.parametrize("kind", REQUESTS)
@in_every_order
async def test_r10_a_stateful_request_is_not_replayed(door: str, kind: str) -> None:
    """R10, S1, S2, S4, S5, S6."""
    reason, fields = REQUESTS[kind]
    w = world(BREAKS, B.answer(), records=a_made_resp_1())
    client = await play(w, door, prompt_cache_key=TO_A, **fields)
    attempts = [f"a stream_read_error ({reason})"]
    assert seen(w, client) == Seen(["error stream_read_error"], ["a"], attempts, ["voided"])


@pytest.mark.parametrize("kind", STATELESS)
@in_every_order
async def test_r10_a_stateless_request_is_replayed(door: str, kind: str) -> None:
    """R10, S2, S5: a key with a value binds, text never does."""
    w = world(BREAKS, B.answer())
    client = await play(w, door, **STATELESS[kind])
    assert (client.told, w.called) == (ANSWERED, ["a", "b"])


@in_every_order
async def test_r10_a_turn_state_header_binds_to_the_origin(door: str) -> None:
    """R10, S5."""
    w = world(BREAKS, B.answer())
    await play(w, door, headers=[("x-codex-turn-state", "ts_1")], prompt_cache_key=TO_A)
    assert w.attempts == ["a stream_read_error (origin_bound)"]


@in_every_order
async def test_r10_the_first_reason_in_the_tables_order_is_given(door: str) -> None:
    """R10, S7: a request may be stateful in several ways."""
    w = world(BREAKS, B.answer(), records=a_made_resp_1())
    await play(w, door, store=True, previous_response_id="resp_1", prompt={"id": "pmpt_1"})
    assert w.attempts == ["a stream_read_error (stored)"]


# --- what the operator may decide -------------------------------------------------------------------------------


@in_every_order
async def test_s1_an_absent_store_is_stored_unless_the_gateway_makes_it_explicit(door: str) -> None:
    """S1: with `absent_store = "upstream"` the body is untouched, and the request stateful."""
    w = world(BREAKS, B.answer())
    await play(w, door, store=...)
    assert w.attempts == ["a stream_read_error (stored)"]
    assert "store" not in w.calls[0].fields


@pytest.mark.parametrize("store", [..., None], ids=["absent", "null"])
@in_every_order
async def test_s1_a_store_made_explicit_makes_the_request_stateless(door: str, store: object) -> None:
    """S1: `absent_store = "false"` splices `"store": false`."""
    w = world(BREAKS, B.answer(), server='absent_store = "false"')
    client = await play(w, door, store=store)
    assert (client.told, [call.fields["store"] for call in w.calls]) == (ANSWERED, [False, False])


@in_every_order
async def test_s1_an_explicit_store_is_never_changed(door: str) -> None:
    """S1."""
    w = world(BREAKS, B.answer(), server='absent_store = "false"')
    await play(w, door, store=True)
    assert (w.attempts, w.calls[0].fields["store"]) == (["a stream_read_error (stored)"], True)


@in_every_order
async def test_s6_tools_that_write_may_be_allowed(door: str) -> None:
    """S6: `replay_side_effect_tools = true`."""
    w = world(BREAKS, B.answer(), server="replay_side_effect_tools = true")
    client = await play(w, door, tools=[{"type": "mcp", "server_url": "http://mcp.test"}])
    assert (client.told, w.called) == (ANSWERED, ["a", "b"])


# --- never sent -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["store: true", "mcp"])
@in_every_order
async def test_never_sent_passes_what_only_an_execution_would_spoil(door: str, kind: str) -> None:
    """§4: nothing was executed, so nothing was stored or done."""
    w = world(REFUSES, B.answer())
    client = await play(w, door, **REQUESTS[kind][1])
    attempts = ["a upstream_connect_error (replay)", "b completed"]
    assert seen(w, client) == Seen(ANSWERED, ["b"], attempts, ["settled 7000"])


@pytest.mark.parametrize("kind", ["previous_response_id", "conversation", "prompt", "encrypted_content"])
@in_every_order
async def test_never_sent_does_not_pass_what_another_route_lacks(door: str, kind: str) -> None:
    """§4: continuations and origin-bound requests always stay."""
    reason, fields = REQUESTS[kind]
    w = world(REFUSES, B.answer(), records=a_made_resp_1())
    client = await play(w, door, prompt_cache_key=TO_A, **fields)
    attempts = [f"a upstream_connect_error ({reason})"]
    assert seen(w, client) == Seen(["error upstream_connect_error"], [], attempts, ["voided"])


@in_every_order
async def test_never_sent_spends_the_replay(door: str) -> None:
    """§4, R11: it is an attempt."""
    w = world(REFUSES, B.reply(B.failed("server_error")))
    client = await play(w, door)
    attempts = ["a upstream_connect_error (replay)", "b server_error (replay_spent)"]
    assert seen(w, client) == Seen(["failed server_error"], ["b"], attempts, ["voided"])


@in_every_order
async def test_never_sent_needs_the_budget(door: str) -> None:
    """§4, R13."""
    w = world(REFUSES, B.answer())
    w.house.throttled = True
    await play(w, door)
    assert w.attempts == ["a upstream_connect_error (replay_throttled)"]


# --- background: refused by the WebSocket door, and known to the engine ------------------------------------------


class Listener:
    """A client that hears all and stays (ports.Downstream)."""

    quiet_deadline = float("inf")
    departure_passes = 1

    def __init__(self, door: Door) -> None:
        self.door = door
        self.heard: list[Deliver | DeliverFailure] = []

    async def write(self, frames: Deliver | DeliverFailure, *, is_last: bool = False) -> None:
        """Hear it."""
        await trio.lowlevel.checkpoint()
        self.heard.append(frames)

    def pass_on(self, events: Sequence[Event], now: float) -> Taken:
        """Hear it in the ordinary way."""
        return Taken.NOTHING

    async def write_rest(self) -> None:
        """There is none."""

    async def write_quiet(self) -> None:
        """Never due."""

    async def end(self) -> None:
        """Nothing follows."""

    def watch(self, tell: Callable[[str], None]) -> None:
        """It stays."""

    def unwatch(self, tell: Callable[[str], None]) -> None:
        """It stays."""


async def run_at_the_engine(w: World, door: str, **fields: Any) -> Listener:
    """One turn of a request that no door lets in."""
    body = RequestBody(json.dumps({"model": MODEL, "input": "hi", "store": False, **fields}).encode())
    request = TurnRequest(body, MODEL, eligibility(body, {}, StatePolicy()), splices_store=False)
    listener = Listener(Door(door))
    await w.gateway.engine.run_turn(Order("turn_1", "main", request), listener)
    w.assert_at_rest()
    return listener


@pytest.mark.parametrize(
    ("reply", "attempts"),
    [
        (BREAKS, ["a stream_read_error (background)"]),
        (REFUSES, ["a upstream_connect_error (replay)", "b completed"]),
    ],
    ids=["sent", "never sent"],
)
@in_every_order
async def test_r10_a_background_response_is_not_replayed_once_it_was_sent(
    door: str, reply: Reply, attempts: list[str]
) -> None:
    """R10, S3, and §4's word on what was never sent."""
    w = world(reply, B.answer())
    await run_at_the_engine(w, door, background=True)
    assert w.attempts == attempts
