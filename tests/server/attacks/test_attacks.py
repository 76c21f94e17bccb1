"""One gateway process under every attack in turn. After each it serves, has given back what it took, and another
client's running stream has noticed nothing."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from server.attacks.aftermath import assert_nothing_has_happened
from server.attacks.ground import Ground, Witness, turn_request
from server.attacks.http_cases import HTTP_CASES
from server.attacks.websocket_cases import OPENED, WEBSOCKET_CASES, create, upgrade
from server.attacks.wire import Reset, Step, Until, Wait

IS_TLS = False
PLANE = "fast"
CLIENTS = 200
CLIENTS_AT_ONCE = 50
"""In a storm."""

STORMS: dict[str, Sequence[Step]] = {
    "resets at once": (Reset(),),
    "resets within a head": (b"POST /v1/responses HTTP/1.1\r\nhost:", Reset()),
    "resets within a turn": (turn_request("silent"), Wait(0.3), Reset()),
    "resets within a WebSocket's turn": (upgrade(), OPENED, create("silent"), Wait(0.3), Reset()),
    "connections that say nothing": (Wait(0.3),),
}

LEAVING: dict[str, Sequence[Step]] = {
    "HTTP": (turn_request("ticking"), Until(rb"output_text\.delta"), Reset()),
    "WebSocket": (upgrade(), create("ticking"), Until(rb"output_text\.delta"), Reset()),
}
LEAVING_AT_ONCE = 8
"""As many as the machine serves without a pause that the witness would notice."""


@pytest.mark.parametrize("case", [*HTTP_CASES, *WEBSOCKET_CASES])
def test_one_attack(case: str, attacked: Ground, witness: Witness, at_rest: tuple[int, int]) -> None:
    attacked.peer().play({**HTTP_CASES, **WEBSOCKET_CASES}[case])
    assert_nothing_has_happened(attacked, witness, at_rest)


@pytest.mark.parametrize("case", STORMS)
def test_a_storm_of_clients(case: str, attacked: Ground, witness: Witness, at_rest: tuple[int, int]) -> None:
    barrier = threading.Barrier(CLIENTS_AT_ONCE)

    def play(_number: int) -> None:
        barrier.wait()
        attacked.peer().play(STORMS[case])

    with ThreadPoolExecutor(CLIENTS_AT_ONCE) as clients:
        list(clients.map(play, range(CLIENTS)))
    assert_nothing_has_happened(attacked, witness, at_rest)


@pytest.mark.parametrize("door", LEAVING)
def test_200_clients_that_leave_in_mid_output(
    door: str, attacked: Ground, witness: Witness, at_rest: tuple[int, int]
) -> None:
    """Whatever is being written to them at that moment."""

    def play(_number: int) -> None:
        attacked.peer().play(LEAVING[door])

    with ThreadPoolExecutor(LEAVING_AT_ONCE) as clients:
        list(clients.map(play, range(CLIENTS)))
    assert_nothing_has_happened(attacked, witness, at_rest)
