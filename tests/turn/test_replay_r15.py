"""R15: what is retryable before output, in all its forms, and what is not (R8, R8a); through both doors.

Each form is seen replayed; one of each kind refused where no route is left, and told in its own words; and beside them
what no other route would cure.
"""

import pytest

from gateway.turn.house import StandingHouse
from gateway.upstream.scripted import Break, Reply
from support.gateways import Seen, create_frame, play, seen, turn, world
from support.virtual import in_every_order
from support.voices import ANSWERED, COMMENT, NEUTRAL, A, B, C

pytestmark = pytest.mark.usefixtures("each_transport")

HELD = ["created", "in_progress"]
HTML = (("content-type", "text/html"),)
JSON = (("content-type", "application/json"),)

# (the form, the outcome of the attempt, the status, whether the held prelude came before it)
EVENTS = {
    "response.failed": (A.reply(A.prelude, A.failed("server_error")), "server_error", 500),
    "error": (A.reply(A.prelude, A.error("server_is_overloaded")), "server_is_overloaded", 503),
    "error and response.failed": (
        A.reply(A.prelude + A.error("overloaded") + A.failed("slow_down")),
        "slow_down",
        429,
    ),
    "error first of all": (A.reply(A.error("internal_error")), "internal_error", 500),
    "error marked retryable": (A.reply(A.prelude, A.error("mystery", retryable=True)), "mystery", 500),
    "quota": (A.reply(A.prelude, A.failed("insufficient_quota")), "insufficient_quota", 429),
    "credit": (A.reply(A.error("credit_balance_exhausted")), "credit_balance_exhausted", 429),
    "error with status 503": (A.reply(A.error("mystery", status=503)), "mystery", 503),
    "upstream's own connection limit": (
        A.reply(A.error("websocket_connection_limit_reached")),
        "websocket_connection_limit_reached",
        400,
    ),
}
STATUSES = {
    "500": (A.status(500), "some_code", 500),
    "502": (A.status(502), "some_code", 502),
    "503": (A.status(503, "server_is_overloaded"), "server_is_overloaded", 503),
    "529": (A.status(529, "overloaded_error"), "overloaded_error", 529),
    "429": (A.status(429, "rate_limit_exceeded"), "rate_limit_exceeded", 429),
    "408": (A.status(408), "some_code", 408),
    "409": (A.status(409), "some_code", 409),
    "401": (A.status(401, "invalid_api_key"), "upstream_auth_error", 502),
    "402": (A.status(402), "upstream_auth_error", 502),
    "403": (A.status(403), "upstream_auth_error", 502),
    "429 quota": (A.status(429, "insufficient_quota"), "insufficient_quota", 429),
}
BREAKS = {
    "reset before the first event": (A.reply(1.0, Break()), "stream_read_error", 502),
    "an empty body": (A.reply(), "stream_read_error", 502),
    "comments, then the end": (A.reply(COMMENT, COMMENT), "stream_read_error", 502),
    "neutral events, then the end": (A.reply(NEUTRAL, 1.0), "stream_read_error", 502),
    "a half event, then a reset": (A.reply(A.created[:-1], Break()), "stream_read_error", 502),
    "data that is no event": (A.reply(b"data: [DONE]\n\n", b"data: 7\n\n"), "stream_read_error", 502),
    "an empty JSON answer": (A.reply(headers=JSON), "stream_read_error", 502),
}
BAD_ANSWERS = {
    "HTML": (A.reply(b"<html>", headers=HTML), "upstream_bad_response", 502),
    "a JSON error under 200": (A.reply(b'{"error":{"code":"x"}}', headers=JSON), "upstream_bad_response", 502),
    "a redirect": (A.reply(status=302, headers=(("location", "http://b.test/"),)), "upstream_bad_response", 502),
    "an unknown encoding": (
        A.reply(b"x", headers=(*A.headers, ("content-encoding", "br"))),
        "upstream_bad_response",
        502,
    ),
}
NEVER_SENT = {
    "connect refused": (A.reply(refuses=True), "upstream_connect_error", 502),
    "connect timeout": (A.reply(connect_seconds=5.0), "upstream_connect_error", 502),
}
ALL = EVENTS | STATUSES | BREAKS | BAD_ANSWERS | NEVER_SENT
OF_HTTP = {"an empty JSON answer": pytest.mark.over_http}
"""What a WebSocket has no like of: there any 2xx is an answer to the handshake."""
TOLD = [*EVENTS, "503", "429", "401", "reset before the first event", "an empty body", "HTML", *NEVER_SENT]
"""One form of each kind, to see how it is told."""


def calls_of(form: str, *others: str) -> list[str]:
    """Upstream calls; one that was never sent is none."""
    return [*([] if form in NEVER_SENT else ["a"]), *others]


# --- replayed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [pytest.param(form, marks=OF_HTTP.get(form, ())) for form in ALL])
@in_every_order
async def test_r15_a_retryable_failure_before_output_is_replayed_once(door: str, form: str) -> None:
    """R15, F2, F5th, F6th, P9, E6: nothing of A is seen, B's answer is all the client gets and pays for, and B is
    called at the instant at which A failed."""
    reply, outcome, _ = ALL[form]
    w = world(reply, B.answer())
    client = await play(w, door)
    attempts = [f"a {outcome} (replay)", "b completed"]
    assert seen(w, client) == Seen(ANSWERED, calls_of(form, "b"), attempts, ["settled 7000"])
    assert w.calls[-1].at == w.closings[0].report.ended_at


@in_every_order
async def test_r15_the_replay_gets_the_same_bytes(door: str) -> None:
    """H3, H4: the same body; the credential is the route's own."""
    w = world(A.reply(Break()), B.answer())
    await play(w, door, metadata={"z": 1, "a": 2})
    first, second = w.calls
    assert first.body == second.body
    assert [dict(call.headers)["authorization"] for call in w.calls] == [
        "Bearer credential-of-a",
        "Bearer credential-of-b",
    ]


# --- R14: told in its own words ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", TOLD)
@in_every_order
async def test_r14_where_no_route_is_left_the_failure_is_told_in_its_own_words(door: str, form: str) -> None:
    """R14, X1, X2, X4, X5: its own code, and its own status where the form has one."""
    reply, outcome, status = ALL[form]
    w = world(reply)
    client = await play(w, door)
    assert (w.called, w.attempts, w.money) == (calls_of(form), [f"a {outcome} (no_route_left)"], ["voided"])
    assert client.events[-1].code == outcome
    if form not in EVENTS:
        assert client.failure == (status, outcome)


@pytest.mark.parametrize("form", [form for form in EVENTS if form != "error with status 503"])
@in_every_order
async def test_x1_a_failure_told_by_events_is_forwarded_byte_for_byte(form: str) -> None:
    """X1, E6: on HTTP both events, in order."""
    reply, _, _ = EVENTS[form]
    client = await play(world(reply), "http")
    assert client.body == b"".join(step for step in reply.steps if isinstance(step, bytes))


@pytest.mark.parametrize("form", EVENTS)
@in_every_order
async def test_x4_on_a_websocket_a_failure_is_one_frame(form: str) -> None:
    """X4, E6: one terminal frame, the `response.failed` if it came; an error frame carries a status."""
    reply, outcome, status = EVENTS[form]
    client = await play(world(reply), "websocket")
    last_words = [heard for heard in client.events if heard.type in ("error", "response.failed")]
    assert [heard.code for heard in last_words] == [outcome]
    assert last_words[0].type == "response.failed" or last_words[0].payload["status"] == status


@pytest.mark.parametrize("form", STATUSES)
@in_every_order
async def test_x2_an_upstreams_status_is_delivered_unchanged(form: str) -> None:
    """X2, F2: the upstream's own body, but for a status that blames the gateway's account."""
    reply, outcome, status = STATUSES[form]
    client = await play(world(reply), "http")
    assert client.status == status
    assert client.headers.get("x-should-retry") == (None if status == 429 else "false")
    assert outcome == "upstream_auth_error" or client.body == reply.steps[0]


# --- R8, R8a: what no other route would cure --------------------------------------------------------------------

AT_FAULT = {
    "400": (A.status(400, "invalid_value"), "invalid_value", 400),
    "400 without a code": (A.status(400, None), "some_type", 400),
    "413": (A.status(413), "some_code", 413),
    "422": (A.status(422), "some_code", 422),
    "429 too large": (
        Reply((b'{"error":{"code":"rate_limit_exceeded","message":"Request too large for gpt"}}',), 429, JSON),
        "rate_limit_exceeded",
        429,
    ),
    "failed invalid_prompt": (A.reply(A.failed("invalid_prompt")), "invalid_prompt", 400),
    "failed cyber_policy": (A.reply(A.failed("cyber_policy")), "cyber_policy", 400),
    "error context_length_exceeded": (A.reply(A.error("context_length_exceeded")), "context_length_exceeded", 400),
    "error unsupported_parameter": (A.reply(A.error("unsupported_parameter")), "unsupported_parameter", 400),
    "error, then failed invalid_prompt": (
        A.reply(A.error("server_error") + A.failed("invalid_prompt")),
        "invalid_prompt",
        400,
    ),
    "error invalid_prompt, then failed": (
        A.reply(A.error("invalid_prompt") + A.failed("server_error")),
        "server_error",
        500,
    ),
}
UNMARKED = {
    "501": (A.status(501), "some_code", 501),
    "505": (A.status(505), "some_code", 505),
    "failed with an unknown code": (A.reply(A.failed("mystery")), "mystery", 500),
    "failed without a code": (A.reply(A.failed(None)), "upstream_bad_response", 502),
    "error marked not retryable": (A.reply(A.error("server_error", retryable=False)), "server_error", 500),
}


@pytest.mark.parametrize("form", AT_FAULT)
@in_every_order
async def test_r8_a_request_at_fault_is_not_replayed(door: str, form: str) -> None:
    """R8, F3rd, F6th, E6: delivered unchanged; deterministic in either of two events wins."""
    reply, outcome, status = AT_FAULT[form]
    w = world(reply, B.answer())
    client = await play(w, door)
    assert (w.called, w.attempts, w.money) == (["a"], [f"a {outcome} (deterministic)"], ["voided"])
    assert reply.status == 200 or client.failure[0] == status


@pytest.mark.parametrize("form", UNMARKED)
@in_every_order
async def test_r8a_a_failure_that_nothing_marks_as_retryable_is_not_replayed(door: str, form: str) -> None:
    """R8a, F4th, F7th."""
    reply, outcome, status = UNMARKED[form]
    w = world(reply, B.answer())
    client = await play(w, door)
    assert (w.called, w.attempts, w.money) == (["a"], [f"a {outcome} (not_retryable)"], ["voided"])
    assert reply.status == 200 or client.failure[0] == status


@in_every_order
async def test_r15_which_codes_are_retryable_is_the_routes_own_business(door: str) -> None:
    """F5th: `retryable_codes` of the route."""
    w = world(A.reply(A.failed("mystery")), B.answer(), route='retryable_codes = ["mystery"]')
    client = await play(w, door)
    assert (client.told, w.attempts) == (ANSWERED, ["a mystery (replay)", "b completed"])


# --- the choice of the route itself fails -----------------------------------------------------------------------


class FailingHouse(StandingHouse):
    """A house whose knowledge of routes is gone after some questions: a store that is down."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self._answers = answers

    def repair(self) -> None:
        """The store is back."""
        self._answers = 1_000

    def is_cooling(self, route: str) -> bool:
        """An answer, or the fault."""
        self._answers -= 1
        if self._answers < 0:
            raise OSError("the store of the circuits is down")
        return super().is_cooling(route)


QUESTIONS_BEFORE_THE_CHOICE = 4
"""Of two routes each: for the first choice, and for the facts of the decision."""


@in_every_order
async def test_a_choice_that_fails_after_the_decision_ends_the_turn_and_costs_nothing(door: str) -> None:
    """§4, the last point: 500 in each door's own code, the reservation voided, nothing of A seen."""
    w = world(A.reply(A.prelude, A.failed("server_error")), B.answer(), house=FailingHouse(QUESTIONS_BEFORE_THE_CHOICE))
    client = await play(w, door)
    code = {"http": "route_selection_failed", "websocket": "websocket_response_failed"}[door]
    assert seen(w, client) == Seen([f"error {code}"], ["a"], ["a server_error (replay)"], ["voided"])
    assert client.failure == (500, code)


@in_every_order
async def test_after_a_choice_that_failed_a_websocket_serves_its_next_turn() -> None:
    """X4: the socket stays open."""
    house = FailingHouse(QUESTIONS_BEFORE_THE_CHOICE)
    w = world([A.reply(Break()), C.answer()], B.answer(), house=house)
    async with turn(w, "websocket") as client:
        await client.wait_for(lambda client: client.has_last_word)
        house.repair()
        client.send_text(create_frame())
        await client.wait_for(lambda client: client.told[-1] == "completed")
    assert client.told == ["error websocket_response_failed", *ANSWERED]
