"""What a client gets, in which pieces, and how a turn ends well (E1-E5, E9, E10, T1, B3)."""

import sys
from collections.abc import Callable
from pathlib import PurePath

import pytest

from gateway.core.events import Event
from gateway.core.messages import (
    AttemptEnded,
    Batch,
    Circumstances,
    ClientLeft,
    Deliver,
    Door,
    Head,
    Input,
    Opened,
    Replay,
)
from gateway.core.money import EndedBy, Usage
from gateway.core.rules import Phase, TurnRules
from gateway.core.turn import Turn
from support.machine import (
    BUG,
    CANCELLED,
    COMPLETED,
    CREATED,
    DELTA,
    DOORS,
    HANDED,
    HTTP,
    IN_PROGRESS,
    INCOMPLETE,
    KEEPALIVE,
    LEFT,
    METADATA,
    NO_CHOICE,
    QUEUED,
    RESET,
    START,
    TICK,
    WEBSOCKET,
    ZEROS,
    Moment,
    Player,
    drains,
    error,
    event,
    failed,
    play,
    sends,
)

OUTPUTS = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.refusal.delta",
    "response.function_call_arguments.delta",
    "response.reasoning_summary_text.delta",
    "response.image_generation_call.partial_image",
    "response.mcp_call.in_progress",
    "response.vendor.unheard_of",
]

# --- the commit point -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("held", [CREATED, QUEUED, IN_PROGRESS, KEEPALIVE, METADATA], ids=lambda event: event.type)
def test_lifecycle_and_neutral_events_commit_to_nothing(door: Door, held: Event) -> None:
    """E1, E2."""
    player = Player(door).plays((0, START), (1, sends(held)))
    assert (player.lines, player.turn.is_committed) == ([], False)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("event_type", OUTPUTS)
def test_any_output_is_the_commit_point(door: Door, event_type: str) -> None:
    """E3, R2 (case 4): arguments, reasoning, refusals, images, unknown types; even where the text is empty."""
    output = event(event_type, delta="")
    player = Player(door).plays((0, START), (1, sends(CREATED, output)), (2, sends(failed())))
    assert (player.delivered[:2], player.reason) == ([CREATED, output], "R2 output_delivered")


@pytest.mark.parametrize("door", DOORS)
def test_events_go_out_byte_for_byte_in_their_order(door: Door) -> None:
    """E10: the very events that came in."""
    events = [CREATED, KEEPALIVE, DELTA, METADATA, DELTA, IN_PROGRESS, DELTA, COMPLETED]
    player = Player(door).plays((0, START), (1, sends(*events[:3])), (2, sends(*events[3:])))
    assert [id(event.data) for event in player.delivered] == [id(event.data) for event in events]


def test_what_one_read_brought_is_handed_over_in_one_piece() -> None:
    """Design: one write per batch, so that one Handed speaks of all of it."""
    player = Player(HTTP).plays(
        (0, START), (1, sends(CREATED, DELTA, KEEPALIVE, DELTA, METADATA, DELTA)), (2, sends(DELTA, COMPLETED, DELTA))
    )
    assert player.lines == [
        "1 deliver created output_text.delta keepalive output_text.delta metadata output_text.delta",
        "2 deliver output_text.delta completed",
        "2 finish completed",
    ]


def test_a_delivery_carries_the_head_of_its_attempt() -> None:
    """H5."""
    head = Head((("x-request-id", "a"),))
    player = Player(HTTP).plays((0, START), (0.5, Opened(head)), (1, sends(DELTA)), (2, sends(COMPLETED)))
    assert [command.head for command in player.said if isinstance(command, Deliver)] == [head, head]


def test_an_empty_read_is_nothing() -> None:
    """Batch: "all events that one read completed" may be none."""
    assert play(HTTP, (0, START), (1, sends()), (2, sends(DELTA)), (3, sends())) == ["2 deliver output_text.delta"]


# --- E9: the first terminal wins --------------------------------------------------------------------------------------

TERMINALS = [COMPLETED, INCOMPLETE, CANCELLED]
AFTERWARDS: list[Input] = [
    sends(DELTA),
    sends(COMPLETED),
    sends(failed()),
    sends(error()),
    sends(KEEPALIVE),
    RESET,
    LEFT,
    HANDED,
    TICK,
    BUG,
    NO_CHOICE,
    START,
    Opened(Head()),
    drains(2),
    Circumstances(another_route_is_left=True),
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("terminal", [*TERMINALS, failed()], ids=lambda event: event.type)
@pytest.mark.parametrize("late", [DELTA, COMPLETED, failed(), error(), KEEPALIVE], ids=lambda event: event.type)
def test_what_follows_a_terminal_in_the_same_read_is_dropped_and_counted(
    door: Door, terminal: Event, late: Event
) -> None:
    """E9 (case 18)."""
    player = Player(door, is_disabled=True).plays((0, START), (1, sends(CREATED, terminal, late, late)))
    assert player.finish.report is not None
    assert (player.delivered, player.finish.report.dropped_events) == ([CREATED, terminal], 2)


@pytest.mark.parametrize("terminal", TERMINALS, ids=lambda event: event.type)
@pytest.mark.parametrize("late", AFTERWARDS, ids=lambda arrived: type(arrived).__name__)
def test_nothing_follows_the_end_whatever_comes(terminal: Event, late: Input) -> None:
    """E9: DONE cannot be left."""
    player = Player(HTTP).plays((0, START), (1, sends(CREATED, DELTA, terminal)))
    after = [player.turn.step(late, at) for at in (1, 2, 10**6)]
    assert (after, player.turn.phase, player.turn.deadline) == ([[], [], []], Phase.DONE, float("inf"))


@pytest.mark.parametrize("terminal", TERMINALS, ids=lambda event: event.type)
def test_a_terminal_names_the_outcome(terminal: Event) -> None:
    """L1."""
    finish = Player(HTTP).plays((0, START), (1, sends(terminal))).finish
    assert (finish.outcome, finish.failure, finish.ended.by) == (
        terminal.type.removeprefix("response."),
        None,
        EndedBy.TERMINAL,
    )


def test_a_terminal_without_any_event_before_it_ends_the_turn() -> None:
    """E4 (case 3): an empty answer is an answer, at no charge."""
    empty = event("response.completed", response={"output": [], "usage": None})
    player = Player(HTTP).plays((0, START), (1, sends(CREATED, empty)))
    assert (player.types, player.finish.ended.usage, player.finish.ended.output_delivered) == (
        ["created", "completed"],
        None,
        False,
    )


# --- B3: what money is told -------------------------------------------------------------------------------------------

DELIVERED: list[Moment] = [(0, START), (1, sends(CREATED, DELTA))]
HELD: list[Moment] = [(0, START), (1, sends(CREATED))]
FREE = event("response.completed", response={"usage": ZEROS})


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("script", "by", "was_delivered", "usage", "has_failed"), [
    ([*DELIVERED, (2, sends(COMPLETED))], EndedBy.TERMINAL, True, Usage(10, 3), False),
    ([*HELD, (2, sends(COMPLETED))], EndedBy.TERMINAL, False, Usage(10, 3), False),
    ([*DELIVERED, (2, sends(CANCELLED))], EndedBy.TERMINAL, True, None, False),
    ([*DELIVERED, (2, sends(FREE))], EndedBy.TERMINAL, True, Usage(0, 0), False),
    ([*DELIVERED, (2, RESET)], EndedBy.UPSTREAM_OR_CLIENT, True, None, True),
    ([*HELD, (2, RESET)], EndedBy.UPSTREAM_OR_CLIENT, False, None, True),
    ([*DELIVERED, (2, LEFT)], EndedBy.UPSTREAM_OR_CLIENT, True, None, True),
    ([*HELD, (2, LEFT)], EndedBy.UPSTREAM_OR_CLIENT, False, None, True),
    ([*HELD, (15, LEFT)], EndedBy.UPSTREAM_OR_CLIENT, False, None, True),
    ([*DELIVERED, (2, sends(failed()))], EndedBy.UPSTREAM_OR_CLIENT, True, None, True),
    ([*DELIVERED, (400, TICK)], EndedBy.UPSTREAM_OR_CLIENT, True, None, True),
    ([*DELIVERED, (2, BUG)], EndedBy.GATEWAY, True, None, True),
    ([*HELD, (2, drains(3)), (4, TICK)], EndedBy.GATEWAY, False, None, True),
    ([(0, LEFT)], EndedBy.UPSTREAM_OR_CLIENT, False, None, True),
    ([(0, START), (1, LEFT)], EndedBy.UPSTREAM_OR_CLIENT, False, None, True),
])  # fmt: skip
def test_money_is_told_what_ended_the_turn_and_what_was_delivered(
    door: Door, script: list[Moment], by: EndedBy, was_delivered: bool, usage: Usage | None, has_failed: bool
) -> None:
    """B3's rows and columns, as facts."""
    ended = Player(door).plays(*script).finish.ended
    assert (ended.by, ended.output_delivered, ended.usage, ended.failed) == (by, was_delivered, usage, has_failed)


def test_the_sixty_minutes_are_not_the_gateway_s_fault() -> None:
    """B3."""
    ended = Player(WEBSOCKET, rules=TurnRules(cut_at=10)).plays(*DELIVERED).waits(10).finish.ended
    assert (ended.by, ended.output_delivered) == (EndedBy.UPSTREAM_OR_CLIENT, True)


def test_output_that_a_client_never_took_is_not_billed_when_it_leaves() -> None:
    """B3: delivered means handed over."""
    ended = Player(HTTP, is_slow=True).plays(*DELIVERED, (2, LEFT)).finish.ended
    assert (ended.output_delivered, ended.delivered_text_bytes) == (False, 0)


def test_of_the_output_only_what_was_taken_is_estimated() -> None:
    """B4."""
    script = [*DELIVERED, (2, HANDED), (3, sends(DELTA, DELTA)), (4, LEFT)]
    ended = Player(HTTP, is_slow=True).plays(*script).finish.ended
    assert (ended.output_delivered, ended.delivered_text_bytes) == (True, len("hello"))


def test_the_last_frames_of_a_turn_count_as_handed_over() -> None:
    """B3: they are on their way when the books are closed (T10)."""
    ended = Player(HTTP, is_slow=True).plays(*DELIVERED, (2, RESET)).finish.ended
    assert (ended.output_delivered, ended.delivered_text_bytes) == (True, len("hello"))


def test_a_usage_that_was_read_decides_even_if_the_client_had_left() -> None:
    """B3."""
    busy = event("response.in_progress", response={"id": "r", "usage": {"input_tokens": 4, "output_tokens": 1}})
    assert Player(HTTP).plays((0, START), (1, sends(busy)), (2, LEFT)).finish.ended.usage == Usage(4, 1)


# --- the client leaves ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("script", [
    [],
    [(0, START)],
    HELD,
    DELIVERED,
    [*HELD, (2, sends(error()))],
    [*HELD, (12, TICK)],
], ids=["before", "silent", "held", "delivered", "grace", "expired"])  # fmt: skip
def test_a_client_that_left_is_given_nothing_more(door: Door, script: list[Moment]) -> None:
    """R1, H7: in hold, in silence, between attempts, in mid-stream."""
    player = Player(door).plays(*script)
    before = len(player.lines)
    player.plays((20, LEFT) if script[-1:] != [] and script[-1][0] > 10 else (2.1, LEFT))
    assert [line.split(" ", 1)[1].split(" by ")[0] for line in player.lines[before:]] == ["finish client_disconnected"]


@pytest.mark.parametrize("why", ["disconnected", "stalled", "write failed"])
def test_how_the_client_left_is_kept(why: str) -> None:
    """T6, H7."""
    failure = Player(HTTP).plays((0, START), (1, ClientLeft(why))).finish.failure
    assert failure is not None
    assert (failure.code, failure.status, failure.message) == ("client_disconnected", 499, why)


def test_a_client_that_left_between_two_attempts_gets_no_second() -> None:
    """H7, R1: B gets no call."""
    player = Player(HTTP, restarts=False).plays((0, START), (1, RESET), (1, LEFT))
    assert (player.lines, player.finish.report) == (
        ["1 replay after stream_read_error", "1 finish client_disconnected"],
        None,
    )


# --- inputs out of their place ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrived", [
    sends(CREATED, DELTA, COMPLETED, error()),
    RESET,
    Opened(Head()),
    HANDED,
    TICK,
    Circumstances(),
], ids=lambda arrived: type(arrived).__name__)  # fmt: skip
def test_between_two_attempts_no_upstream_is_listened_to(arrived: Input) -> None:
    """§4: nothing of the failed attempt comes through after its replay was decided."""
    player = Player(HTTP, restarts=False).plays((0, START), (1, RESET))
    assert (player.turn.step(arrived, 2), player.turn.phase) == ([], Phase.WAITING)


@pytest.mark.parametrize("arrived", [START, Circumstances(), TICK, HANDED], ids=lambda arrived: type(arrived).__name__)
def test_what_is_not_asked_for_changes_nothing(arrived: Input) -> None:
    """A running attempt is not restarted, and no answer counts without its question."""
    player = Player(HTTP).plays((0, START), (1, sends(CREATED)))
    said, deadline = player.turn.step(arrived, 5), player.turn.deadline
    assert (said, deadline, player.turn.phase) == ([], 11, Phase.RUNNING)


def test_a_turn_of_which_nothing_is_said_is_stateless_and_may_be_replayed() -> None:
    """R10, R10a: both are exceptions."""
    turn = Turn(HTTP, TurnRules())
    turn.step(START, 0)
    turn.step(RESET, 1)
    (command,) = turn.step(Circumstances(another_route_is_left=True), 1)
    assert isinstance(command, Replay)


def test_its_repr_tells_where_it_stands() -> None:
    """Style: a repr is an instrument."""
    turn = Player(HTTP).plays((0, START), (1, sends(CREATED))).turn
    assert repr(turn) == ("<Turn running, <Hold 1 events, until 11.0>, <Delivery begun=False output=False text=0>>")


# --- the streaming state ----------------------------------------------------------------------------------------------


def parses(action: Callable[[], object]) -> bool:
    """Whether any code of the json package ran."""
    files: set[str] = set()
    previous = sys.getprofile()
    sys.setprofile(lambda frame, *_: files.add(frame.f_code.co_filename))
    action()
    sys.setprofile(previous)
    return any(PurePath(file).parent.name == "json" for file in files)


def test_output_after_output_is_passed_on_without_being_parsed() -> None:
    """Design: in the streaming state no JSON is parsed."""
    player = Player(HTTP).plays(*DELIVERED)
    streaming = parses(lambda: player.plays((2, sends(*[DELTA] * 50))))
    ending = parses(lambda: player.plays((3, RESET)))
    assert (len(player.delivered), streaming, ending) == (52, False, True)


def test_a_step_in_the_streaming_state_hands_on_the_events_themselves() -> None:
    """Design: a list append per event, nothing else is made of it."""
    turn = Turn(HTTP, TurnRules())
    turn.step(START, 0)
    turn.step(Batch([DELTA]), 1)
    turn.step(HANDED, 1)
    events = [DELTA] * 512
    (command,) = turn.step(Batch(events), 2)
    assert isinstance(command, Deliver)
    assert all(one is other for one, other in zip(command.events, events, strict=True))


def test_an_end_of_the_attempt_says_why_as_it_was_told() -> None:
    """X: the failure that the transport made is the one that is delivered."""
    ended = AttemptEnded(RESET.failure)
    assert Player(HTTP).plays(*DELIVERED, (2, ended)).failure.failure is RESET.failure
