"""What a key may do, through either door (W1, W4, B6, C6, X): the same refusals, and a WebSocket that stays open."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
import trio

from gateway.core.keys import Key, KeyLimits
from gateway.keys.memory import MemoryKeys
from gateway.keys.secrets import digest_of, new_secret
from gateway.lock.driver import Client, connect
from gateway.ports import LedgerUnavailable
from support.gateways import MODEL, World, create, create_frame, world
from support.virtual import in_every_order
from support.voices import ANSWERED, A, B

SECRET, SECOND = new_secret(), new_secret()
NOON = datetime.fromisoformat("2026-11-30T12:00:00Z").timestamp()
ANYTHING = KeyLimits()
COST = 7000
"""Of one answer, in nano-dollars."""


class Book(MemoryKeys):
    """Keys that a store may not be able to read."""

    is_away = False

    async def find(self, digests: Sequence[str]) -> Mapping[str, Key]:
        """Not while it is away."""
        if self.is_away:
            raise LedgerUnavailable
        return await super().find(digests)


def book(limits: KeyLimits = ANYTHING, **key: Any) -> Book:
    """One key `ci` of the account `main`, with these limits."""
    return Book({digest_of(SECRET): Key("ci", "main", limits=limits, **key)})


@dataclass
class Caller:
    """A client with a key, on one door: HTTP opens a connection for each request, a WebSocket keeps one."""

    world: World
    door: str
    secret: str = SECRET
    socket: Client | None = None
    last: Client | None = field(default=None, repr=False)

    async def ask(self, **fields: Any) -> tuple[list[str], int | None]:
        """One turn: what was told, and the status of a failure."""
        if self.socket is not None:
            return await self._ask_on_socket(self.socket, fields)
        async with connect(
            self.world.app, "http", headers=self.headers, body=json.dumps(create(**fields)).encode()
        ) as c:
            pass
        self.last = c
        return c.told, None if c.told == ANSWERED else c.failure[0]

    async def _ask_on_socket(self, socket: Client, fields: dict[str, Any]) -> tuple[list[str], int | None]:
        seen = len(socket.told)
        socket.send_text(create_frame(**fields))
        await socket.wait_for(lambda client: client.told[seen:][-1:] == ["completed"] or _failed(client.told[seen:]))
        told = socket.told[seen:]
        return told, None if told == ANSWERED else socket.failure[0]

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """What the client shows."""
        return (("authorization", f"Bearer {self.secret}"), ("content-type", "application/json"))

    @property
    def error(self) -> Any:
        """The error object of the last answer."""
        client = self.socket or self.last
        assert client is not None
        return client.events[-1].payload["error"]


def _failed(told: list[str]) -> bool:
    return any(label.startswith("error") for label in told)


@asynccontextmanager
async def calling(w: World, door: str, secret: str = SECRET) -> AsyncIterator[Caller]:
    """A client on this door; nothing is left open when it leaves."""
    caller = Caller(w, door, secret)
    if door == "http":
        yield caller
    else:
        async with connect(w.app, "websocket", headers=caller.headers) as socket:
            await socket.wait_for(lambda client: bool(client.sent))
            caller.socket = socket
            yield caller
            assert socket.close_code is None, "an error closed the socket"
            socket.leave()
    w.assert_at_rest()


async def upgrade_refused(w: World, secret: str) -> tuple[int, str | None]:
    """Status and code of an upgrade that is refused."""
    headers = (("authorization", f"Bearer {secret}"),)
    async with connect(w.app, "websocket", headers=headers) as client:
        pass
    return client.status, client.events[-1].code


# --- who asks ---------------------------------------------------------------------------------------------------


@in_every_order
async def test_a_stored_key_s_turn_is_its_accounts(door: str, logged: list[MutableMapping[str, Any]]) -> None:
    """B6, L1: it pays, and stands in the record by its name; its secret stands nowhere."""
    w = world(A.answer(), keys=book())
    async with calling(w, door) as caller:
        assert await caller.ask() == (ANSWERED, None)

    (turn,) = w.turns
    assert (turn.opening.account, turn.opening.key, w.charged) == ("main", "ci", COST)
    assert [(line["account"], line["key"]) for line in logged if line["event"] == "turn"] == [("main", "ci")]
    assert SECRET not in str(logged) + str(w.turns) + repr(w.gateway)
    assert digest_of(SECRET) not in str(logged) + str(w.turns)


@in_every_order
async def test_the_configurations_key_stands_in_the_record_too(door: str) -> None:
    """L1."""
    w = world(A.answer())
    async with calling(w, door, "demo-key") as caller:
        assert await caller.ask() == (ANSWERED, None)
    assert w.turns[0].opening.key == "main"


@in_every_order
async def test_a_stored_key_may_forbid_replay(door: str) -> None:
    """R10a."""
    w = world(A.status(500), B.answer(), keys=book(replay_never=True))
    async with calling(w, door) as caller:
        await caller.ask()
    assert w.attempts == ["a some_code (disabled)"]


@in_every_order
async def test_a_key_that_is_revoked_opens_no_turn_after_a_second(door: str) -> None:
    """W4: also on a connection that is open; and the connection stays for whoever gives it back."""
    keys = book()
    w = world([A.answer()] * 4, keys=keys)
    async with calling(w, door) as caller:
        assert await caller.ask() == (ANSWERED, None)
        kept = dict(keys.keys)
        keys.keys.clear()
        await trio.sleep(1.0)
        assert await caller.ask() == (["error invalid_api_key"], 401)
        assert await upgrade_refused(w, SECRET) == (401, "invalid_api_key")
        keys.keys.update(kept)
        await trio.sleep(1.0)
        assert await caller.ask() == (ANSWERED, None)
    assert len(w.turns) == 2


@in_every_order
async def test_a_key_that_expires_opens_no_turn_from_that_second_on(door: str) -> None:
    """W4, X: `expired_api_key`."""
    w = world([A.answer()] * 2, keys=book(expires_at=NOON + 10), wall_clock=lambda: NOON + trio.current_time())
    async with calling(w, door) as caller:
        await trio.sleep(9.999)
        assert await caller.ask() == (ANSWERED, None)
        await trio.sleep_until(10.0)
        assert await caller.ask() == (["error expired_api_key"], 401)
        assert await upgrade_refused(w, SECRET) == (401, "expired_api_key")


@in_every_order
async def test_the_configurations_own_key_may_expire(door: str) -> None:
    """B6: static keys take the same limits."""
    w = world([A.answer()] * 2, key='expires = "2026-11-30T12:00:10Z"', wall_clock=lambda: NOON + trio.current_time())
    async with calling(w, door, "demo-key") as caller:
        assert await caller.ask() == (ANSWERED, None)
        await trio.sleep_until(10.0)
        assert await caller.ask() == (["error expired_api_key"], 401)


# --- while the store is away ------------------------------------------------------------------------------------


@in_every_order
async def test_a_key_that_cannot_be_looked_up_is_no_wrong_key(door: str) -> None:
    """X: 503 `ledger_unavailable`, before and after the upgrade; a client's SDK tries again."""
    keys = book()
    w = world([A.answer()] * 3, keys=keys)
    async with calling(w, door) as caller:
        assert await caller.ask() == (ANSWERED, None)
        keys.is_away = True
        assert await caller.ask() == (ANSWERED, None), "it was looked up less than a second ago"
        await trio.sleep(1.0)
        assert await caller.ask() == (["error ledger_unavailable"], 503)
        assert caller.error["retryable"] is True
        assert await upgrade_refused(w, SECRET) == (503, "ledger_unavailable")
        keys.is_away = False
        await trio.sleep(1.0)
        assert await caller.ask() == (ANSWERED, None)


@in_every_order
async def test_the_configurations_keys_need_no_store_to_be_known(door: str) -> None:
    """B6."""
    keys = book()
    keys.is_away = True
    w = world(A.answer(), keys=keys)
    async with calling(w, door, "demo-key") as caller:
        assert await caller.ask() == (ANSWERED, None)


@in_every_order
async def test_a_lookup_that_outlasts_the_connection_s_time_starts_no_turn() -> None:
    """W6: one error frame for the create, and the close; no turn after the limit."""

    class Slow(Book):
        is_slow = False

        async def find(self, digests: Sequence[str]) -> Mapping[str, Key]:
            await trio.sleep(3.0 if self.is_slow else 0.0)
            return await super().find(digests)

    keys = Slow(book().keys)
    w = world(A.answer(), keys=keys, server="connection_limit = 10.0")
    async with connect(w.app, "websocket", headers=Caller(w, "websocket").headers) as client:
        await trio.sleep(8.0)
        keys.is_slow = True
        client.send_text(create_frame())
        await client.wait_for(lambda client: client.close_code is not None)

    assert (client.told, client.close_code) == (["error websocket_connection_limit_reached"], 1001)
    assert w.turns == []


@in_every_order
async def test_a_lookup_that_outlasts_the_drain_s_beginning_starts_no_turn() -> None:
    """T7, W3: `server_draining`, and the close that agents reconnect on."""

    class Slow(Book):
        is_slow = False

        async def find(self, digests: Sequence[str]) -> Mapping[str, Key]:
            await trio.sleep(3.0 if self.is_slow else 0.0)
            return await super().find(digests)

    keys = Slow(book().keys)
    w = world(A.answer(), keys=keys)
    async with connect(w.app, "websocket", headers=Caller(w, "websocket").headers) as client:
        await trio.sleep(8.0)
        keys.is_slow = True
        client.send_text(create_frame())
        await trio.sleep(1.0)
        w.gateway.drain()
        await client.wait_for(lambda client: client.close_code is not None)

    assert (client.told, client.close_code) == (["error server_draining"], 1012)
    assert w.turns == []


# --- which models -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["gpt-other", "no-such-model"])
@in_every_order
async def test_a_model_that_the_key_may_not_use_is_refused(door: str, model: str) -> None:
    """X: 403 with the parameter's name, whether the model is there or not; others are not touched."""
    w = world(A.answer(), keys=book(KeyLimits(models=frozenset({MODEL}))))
    async with calling(w, door) as caller:
        assert await caller.ask(model=model) == (["error model_not_allowed"], 403)
        assert (caller.error["param"], caller.error["retryable"]) == ("model", False)
        assert await caller.ask() == (ANSWERED, None)
    assert len(w.turns) == 1


@in_every_order
async def test_the_configurations_own_key_may_have_a_list_of_models(door: str) -> None:
    """B6: static keys take the same limits."""
    w = world(A.answer(), key=f'models = ["{MODEL}"]')
    async with calling(w, door, "demo-key") as caller:
        assert await caller.ask(model="other") == (["error model_not_allowed"], 403)
        assert await caller.ask() == (ANSWERED, None)


# --- how often --------------------------------------------------------------------------------------------------


@in_every_order
async def test_requests_beyond_the_minute_s_limit_are_told_when_to_come_again(door: str) -> None:
    """C6, X: 429 `rate_limit_exceeded`; each create of a WebSocket counts as a request."""
    w = world([A.answer()] * 3, keys=book(KeyLimits(requests_per_minute=2)))
    async with calling(w, door) as caller:
        assert await caller.ask() == (ANSWERED, None)
        assert await caller.ask() == (ANSWERED, None)
        assert await caller.ask() == (["error rate_limit_exceeded"], 429)
        assert caller.error["retry_after"] == 60
        if caller.last is not None:
            assert (caller.last.headers["retry-after"], caller.last.headers["x-should-retry"]) == ("60", "true")
        await trio.sleep(60)
        assert await caller.ask() == (ANSWERED, None)


@in_every_order
async def test_a_websocket_is_opened_however_many_requests_there_were() -> None:
    """X: an upgrade is never refused with 429, which agents take for fatal."""
    w = world(A.answer(), keys=book(KeyLimits(requests_per_minute=1)))
    async with calling(w, "http") as caller:
        await caller.ask()
    async with calling(w, "websocket") as caller:
        assert await caller.ask() == (["error rate_limit_exceeded"], 429)


@in_every_order
async def test_a_refused_request_takes_no_place_in_the_minute(door: str) -> None:
    """C6: waiting as long as was said helps, however often a client asked meanwhile."""
    w = world([A.answer()] * 2, keys=book(KeyLimits(requests_per_minute=1)))
    async with calling(w, door) as caller:
        await caller.ask()
        for _ in range(5):
            await trio.sleep(10)
            assert (await caller.ask())[1] == 429
        await trio.sleep(10)
        assert await caller.ask() == (ANSWERED, None)


# --- how much ---------------------------------------------------------------------------------------------------


def limit_for_turns(turns: int) -> int:
    """What lets so many turns begin, one after the other: what one reserves, and what those before it cost."""
    probe = 2_001_000
    return probe + (turns - 1) * COST


@in_every_order
async def test_a_key_spends_its_day_and_no_more(door: str) -> None:
    """B6, X: 402 `spend_limit_reached` before any upstream call; what is reserved counts while it is."""
    w = world([A.answer()] * 3, keys=book(KeyLimits(spend_per_day_nanodollars=limit_for_turns(2))))
    async with calling(w, door) as caller:
        assert await caller.ask() == (ANSWERED, None)
        assert await caller.ask() == (ANSWERED, None)
        assert await caller.ask() == (["error spend_limit_reached"], 402)
        assert caller.error["retryable"] is False
    assert (len(w.calls), w.charged) == (2, 2 * COST)


@in_every_order
async def test_case_31_a_day_ends_at_the_midnight_of_the_key_s_zone(door: str) -> None:
    """B6: in Tokyo at 15:00:00 UTC, not at a midnight elsewhere."""
    begins = datetime.fromisoformat("2026-11-30T14:59:00Z").timestamp()
    limits = KeyLimits(spend_per_day_nanodollars=limit_for_turns(1), time_zone="Asia/Tokyo")
    w = world([A.answer()] * 2, keys=book(limits), wall_clock=lambda: begins + trio.current_time())
    async with calling(w, door) as caller:
        assert await caller.ask() == (ANSWERED, None)
        await trio.sleep_until(59.0)  # 14:59:59
        assert await caller.ask() == (["error spend_limit_reached"], 402)
        await trio.sleep_until(60.0)  # 15:00:00
        assert await caller.ask() == (ANSWERED, None)


@in_every_order
async def test_a_turn_counts_in_the_day_in_which_it_was_reserved(door: str) -> None:
    """B6: one that ends after midnight takes nothing from the new day."""
    begins = datetime.fromisoformat("2026-11-30T23:59:59Z").timestamp()
    keys = book(KeyLimits(spend_per_day_nanodollars=limit_for_turns(1)))
    w = world([A.answer(2.0), A.answer()], keys=keys, wall_clock=lambda: begins + trio.current_time())
    async with calling(w, door) as caller:
        assert await caller.ask() == (ANSWERED, None)
        assert trio.current_time() >= 2.0
        assert await caller.ask() == (ANSWERED, None)
    assert w.ledger._book.spent == {
        "main/ci:day:2026-11-30@UTC": COST,
        "main/ci:day:2026-12-01@UTC": COST,
    }


@in_every_order
async def test_a_month_s_limit_outlasts_the_day(door: str) -> None:
    """B6."""
    keys = book(KeyLimits(spend_per_day_nanodollars=10**9, spend_per_month_nanodollars=limit_for_turns(1)))
    w = world([A.answer()] * 2, keys=keys, wall_clock=lambda: NOON + 13 * 3600 * (trio.current_time() >= 10))
    async with calling(w, door) as caller:
        assert await caller.ask() == (ANSWERED, None)
        await trio.sleep(5)
        assert await caller.ask() == (["error spend_limit_reached"], 402)
        await trio.sleep(5)  # now it is December
        assert await caller.ask() == (ANSWERED, None)


@in_every_order
async def test_a_rotated_key_goes_on_where_the_one_before_it_stood(door: str) -> None:
    """B6: neither its spending nor its requests are doubled by having two secrets for a while."""
    limits = KeyLimits(requests_per_minute=2, spend_per_day_nanodollars=limit_for_turns(2))
    keys = book(limits)
    keys.keys[digest_of(SECOND)] = Key("ci", "main", limits=limits)
    w = world([A.answer()] * 3, keys=keys)
    async with calling(w, door) as old:
        assert await old.ask() == (ANSWERED, None)
    async with calling(w, door, SECOND) as new:
        assert await new.ask() == (ANSWERED, None)
        assert await new.ask() == (["error rate_limit_exceeded"], 429)
        await trio.sleep(60)
        assert await new.ask() == (["error spend_limit_reached"], 402)


@in_every_order
async def test_turns_at_once_never_pass_a_key_s_limit(door: str) -> None:
    """B6: what is open counts as spent until it is resolved."""
    w = world([A.answer(1.0)] * 5, keys=book(KeyLimits(spend_per_day_nanodollars=2 * limit_for_turns(1))))
    answers = list[tuple[list[str], int | None]]()

    async def ask_once() -> None:
        caller = Caller(w, door)
        if door == "http":
            answers.append(await caller.ask())
            return
        async with connect(w.app, "websocket", headers=caller.headers) as caller.socket:
            answers.append(await caller.ask())
            caller.socket.leave()

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask_once)
    assert sorted(status or 0 for _, status in answers) == [0, 0, 402, 402, 402]
    w.assert_at_rest()


@in_every_order
async def test_the_configurations_own_key_may_have_limits(door: str) -> None:
    """B6, C6: static keys take the same limits."""
    w = world([A.answer()] * 2, key='requests_per_minute = 2\nspend_per_month = "0.002001"\ntime_zone = "Asia/Tokyo"')
    async with calling(w, door, "demo-key") as caller:
        assert await caller.ask() == (ANSWERED, None)
        assert await caller.ask() == (["error spend_limit_reached"], 402)
        assert await caller.ask() == (["error rate_limit_exceeded"], 429)


# --- durations are no calendar ----------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
@in_every_order
async def test_case_31_a_wall_clock_that_is_set_during_a_hold_does_not_move_it(door: str, step: float) -> None:
    """T1: the hold is ten seconds by the monotonic clock, whatever the wall clock shows."""
    limits = KeyLimits(requests_per_minute=5, spend_per_day_nanodollars=10**9, time_zone="Europe/Berlin")

    def wall_clock() -> float:
        return NOON + trio.current_time() + (step if trio.current_time() >= 3 else 0.0)

    w = world(A.reply(A.created, 20.0, A.delta(), A.completed()), keys=book(limits), wall_clock=wall_clock)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", wall_clock)  # whoever in the gateway looks at the wall clock sees it
        async with calling(w, door) as caller:
            assert (await caller.ask())[0] == ["created", "output_text.delta", "completed"]
    client = caller.socket or caller.last
    assert client is not None
    assert [at for at, label in client.times if label == "created"] == [10.0]
    assert w.ended_at == [20.0]
