"""Where a client comes from: its peer, or what the trusted proxies say; on record and in the turn's log line."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest
import trio

from gateway.downstream.addresses import forwarded_address
from gateway.lock.driver import AUTHORIZED, connect
from gateway.lock.virtual import virtual_run
from support.gateways import DOORS, create_frame, hang_up, play, world
from support.voices import A

virtual = pytest.mark.trio(run=virtual_run)
PEER = "client.test"
"""What the driver has as the peer."""
FORWARDED = ("x-forwarded-for", "6.6.6.6, 203.0.113.9, 10.0.0.7")


@pytest.mark.parametrize(
    ("forwarded_for", "trusted_hops", "address"),
    [
        ("203.0.113.9", 1, "203.0.113.9"),
        ("6.6.6.6, 203.0.113.9", 1, "203.0.113.9"),
        ("6.6.6.6, 203.0.113.9, 10.0.0.7", 2, "203.0.113.9"),
        ("6.6.6.6,203.0.113.9 ,\t10.0.0.7", 2, "203.0.113.9"),
        ("2001:DB8::1", 1, "2001:db8::1"),
        ("[2001:db8::1]", 1, "2001:db8::1"),
        ("[2001:db8::1]:4711", 1, "2001:db8::1"),
        ("203.0.113.9:4711", 1, "203.0.113.9"),
        # not written by these proxies
        ("203.0.113.9", 2, None),
        ("", 1, None),
        ("unknown", 1, None),
        ("203.0.113.9,", 1, None),
        ("203.0.113.999", 1, None),
        ("[]:80", 1, None),
        ("fe80::1%" + "zone" * 1000, 1, None),
        ("x" * 10_000, 1, None),
        ("\ud83d", 1, None),
    ],
)
def test_the_nth_entry_from_the_right_is_the_work_of_the_nth_proxy(
    forwarded_for: str, trusted_hops: int, address: str | None
) -> None:
    assert forwarded_address(forwarded_for, trusted_hops) == address


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("trusted_hops", "headers", "address"),
    [
        (0, (), PEER),
        (0, (FORWARDED,), PEER),
        (1, (FORWARDED,), "10.0.0.7"),
        (2, (FORWARDED,), "203.0.113.9"),
        (3, (FORWARDED,), "6.6.6.6"),
        (4, (FORWARDED,), PEER),
        (1, (), PEER),
        (2, (("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "10.0.0.7")), "203.0.113.9"),
    ],
)
@virtual
async def test_a_turn_is_recorded_and_logged_with_its_clients_address(
    door: str,
    trusted_hops: int,
    headers: tuple[tuple[str, str], ...],
    address: str,
    logged: list[MutableMapping[str, Any]],
) -> None:
    w = world(A.answer(), server=f"trusted_hops = {trusted_hops}")
    await play(w, door, headers=headers)
    assert [turn.opening.client_address for turn in w.turns] == [address]
    assert [entry["client_address"] for entry in logged if entry["event"] == "turn"] == [address]


@virtual
async def test_every_turn_of_a_websocket_has_the_handshakes_address() -> None:
    w = world(A.answer(), server="trusted_hops = 1")
    async with connect(w.app, "websocket", headers=(*AUTHORIZED, FORWARDED)) as client:
        client.send_text(create_frame())
        await trio.sleep(1.0)
        client.send_text(create_frame())
        await hang_up(client)
    assert [turn.opening.client_address for turn in w.turns] == ["10.0.0.7"] * 2
