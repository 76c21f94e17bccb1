"""The same attacks where every byte goes through the libraries' layers (`[server] data_plane = "plain"`)."""

import os

import pytest

from server.attacks.aftermath import assert_nothing_has_happened
from server.attacks.ground import Ground, Witness
from server.attacks.http_cases import HTTP_CASES
from server.attacks.test_attacks_over_tls import SLICE
from server.attacks.websocket_cases import WEBSOCKET_CASES

IS_TLS = False
PLANE = "plain"
CASES = {**HTTP_CASES, **WEBSOCKET_CASES}


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
