"""One gateway for each module of attacks, over TLS and on the data plane as it says, and a witness."""

from collections.abc import Iterator

import pytest

from server.attacks.ground import Ground, Witness, ground


@pytest.fixture(scope="module")
def attacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    module = request.module
    plane = f'data_plane = "{module.PLANE}"'
    with ground(tmp_path_factory.mktemp("attacked"), plane, is_tls=module.IS_TLS) as found:
        found.play_turn()
        yield found


@pytest.fixture(scope="module")
def witness(attacked: Ground) -> Iterator[Witness]:
    witness = Witness(attacked)
    yield witness
    witness.dismiss()


@pytest.fixture(scope="module")
def at_rest(attacked: Ground, witness: Witness) -> tuple[int, int]:
    """Memory and descriptors before the first attack, the witness's connections and their upstreams' included."""
    for _ in range(3):
        attacked.play_turn()
    return attacked.resident_bytes, attacked.descriptors
