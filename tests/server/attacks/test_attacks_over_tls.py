"""The same attacks, encrypted: TLS has buffers, ends and half-closes of its own between a peer and the protocol."""

import os
import socket
import time
from collections.abc import Sequence

import pytest

from server.attacks.aftermath import assert_nothing_has_happened
from server.attacks.ground import AUTHORIZED, Ground, Witness, turn_request
from server.attacks.http_cases import HTTP_CASES, POST, SOON_SECONDS
from server.attacks.websocket_cases import WEBSOCKET_CASES
from server.attacks.wire import HalfClose, Step, ToEnd, request

IS_TLS = True
PLANE = "fast"

UNLIKE: dict[str, Sequence[Step]] = {
    # Trio takes an end without TLS's own goodbye for a broken connection: nothing can be answered on it
    "a half-close within the body": (
        request(POST, AUTHORIZED, "content-length: 1000", body=b"{"),
        HalfClose(),
        ToEnd(seconds=SOON_SECONDS),
    ),
}
CASES = {**HTTP_CASES, **WEBSOCKET_CASES, **UNLIKE}
SLICE = (
    # of each kind: heads, bodies, slow peers, peers that leave; upgrades, frames, floods
    "a folded header",
    "a head without end",
    "a clear-text HTTP/2 preface",
    "a priority flood behind the preface",
    "a chunk size that is no number",
    "a length above the bound, and its body",
    "an early answer, then the body",
    "a half-close within the body",
    "a head that comes byte by byte",
    "a body that stops",
    "leaving during the hold",
    "a reset during the hold",
    "a half-close during the hold",
    "pipelining, then leaving during the hold",
    "a reset in mid-output",
    "three requests at once",
    "an upgrade with a bad key",
    "a subprotocol that is no ASCII",
    "frames before the accept",
    "a frame that is not masked",
    "text that is no UTF-8",
    "a message above the bound",
    "parts without end",
    "frames that are no requests, while a turn runs",
    "pings whose pongs nobody reads",
    "a reset within a frame",
)


@pytest.mark.parametrize("case", SLICE)
def test_one_attack_of_each_kind(case: str, attacked: Ground, witness: Witness, at_rest: tuple[int, int]) -> None:
    attacked.peer().play(CASES[case])
    assert_nothing_has_happened(attacked, witness, at_rest)


@pytest.mark.long
@pytest.mark.skipif(not os.environ.get("GATEWAY_LONG"), reason="takes a minute; set GATEWAY_LONG=1")
@pytest.mark.parametrize("case", [case for case in CASES if case not in SLICE])
def test_every_other_attack(case: str, attacked: Ground, witness: Witness, at_rest: tuple[int, int]) -> None:
    attacked.peer().play(CASES[case])
    assert_nothing_has_happened(attacked, witness, at_rest)


UNENCRYPTED: dict[str, Sequence[bytes]] = {
    "a plain request": (b"GET /healthz HTTP/1.1\r\nhost: gateway.test\r\n\r\n",),
    "nothing": (),
    "half a record": (b"\x16\x03\x01\x02\x00",),
    "a record of a protocol that is none": (b"\x80\x2e\x01\x00\x02" + bytes(100),),
    "a large record of nothing": (b"\x17\x03\x03\x40\x00" + bytes(16_384),) * 20,
    "a turn in the clear": (turn_request("plain"),) * 100,
}


@pytest.mark.parametrize("case", UNENCRYPTED)
def test_what_is_no_handshake(case: str, attacked: Ground, witness: Witness, at_rest: tuple[int, int]) -> None:
    """Beside it, many that say nothing at all."""
    mute = [socket.create_connection(("127.0.0.1", attacked.port)) for _ in range(50)]
    with socket.create_connection(("127.0.0.1", attacked.port)) as peer:
        for data in UNENCRYPTED[case]:
            try:
                peer.sendall(data)
            except ConnectionError:
                break
        time.sleep(0.2)
    attacked.play_turn()
    for sock in mute:
        sock.close()
    assert_nothing_has_happened(attacked, witness, at_rest)
