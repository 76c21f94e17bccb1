"""What a client was given, and how a failure is told in its terms (R2, R3, B4, E6, E10, X3)."""

import pytest

from gateway.core.delivery import Delivery, is_utf8
from gateway.core.events import Event
from gateway.core.failures import Failure, FailureKind, UpstreamAnswer
from gateway.core.messages import DeliverFailure, Door, Head
from support.machine import (
    COMPLETED,
    CREATED,
    DELTA,
    DOORS,
    HTTP,
    IN_PROGRESS,
    KEEPALIVE,
    NOT_TEXT,
    RESET,
    WEBSOCKET,
    error,
    event,
    event_of,
    failed,
)

RESPONSE = {"id": "resp_1", "status": "in_progress", "output": []}


def delivering(*events: Event, door: Door = HTTP) -> Delivery:
    """A delivery that issued these events, one by one."""
    delivery = Delivery(door)
    for issued in events:
        delivery.issue([issued], 1.0)
    return delivery


def next_number(*events: Event) -> int | None:
    return delivering(*events).failure_command(RESET.failure, None).next_sequence_number


def numbered(number: object, event_type: str = "response.output_text.delta") -> Event:
    return event(event_type, sequence_number=number, delta="x")


def test_nothing_issued_commits_to_nothing() -> None:
    """R2, R3."""
    delivery = Delivery(HTTP)
    assert (delivery.has_begun, delivery.output_was_issued, delivery.handing_since) == (False, False, None)


def test_lifecycle_events_commit_but_are_no_output() -> None:
    """R2, R3, B3."""
    delivery = delivering(KEEPALIVE, CREATED)
    delivery.handed()
    assert (delivery.has_begun, delivery.output_was_issued, delivery.output_was_handed) == (True, False, False)


def test_output_counts_for_the_decision_when_issued_and_for_money_when_handed() -> None:
    """R2, B3: the decision errs on the safe side, money is exact."""
    delivery = delivering(CREATED, DELTA)
    issued = (delivery.output_was_issued, delivery.output_was_handed, delivery.text_bytes)
    delivery.handed()
    assert (issued, delivery.output_was_handed, delivery.text_bytes) == ((True, False, 0), True, 5)


def test_delivered_text_adds_up_in_bytes() -> None:
    """B4: UTF-8 bytes of text."""
    delivery = delivering(DELTA, event("response.output_text.delta", delta="é\n"), COMPLETED)
    delivery.handed()
    assert delivery.text_bytes == len("hello") + len("é\n".encode())


def test_the_client_is_the_slow_side_from_the_first_issue_to_the_hand_over() -> None:
    """T4."""
    delivery = Delivery(HTTP)
    delivery.issue([CREATED], 3.0)
    delivery.issue([DELTA], 4.0)
    since = delivery.handing_since
    delivery.handed()
    assert (since, delivery.handing_since) == (3.0, None)


def test_what_was_issued_is_taken_once_and_in_order() -> None:
    """E10."""
    delivery = delivering(CREATED, DELTA)
    assert (delivery.take_outgoing(), delivery.take_outgoing()) == ([CREATED, DELTA], [])


def test_who_asked_for_one_body_is_given_the_event_that_holds_it_and_no_other() -> None:
    """H1, B3, B4: what it holds is what was delivered."""
    text = event("response.completed", response={"output": [{"content": [{"text": "hé"}]}]})
    delivery = Delivery(HTTP, is_whole=True)
    delivery.issue([CREATED, DELTA], 1.0)
    before = (delivery.has_begun, delivery.output_was_issued, delivery.handing_since, delivery.take_outgoing())
    delivery.issue([IN_PROGRESS, text], 2.0)
    issued = (delivery.has_begun, delivery.output_was_issued, delivery.handing_since, delivery.take_outgoing())
    delivery.handed()
    assert before == (False, False, None, [])
    assert issued == (True, True, 2.0, [text])
    assert (delivery.output_was_handed, delivery.text_bytes, delivery.handing_since) == (True, 3, None)


def test_a_body_without_output_delivers_none() -> None:
    """H1, R2."""
    delivery = Delivery(HTTP, is_whole=True)
    delivery.issue([COMPLETED], 1.0)
    delivery.handed()
    assert (delivery.has_begun, delivery.output_was_issued, delivery.output_was_handed) == (True, False, False)


# --- X3: the number that comes next, the response that is known -------------------------------------------------------


@pytest.mark.parametrize(("events", "number"), [
    ([], None),
    ([CREATED], 1),
    ([CREATED, IN_PROGRESS], 2),
    ([CREATED, DELTA], 3),
    ([DELTA, CREATED], 3),
    ([CREATED, KEEPALIVE], 1),
    ([KEEPALIVE, event("response.metadata")], None),
    ([event("response.created", response={})], None),
    ([DELTA, numbered(7), event("response.vendor.note", text="unnumbered")], 8),
    ([numbered(7), error("server_error", sequence_number=8)], 9),
    ([numbered(True)], None),
    ([numbered("9")], None),
    ([numbered(None)], None),
    ([numbered(1.5)], None),
    ([numbered(-1)], 0),
    ([event("response.output_text.delta", delta='"sequence_number":99')], None),
    ([numbered(4), event("response.output_text.delta", delta='"sequence_number":99')], 5),
])  # fmt: skip
def test_the_next_number_follows_the_last_delivered(events: list[Event], number: int | None) -> None:
    """X3: last delivered + 1 if the upstream numbers."""
    assert next_number(*events) == number


def test_the_last_number_of_one_hand_over_counts() -> None:
    """X3: whether events came in one read or in many."""
    delivery = Delivery(HTTP)
    delivery.issue([CREATED, DELTA, numbered(5), numbered(6), event("response.vendor.note")], 1.0)
    assert delivery.failure_command(RESET.failure, None).next_sequence_number == 7


def test_a_failure_speaks_of_the_response_that_was_delivered() -> None:
    """X3."""
    command = delivering(CREATED, DELTA).failure_command(RESET.failure, Head())
    assert (command.failure, command.head, command.response) == (RESET.failure, Head(), RESPONSE)


@pytest.mark.parametrize("events", [
    [],
    [KEEPALIVE],
    [event("response.created", response={})],
    [event("response.created", response={"id": ""})],
    [event("response.created", response={"id": 7})],
    [event("response.created", response=None)],
    [event("response.created", response=[])],
    [event("response.created")],
    [DELTA],
])  # fmt: skip
def test_where_no_response_was_named_none_is_claimed(events: list[Event]) -> None:
    """X3, E8."""
    assert delivering(*events).failure_command(RESET.failure, None).response is None


# --- E6, E10: the client's own terms ----------------------------------------------------------------------------------


def test_only_a_websocket_client_needs_text() -> None:
    """E10."""
    assert [Delivery(door).can_carry(NOT_TEXT) for door in DOORS] == [True, False]


@pytest.mark.parametrize(("data", "is_text"), [
    (b"", True),
    (b"ascii", True),
    ("北🙂".encode(), True),
    ("北".encode()[:2], False),
    (b"\xff\xfe", False),
    (b"\xed\xa0\x80", False),
    (b"\xc0\x80", False),
])  # fmt: skip
def test_text_is_utf8_and_nothing_near_it(data: bytes, is_text: bool) -> None:
    """E10: a text frame with surrogates or overlong forms makes a client close with 1007."""
    assert is_utf8(data) is is_text


def test_only_an_http_client_is_told_at_once_and_only_after_the_commit_point() -> None:
    """E6."""
    committed = [delivering(CREATED, door=door).tells_at_once for door in DOORS]
    uncommitted = [Delivery(door).tells_at_once for door in DOORS]
    assert (committed, uncommitted) == ([True, False], [False, False])


ERROR, FAILED = error(), failed()


@pytest.mark.parametrize(("door", "telling", "told", "words"), [
    (HTTP, [], 0, []),
    (HTTP, [ERROR], 0, [ERROR]),
    (HTTP, [ERROR], 1, []),
    (HTTP, [ERROR, KEEPALIVE, FAILED], 0, [ERROR, KEEPALIVE, FAILED]),
    (HTTP, [ERROR, KEEPALIVE, FAILED], 1, [KEEPALIVE, FAILED]),
    (WEBSOCKET, [], 0, []),
    (WEBSOCKET, [ERROR], 0, [ERROR]),
    (WEBSOCKET, [FAILED], 0, [FAILED]),
    (WEBSOCKET, [ERROR, KEEPALIVE, FAILED], 0, [KEEPALIVE, FAILED]),
])  # fmt: skip
def test_a_failure_is_told_whole_on_http_and_in_one_terminal_frame_on_websocket(
    door: Door, telling: list[Event], told: int, words: list[Event]
) -> None:
    """E6: what came between keeps its place."""
    failure = Failure(FailureKind.RETRYABLE, "server_error", 500, "", events=tuple(telling))
    assert list(Delivery(door).last_words(failure, told)) == words


@pytest.mark.parametrize("door", DOORS)
def test_a_first_frame_that_is_an_http_clients_answer_is_told_by_no_event_there(door: Door) -> None:
    """X5: it gets the status; a WebSocket client gets the frame."""
    answer = UpstreamAnswer(429, body=b"{}")
    failure = Failure(FailureKind.RETRYABLE, "slow_down", 429, "", events=(ERROR,), answer=answer)
    assert list(Delivery(door).last_words(failure, 0)) == ([] if door is HTTP else [ERROR])


def test_a_turn_that_outlives_its_stream_has_not_failed_with_it() -> None:
    """B9, X3: neither the response nor the number that comes next is told of it."""
    head = Head((("x-request-id", "u"),))
    for outlives, told in ((True, (None, None)), (False, (RESPONSE, 1))):
        delivery = Delivery(HTTP, outlives_stream=outlives)
        delivery.issue([event("response.created", sequence_number=0, response=RESPONSE)], 1.0)
        command = delivery.failure_command(RESET.failure, head)
        assert command == DeliverFailure(RESET.failure, head, *told)


def test_an_unreadable_member_raises_nothing() -> None:
    """E8: nothing an upstream sends may raise an exception in the gateway."""
    delivery = delivering(event_of(b'{"type":"response.created","response":"text","sequence_number":[]}'))
    delivery.issue([event_of(b'{"type":"response.x","sequence_number":1e999}')], 1.0)
    delivery.issue([event_of(b'{"type":"response.x","sequence_number":' + b"9" * 5000 + b"}")], 1.0)
    assert delivery.failure_command(RESET.failure, None).next_sequence_number is None


def test_its_repr_tells_what_was_issued() -> None:
    """Style: a repr is an instrument."""
    assert repr(delivering(DELTA)) == "<Delivery begun=True output=True text=0>"
