"""Who is let in, and what for (W1, B6, C6)."""

from __future__ import annotations

import pytest
import trio

from gateway.config import StaticKey
from gateway.core.accounts import SpendLimit
from gateway.core.failures import Refusal
from gateway.core.keys import Key, KeyLimits
from gateway.downstream.auth import Keys
from gateway.keys.memory import MemoryKeys
from gateway.keys.secrets import digest_of, new_secret
from gateway.lock.virtual import virtual_run

pytestmark = pytest.mark.trio(run=virtual_run)

LAPTOP = Key("laptop", "main")
SERVER = Key("server", "other", replay_never=True)
STATIC = [StaticKey(LAPTOP, "sk-laptop"), StaticKey(SERVER, "sk-sërver")]
KEYS = Keys(STATIC)
SECRET = new_secret()
NOON = 1_796_040_000.0


class CountedKeys(MemoryKeys):
    """Keys that tell how often they were asked for, and by which digests."""

    def __init__(self, *keys: Key) -> None:
        super().__init__({digest_of(SECRET): key for key in keys})
        self.asked: list[list[str]] = []

    async def find(self, digests: object) -> dict[str, Key]:
        """Counted."""
        assert isinstance(digests, list)
        self.asked.append(digests)
        return dict(await super().find(digests))


async def refusal_of(keys: Keys, authorization: str | None) -> tuple[str, int]:
    """Code and status of the refusal that this header meets."""
    with pytest.raises(Refusal) as caught:
        await keys.admit(authorization)
    assert "sk-" not in caught.value.message
    assert SECRET not in caught.value.message
    return caught.value.code, caught.value.public.status


# --- the configuration's own keys -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization", ["Bearer sk-laptop", "bearer sk-laptop", "BEARER   sk-laptop", "  Bearer sk-laptop  "]
)
async def test_a_known_key_is_let_in(authorization: str) -> None:
    """RFC 9110: the scheme is read in any case."""
    assert await KEYS.admit(authorization) is LAPTOP


async def test_each_key_is_its_own() -> None:
    """B6: it draws on its own account."""
    assert await KEYS.admit("Bearer sk-sërver") is SERVER


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        " ",
        "Bearer",
        "Bearer ",
        "Basic sk-laptop",
        "sk-laptop",
        "Bearersk-laptop",
        "Bearer sk-laptop2",
        "Bearer sk-lapto",
        "Bearer SK-LAPTOP",
        "Bearer sk-laptop, Bearer sk-laptop",
        "Bearer \udcff",
        "Bearer " + "x" * 100_000,
        pytest.param(f"Bearer {SECRET}", id="a secret that is well formed"),
    ],
)
async def test_anything_else_is_refused_by_one_name(authorization: str | None) -> None:
    """X: 401, and nothing is told about the key."""
    assert await refusal_of(KEYS, authorization) == ("invalid_api_key", 401)


async def test_a_repr_shows_names_and_no_secret() -> None:
    """L1: no keys in logs."""
    assert repr(KEYS) == "<Keys laptop, server, None>"
    assert "sk-laptop" not in repr(STATIC)


# --- the store's keys -------------------------------------------------------------------------------------------


async def test_a_stored_key_is_let_in() -> None:
    """B6."""
    keys = Keys(STATIC, CountedKeys(SERVER))
    assert await keys.admit(f"Bearer {SECRET}") is SERVER


async def test_only_what_looks_like_a_stored_key_is_looked_up() -> None:
    """B6: neither the configuration's keys nor what nobody made here cost a reading."""
    book = CountedKeys(SERVER)
    keys = Keys(STATIC, book)
    await keys.admit("Bearer sk-laptop")
    for wrong in ("sk-wrong", SECRET[:-1], SECRET + "x", "gw-" + "?" * 43):
        await refusal_of(keys, f"Bearer {wrong}")
    assert book.asked == []


async def test_an_expired_key_is_told_so_at_the_second_it_ends() -> None:
    """X: `expired_api_key`, by the wall clock, also while its lookup is still remembered."""
    clock = [NOON - 0.001]
    keys = Keys([], CountedKeys(Key("ci", "main", expires_at=NOON)), wall_clock=lambda: clock[0])
    assert (await keys.admit(f"Bearer {SECRET}")).name == "ci"
    clock[0] = NOON
    assert await refusal_of(keys, f"Bearer {SECRET}") == ("expired_api_key", 401)


# --- what a key may do ------------------------------------------------------------------------------------------


async def test_a_request_beyond_the_minutes_limit_is_told_when_to_come_again() -> None:
    """C6, X: whole seconds, rounded up, so that who waits that long is let in."""
    keys, key = Keys([]), Key("ci", "main", limits=KeyLimits(requests_per_minute=2))
    keys.count_request(key)
    await trio.sleep(10.5)
    keys.count_request(key)
    with pytest.raises(Refusal) as caught:
        keys.count_request(key)

    assert (caught.value.code, caught.value.public.status) == ("rate_limit_exceeded", 429)
    assert caught.value.public.retry_after_seconds == 50
    await trio.sleep(50)
    keys.count_request(key)


async def test_a_worker_takes_its_share_of_a_limit() -> None:
    """C6."""
    keys, key = Keys([], workers=4), Key("ci", "main", limits=KeyLimits(requests_per_minute=9))
    keys.count_request(key)
    keys.count_request(key)
    with pytest.raises(Refusal, match="9 requests per minute"):
        keys.count_request(key)


async def test_spending_is_counted_by_the_wall_clock() -> None:
    """B6."""
    keys = Keys([], wall_clock=lambda: NOON)
    limits = KeyLimits(spend_per_day_nanodollars=5)
    assert keys.spend_limits(Key("ci", "main", limits=limits)) == (SpendLimit("main/ci:day:2026-11-30@UTC", 5),)
