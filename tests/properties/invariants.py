"""What holds after any turn, whatever its upstreams and its client did."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.lock.driver import Client, Heard
from properties.plays import LIFECYCLE_TYPES, NEUTRAL_TYPES, TERMINAL_TYPES, Line, Play, lines_of
from support.gateways import World, cost

LAST_WORDS = (*TERMINAL_TYPES, "error")
NO_OUTPUT = (*LAST_WORDS, *LIFECYCLE_TYPES, *NEUTRAL_TYPES)


def assert_invariants(play: Play, world: World, client: Client) -> None:
    """All of them."""
    assert client.crash is None, client.crash
    assert not any("internal_error" in outcome for outcome in world.attempts), world.attempts
    world.assert_at_rest()
    world.assert_no_trace_of_discarded(client)
    delivered = [heard for heard in client.events if "mark" in heard.payload]
    _assert_in_order_and_of_the_last_attempt(play, world, delivered)
    if play.manners.stalls_at is None:
        _assert_upstreams_are_closed_in_time(world)
    _assert_money(play, world, client)
    if play.manners.reads_to_the_end:
        _assert_nothing_is_lost(play, world, delivered)
        _assert_one_last_word(play, client)


def _assert_in_order_and_of_the_last_attempt(play: Play, world: World, delivered: Sequence[Heard]) -> None:
    """E10, R: what came is how the last attempt began, event by event and byte by byte: none lost in between, none
    doubled, none of another attempt. So nothing was called after anything was delivered."""
    lines = _lines_of_last_attempt(play, world)
    if play.door == "websocket" and delivered and delivered[-1].type == "response.failed":
        lines = _without_the_errors_it_joins(lines, str(delivered[-1].payload["mark"]))
    began = lines[: len(delivered)]
    assert [heard.payload["mark"] for heard in delivered] == [line.mark for line in began]
    for heard, line in zip(delivered, began, strict=True):
        assert play.door == "websocket" or heard.data == line.block
        assert play.door == "http" or heard.type == "error" or b"data: " + heard.data + b"\n\n" in line.block


def _without_the_errors_it_joins(lines: list[Line], last: str) -> list[Line]:
    """E6: on a WebSocket the `response.failed` alone ends the turn."""
    return [line for line in lines if line.said.type != "error" or line.mark == last]


def _assert_upstreams_are_closed_in_time(world: World) -> None:
    """H7, E9: no conversation outlives its attempt by more than the moment in which its end is waited for. (While a
    client does not read, its upstream is not listened to: a terminal event may be older than its hearing.)"""
    if not world.calls:
        return
    ended_at = max(closing.report.ended_at for closing in world.closings)
    assert max(closed_at or 0.0 for closed_at in world.closed_at) <= ended_at + 0.1 + 1e-6


def _assert_nothing_is_lost(play: Play, world: World, delivered: Sequence[Heard]) -> None:
    """All that was sent strictly before the attempt ended is there, up to what tells of its end."""
    if not world.calls:
        return
    (report,) = [closing.report for closing in world.closings[-1:]]
    due: list[str] = []
    for line in _lines_of_last_attempt(play, world):
        tells_of_the_end = line.said.type in LAST_WORDS
        cannot_pass = play.door == "websocket" and not line.said.is_utf8
        if tells_of_the_end or cannot_pass or report.started_at + line.at >= report.ended_at - 1e-6:
            break
        due.append(line.mark)
    assert [heard.payload["mark"] for heard in delivered][: len(due)] == due


def _assert_one_last_word(play: Play, client: Client) -> None:
    """X3, X4, E6: exactly one terminal event or failure, and nothing behind it."""
    types = [heard.type for heard in client.events]
    last_words = [kind for kind in types if kind in LAST_WORDS]
    endings = [["error"], *([terminal] for terminal in TERMINAL_TYPES)]
    assert types[-1] in LAST_WORDS
    assert last_words in ([*endings, ["error", "response.failed"]] if play.door == "http" else endings)


def _assert_money(play: Play, world: World, client: Client) -> None:
    """B2, B3, B4: the client pays for the last attempt only: by a usage of its own, or an estimate of what it got."""
    (resolution,) = world.resolutions
    if resolution.kind == "voided":
        return
    usage = world.closings[-1].report.usage
    if "estimated" in {flag.value for flag in resolution.flags}:
        assert usage is None
        assert resolution.nanodollars <= world.reserved[0]
        assert not play.manners.reads_to_the_end or any(heard.type not in NO_OUTPUT for heard in client.events)
    else:
        assert usage is not None
        assert resolution.nanodollars == cost(usage.input_tokens, usage.output_tokens)
        assert any(line.said.usage is not None for line in _lines_of_last_attempt(play, world))


def _lines_of_last_attempt(play: Play, world: World) -> list[Line]:
    """The events in the script of the route that was tried last."""
    routes = [attempt.route for turn in world.turns for attempt in turn.attempts]
    return lines_of(play.parts["ab".index(routes[-1])], routes[-1]) if routes else []
