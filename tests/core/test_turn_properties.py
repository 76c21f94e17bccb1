"""What holds for every script: random events, ends, clocks and clients, at times that like to coincide."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.events import Event, EventClass
from gateway.core.failures import FailureKind
from gateway.core.messages import (
    AttemptEnded,
    AttemptReport,
    Batch,
    Circumstances,
    ClientLeft,
    Deliver,
    DeliverFailure,
    Door,
    DrainStarted,
    Finish,
    Head,
    Input,
    Opened,
    Replay,
)
from gateway.core.rules import Phase, TurnRules
from support.machine import (
    BUG,
    HANDED,
    HTTP,
    LEFT,
    NO_CHOICE,
    RESET,
    START,
    TICK,
    UNAVAILABLE,
    UNREACHABLE,
    USAGE,
    WEBSOCKET,
    Moment,
    Player,
    drains,
    ended_by,
    event,
    event_of,
    sends,
    starts,
)

SCRIPTS = settings(max_examples=100, deadline=None)

# --- random scripts ---------------------------------------------------------------------------------------------------

TYPES: dict[str, Callable[[], Event]] = {
    # what an upstream may send, more of what is usual; each event made anew, so that it is told from its likes
    "created": lambda: event("response.created", response={"id": "r"}),
    "in_progress": lambda: event("response.in_progress", response={"id": "r"}),
    "keepalive": lambda: event("keepalive"),
    "metadata": lambda: event("response.metadata"),
    "delta": lambda: event("response.output_text.delta", delta="text"),
    "unknown": lambda: event("response.unknown.thing"),
    "completed": lambda: event("response.completed", response={"id": "r", "usage": USAGE}),
    "incomplete": lambda: event("response.incomplete", response={"id": "r"}),
    "failed": lambda: event("response.failed", response={"error": {"code": "server_error"}}),
    "failed with usage": lambda: event("response.failed", response={"error": {"code": "slow_down"}, "usage": USAGE}),
    "failed for good": lambda: event("response.failed", response={"error": {"code": "invalid_prompt"}}),
    "error": lambda: event("error", error={"code": "server_error"}),
    "error for good": lambda: event("error", error={"code": "invalid_prompt"}),
    "error without a type": lambda: event_of(b'{"error":{"code":"overloaded"}}'),
}
NOT_TEXT: dict[str, Callable[[], Event]] = {
    "not text": lambda: event_of(b'{"type":"response.output_text.delta","delta":"\xff"}')
}

DELAYS = [0.0, 0.0, 0.0, 0.125, 0.125, 0.25, 0.25, 1.0, 5.0, 9.875, 10.0, 24.875, 25.0, 60.0, 299.875, 300.0]
ENDS: list[Input] = [
    RESET,
    UNREACHABLE,
    UNAVAILABLE,
    ended_by(FailureKind.DETERMINISTIC, "upstream_bad_response"),
    ended_by(FailureKind.ROUTE_FAULT, "upstream_auth_error"),
    ended_by(FailureKind.BUFFER_OVERFLOW, "upstream_stream_buffer_limit"),
]


def made(name: str) -> Event:
    return {**TYPES, **NOT_TEXT}[name]()


def reads(*, text_only: bool = False) -> st.SearchStrategy[Input]:
    names = [*TYPES, *["delta"] * 3, *["created"] * 2, *["error"] * 2, *([] if text_only else NOT_TEXT)]
    chosen = st.lists(st.sampled_from(names), min_size=1, max_size=4)
    return chosen.map(lambda those: Batch([made(name) for name in those]))


def scripts(*others: Input, text_only: bool = False) -> st.SearchStrategy[list[tuple[float, Input]]]:
    """Pauses and what comes after them. `others` come now and then."""
    inputs = st.one_of(*[reads(text_only=text_only)] * 3, st.sampled_from([*ENDS, *others, TICK]))
    return st.lists(st.tuples(st.sampled_from(DELAYS), inputs), max_size=12)


def timed(script: list[tuple[float, Input]]) -> list[Moment]:
    """The script by absolute times; a drain ends some seconds after it began."""
    moments: list[Moment] = []
    at = 0.0
    for delay, arrived in script:
        at += delay
        moments.append((at, drains(at + arrived.ends_at) if isinstance(arrived, DrainStarted) else arrived))
    return moments


@dataclass(frozen=True)
class World:
    """All that is not the upstream's or the client's doing."""

    rules: TurnRules
    house: Circumstances
    stateful: tuple[str, ...]
    is_slow: bool

    def player(self, door: Door, *, idle: float = 300.0) -> Player:
        """A player in it, its first attempt begun."""
        terms = starts(idle=idle)
        player = Player(
            door, rules=self.rules, house=self.house, stateful=self.stateful, is_slow=self.is_slow, terms=terms
        )
        player.steps(terms, 0)
        return player


def worlds(*, is_slow: st.SearchStrategy[bool] | None = None) -> st.SearchStrategy[World]:
    """Mostly healthy worlds: what is refused at once shows little."""
    rules = st.builds(
        TurnRules,
        hold_events_max=st.sampled_from([1024, 1024, 3]),
        cut_at=st.sampled_from([math.inf, math.inf, 25.0, 60.0]),
        connection_limit_at=st.sampled_from([math.inf, math.inf, 10.0]),
    )
    healthy = Circumstances(another_route_is_left=True)
    houses = st.sampled_from([healthy, healthy, healthy, Circumstances()])
    slowness = st.just(False) if is_slow is None else is_slow
    return st.builds(World, rules, houses, st.sampled_from([(), (), (), ("stored",)]), slowness)


ANYTHING = (LEFT, BUG, NO_CHOICE, HANDED, drains(0.25), drains(30.0))


# --- one run, and what was sent to whom -------------------------------------------------------------------------------


@dataclass
class Run:
    """A player and the events that each attempt was given before the turn's end."""

    player: Player
    sent: list[list[Event]] = field(default_factory=lambda: [[], []])

    def plays(self, moments: list[Moment]) -> "Run":
        """In time: each deadline at its own instant, also at the instant of an input unless the client leaves."""
        for at, arrived in moments:
            attempt = len(self.player.replays)
            self.player.waits(at, through=not isinstance(arrived, ClientLeft))
            is_cancelled = len(self.player.replays) != attempt and isinstance(arrived, Batch | AttemptEnded)
            if self.player.is_done or is_cancelled:
                continue
            if isinstance(arrived, Batch):
                self.sent[len(self.player.replays)] += arrived.events
            self.player.steps(arrived, at)
        return self

    @property
    def last_sent(self) -> list[Event]:
        return self.sent[len(self.player.replays)]


def is_joined(run: Run) -> bool:
    """Whether a WebSocket client got a `failed` in the place of its `error` (E6)."""
    ends_in_failed = run.player.delivered[-1:] != [] and run.player.delivered[-1].type == "response.failed"
    sent = run.last_sent[: len(run.player.delivered)]
    return run.player.door is WEBSOCKET and ends_in_failed and any(event.kind is EventClass.ERROR for event in sent)


DOORS = st.sampled_from([HTTP, WEBSOCKET])


@SCRIPTS
@given(DOORS, worlds(is_slow=st.booleans()), scripts(*ANYTHING))
def test_a_client_gets_the_beginning_of_one_attempt_and_nothing_else(
    door: Door, world: World, script: list[tuple[float, Input]]
) -> None:
    """E9, E10, §4: no loss, no duplicate, no other order, no event of a discarded attempt."""
    run = Run(world.player(door)).plays(timed(script))
    delivered = [id(event.data) for event in run.player.delivered]
    sent = [event for event in run.last_sent if not (is_joined(run) and event.kind is EventClass.ERROR)]
    assert delivered == [id(event.data) for event in sent[: len(delivered)]]


@SCRIPTS
@given(DOORS, worlds(), scripts(BUG, NO_CHOICE, drains(0.25), drains(30.0)))
def test_every_event_that_came_is_delivered_or_counted_as_dropped(
    door: Door, world: World, script: list[tuple[float, Input]]
) -> None:
    """E9: what is not forwarded is logged; what is held at a failure is forwarded."""
    run = Run(world.player(door)).plays(timed(script))
    run.player.waits(10**6)
    if not run.player.is_done or run.player.finish.report is None:
        return
    told_alone = run.player.finish.failure is not None and not run.player.finish.failure.events
    in_grace = sum(event.kind is EventClass.ERROR for event in run.last_sent) and told_alone
    dropped = run.player.finish.report.dropped_events + is_joined(run)
    unaccounted = len(run.last_sent) - len(run.player.delivered) - dropped
    assert unaccounted == 0 or in_grace


@SCRIPTS
@given(DOORS, worlds(is_slow=st.booleans()), scripts(*ANYTHING))
def test_a_turn_is_replayed_once_at_most_and_never_after_a_delivery(
    door: Door, world: World, script: list[tuple[float, Input]]
) -> None:
    """§0, R11."""
    player = Run(world.player(door)).plays(timed(script)).player
    kinds = [type(command) for command in player.said]
    first = next((index for index, kind in enumerate(kinds) if kind in (Deliver, DeliverFailure)), len(kinds))
    assert (kinds.count(Replay) <= 1, Replay in kinds[first:]) == (True, False)


@SCRIPTS
@given(DOORS, worlds(is_slow=st.booleans()), scripts(*ANYTHING), st.sampled_from([LEFT, BUG, "waits"]))
def test_a_turn_that_comes_to_its_end_ends_exactly_once_and_with_its_last_command(
    door: Door, world: World, script: list[tuple[float, Input]], last: Input | str
) -> None:
    """B1: one Finish, whatever the exit; a client that is not read from leaves at last (T6)."""
    moments = timed(script)
    player = Run(world.player(door)).plays(moments).player
    at = moments[-1][0] if moments else 0.0
    if isinstance(last, str):
        player.is_slow = False
        player.steps(HANDED, at)
        player.waits(10**6)
    else:
        player.waits(at)
        player.steps(last, at)
    finishes = [index for index, command in enumerate(player.said) if isinstance(command, Finish)]
    assert finishes == [len(player.said) - 1]


EVERY_INPUT: list[Input] = [
    START,
    Opened(Head()),
    sends(*(make() for make in TYPES.values())),
    *ENDS,
    LEFT,
    drains(0.0),
    Circumstances(another_route_is_left=True),
    HANDED,
    BUG,
    TICK,
]


def test_every_input_there_is_comes_after_the_end() -> None:
    """The property below leaves none out."""
    assert {type(arrived) for arrived in EVERY_INPUT} == set(get_args(Input))


@SCRIPTS
@given(DOORS, worlds(), scripts(*ANYTHING), st.lists(st.tuples(st.floats(0, 10**4), st.sampled_from(EVERY_INPUT))))
def test_done_cannot_be_left(
    door: Door, world: World, script: list[tuple[float, Input]], after: list[tuple[float, Input]]
) -> None:
    """E9: after its end a turn answers nothing and waits for nothing, in whatever order of time."""
    player = Run(world.player(door)).plays(timed(script)).player
    player.steps(LEFT, 10**4)
    said = [player.turn.step(arrived, at) for at, arrived in [*after, *((10**5, each) for each in EVERY_INPUT)]]
    assert (any(said), player.turn.phase, player.turn.deadline) == (False, Phase.DONE, math.inf)


@SCRIPTS
@given(DOORS, worlds(is_slow=st.booleans()), scripts(*ANYTHING))
def test_a_deadline_lies_ahead_or_a_tick_is_enough_to_be_past_it(
    door: Door, world: World, script: list[tuple[float, Input]]
) -> None:
    """T: the engine's wait neither turns in circles nor sleeps past a clock."""
    player = world.player(door)
    for at, arrived in timed(script):
        player.waits(at, through=False)
        player.steps(arrived, at)
        assert not math.isnan(player.turn.deadline)
        if player.turn.deadline <= at:
            player.waits(at)
        assert player.turn.deadline > at


@SCRIPTS
@given(DOORS, worlds(), scripts())
def test_a_late_step_gives_what_steps_in_time_would_have_given(
    door: Door, world: World, script: list[tuple[float, Input]]
) -> None:
    """T: the outcome is the same under every task order. (The hand-over of a late frame is late as well: so without the
    idle clock, which it stops.)"""
    in_time = Run(world.player(door, idle=math.inf)).plays(timed(script)).player
    late = world.player(door, idle=math.inf)
    for at, arrived in timed(script):
        late.steps(arrived, at)
    at = timed(script)[-1][0] if script else 0.0
    in_time.waits(at)
    late.steps(TICK, at)
    assert summary(late) == summary(in_time)


def summary(player: Player) -> object:
    """What a turn came to, however it was cut into steps."""
    ends = [(end.outcome, end.ended, counting_none(end.report)) for end in player.said if isinstance(end, Finish)]
    told = [command for command in player.said if isinstance(command, DeliverFailure)]
    replayed = [counting_none(replay.report) for replay in player.replays]
    return [id(event.data) for event in player.delivered], replayed, told, ends


def counting_none(report: AttemptReport | None) -> AttemptReport | None:
    """A report but for the events that were dropped: in time they would not have been read."""
    return None if report is None else replace(report, dropped_events=0)


@SCRIPTS
@given(DOORS, worlds(), scripts(LEFT, BUG, drains(0.25)))
def test_how_reads_are_cut_changes_nothing(door: Door, world: World, script: list[tuple[float, Input]]) -> None:
    """P2: one read with four events, or four reads at the same instant."""
    whole = Run(world.player(door)).plays(timed(script)).player
    apart = Run(world.player(door))
    for at, arrived in timed(script):
        pieces: list[Input] = [sends(each) for each in arrived.events] if isinstance(arrived, Batch) else [arrived]
        attempt = len(apart.player.replays)
        for piece in pieces:
            if len(apart.player.replays) == attempt:
                apart.plays([(at, piece)])
    assert [id(event.data) for event in apart.player.delivered] == [id(event.data) for event in whole.delivered]
    assert [line.split()[1:] for line in apart.player.lines if "deliver" not in line] == [
        line.split()[1:] for line in whole.lines if "deliver" not in line
    ]


@SCRIPTS
@given(worlds(), scripts(LEFT, BUG, drains(0.25), drains(30.0), text_only=True))
def test_both_doors_give_the_same_events_verdicts_and_money(world: World, script: list[tuple[float, Input]]) -> None:
    """§0: HTTP and WebSocket obey the same rules; E6: but for the `error` that a `failed` replaces."""
    on_http, on_websocket = (Run(world.player(door)).plays(timed(script)) for door in (HTTP, WEBSOCKET))
    on_http.player.waits(10**6)
    on_websocket.player.waits(10**6)
    on_both = [event for event in on_http.player.delivered if not (is_joined(on_websocket) and is_error(event))]
    if on_http.player.finish.outcome not in ("client_disconnected", "internal_error", "route_selection_failed"):
        assert [id(event.data) for event in on_websocket.player.delivered] == [id(event.data) for event in on_both]
    ends = [player.finish for player in (on_http.player, on_websocket.player)]
    assert on_http.player.replays == on_websocket.player.replays
    assert (ends[0].outcome, ends[0].ended, ends[0].report) == (ends[1].outcome, ends[1].ended, ends[1].report)


def is_error(event: Event) -> bool:
    return event.kind is EventClass.ERROR


@SCRIPTS
@given(DOORS, worlds(is_slow=st.booleans()), scripts(*ANYTHING))
def test_money_hears_of_output_only_where_a_client_was_given_some(
    door: Door, world: World, script: list[tuple[float, Input]]
) -> None:
    """B3: never more than was handed over; all of it where nobody left."""
    player = Run(world.player(door)).plays(timed(script)).player.waits(10**6)
    player.steps(LEFT, 10**6)
    ended = player.finish.ended
    had_output = any(event.kind is EventClass.OUTPUT for event in player.delivered)
    has_left = player.finish.outcome == "client_disconnected"
    assert ended.output_delivered == had_output or (has_left and not ended.output_delivered)


@SCRIPTS
@given(DOORS, worlds(is_slow=st.booleans()), scripts(*ANYTHING))
def test_a_turn_holds_back_for_ten_seconds_at_most(door: Door, world: World, script: list[tuple[float, Input]]) -> None:
    """T1: per turn, from its first held lifecycle event: ten seconds later none waits, unless a failure is judged."""
    player = world.player(door)
    held_since = math.inf
    for at, arrived in timed(script):
        player.waits(at, through=not isinstance(arrived, ClientLeft))
        was_running, replays = player.turn.phase is Phase.RUNNING, len(player.replays)
        player.steps(arrived, at)
        came = isinstance(arrived, Batch) and any(event.kind is EventClass.LIFECYCLE for event in arrived.events)
        if came and was_running and player.turn.phase is Phase.RUNNING and len(player.replays) == replays:
            held_since = min(held_since, at)
            assert player.turn.is_committed or at < held_since + 10
