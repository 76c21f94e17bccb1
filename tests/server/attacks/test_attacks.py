"""One gateway process under every attack in turn. After each it serves, has given back what it took, and another
client's running stream has noticed nothing."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from server.attacks.ground import Ground, Witness, eventually, ground, turn_request
from server.attacks.http_cases import HTTP_CASES
from server.attacks.websocket_cases import OPENED, WEBSOCKET_CASES, create, upgrade
from server.attacks.wire import Reset, Step, Wait

MEMORY_GROWTH_BYTES_MAX = 48 * 1024 * 1024
"""Over the whole suite: a message at its bound of 1 MiB is there a few times, and an allocator keeps some."""
SILENCE_SECONDS_MAX = 2.0
"""The witness is sent something every 0.05 s. The machine may be busy; an attack that blocks takes longer."""
WITNESSES = 1
POOLED_MAX = 10
"""Idle connections to upstreams, kept for the next turn."""
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


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("attacked")) as found:
        found.play_turn()
        yield found


@pytest.fixture(scope="module")
def witness(attacked: Ground) -> Iterator[Witness]:
    witness = Witness(attacked.port)
    yield witness
    witness.dismiss()


@pytest.fixture(scope="module")
def at_rest(attacked: Ground, witness: Witness) -> tuple[int, int]:
    """Memory and descriptors before the first attack, the witness's connections and their upstreams' included."""
    for _ in range(3):
        attacked.play_turn()
    return attacked.resident_bytes, attacked.descriptors


def assert_nothing_has_happened(attacked: Ground, witness: Witness, at_rest: tuple[int, int]) -> None:
    attacked.play_turn()
    memory, descriptors = at_rest
    assert eventually(lambda: attacked.open_calls == 0), "a turn goes on whose client has left"
    assert eventually(lambda: attacked.connections <= WITNESSES), f"{attacked.connections} connections"
    assert attacked.descriptors <= descriptors + POOLED_MAX
    assert attacked.resident_bytes - memory < MEMORY_GROWTH_BYTES_MAX
    longest, problems = witness.look()
    assert problems == []
    assert longest < SILENCE_SECONDS_MAX
    assert "Traceback" not in attacked.process.output
    assert "connection_dropped" not in attacked.process.output


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
