"""Where a response that is asked for by its id was made, or why nobody is asked (H2, O2, M3)."""

from __future__ import annotations

from typing import cast

import pytest
import trio

from gateway.core.background import Fingerprint
from gateway.core.events import ID_CHARACTERS_MAX
from gateway.core.failures import Refusal
from gateway.core.messages import AttemptStarted
from gateway.core.money import Price
from gateway.ports import Origin
from gateway.records.memory import MemoryRecords
from gateway.turn.homes import ByID, Home, KnownHomes, Way
from gateway.turn.house import StandingHouse
from gateway.turn.origins import Origins
from support.virtual import in_orders

TERMS = AttemptStarted(first_event_seconds=25.0, idle_seconds=300.0)
NOBODY = cast(ByID, None)
WHO, FREE = Fingerprint("place", "access"), Price(0, 0, 0, 0)
WAY = Way(NOBODY, TERMS, WHO, FREE)
LONGEST = "r" * ID_CHARACTERS_MAX


class NothingGoesOn:
    """No background turns."""

    async def way_to(self, account: str, response_id: str) -> Way | None:
        """Nowhere."""
        await trio.lowlevel.checkpoint()
        return None


def known_homes(house: StandingHouse, *named: str, route: str = "a") -> KnownHomes:
    records = MemoryRecords()
    records.origins.update({("main", name): Origin("main", name, route, "gpt-test") for name in named})
    return KnownHomes(Origins(records), house, {"a": WAY, "b": WAY}, NothingGoesOn())


async def refusal(homes: KnownHomes, response_id: str, account: str = "main") -> str:
    with pytest.raises(Refusal) as refused:
        await homes.home_of(account, response_id)
    return str(refused.value)


@pytest.mark.parametrize("name", ["X", "resp_1", "r.", LONGEST])
@in_orders(1)
async def test_a_response_s_home_is_the_route_that_made_it(name: str) -> None:
    """O2: whatever it is called, up to the longest name that is kept."""
    assert await known_homes(StandingHouse(), name).home_of("main", name) == Home("main", "a", "gpt-test", WAY)


@pytest.mark.parametrize("name", ["", ".", "..", LONGEST + "r", "resp_2"])
@in_orders(1)
async def test_what_is_no_name_or_nobody_s_is_not_known(name: str) -> None:
    """O2, X: a path's own dots are no name; a refusal repeats a little of it."""
    homes = known_homes(StandingHouse(), "", ".", "..", LONGEST + "r")
    assert await refusal(homes, name) == f"response_not_found: the response {name[:64]!r} is not known here"


@in_orders(1)
async def test_another_account_s_is_not_known() -> None:
    """O1."""
    homes = known_homes(StandingHouse(), "resp_1")
    assert await refusal(homes, "resp_1", "other") == "response_not_found: the response 'resp_1' is not known here"


@in_orders(1)
async def test_a_home_that_cannot_be_asked_is_named_as_such() -> None:
    """O2, C3, T7: never elsewhere."""
    house = StandingHouse()
    gone = known_homes(house, "resp_1", route="c")
    assert await refusal(gone, "resp_1") == (
        "no_route_available: the route that made the response is not there any more"
    )
    homes = known_homes(house, "resp_1")
    house.cooling.add("b")
    assert (await homes.home_of("main", "resp_1")).route == "a"
    house.cooling.add("a")
    assert await refusal(homes, "resp_1") == "no_route_available: the route that made the response is cooling down"
    house.begin_drain()
    assert await refusal(homes, "resp_1") == "server_draining: the gateway is shutting down"
    assert repr(homes) == "<KnownHomes on a, b>"


@pytest.mark.parametrize(
    ("model", "upstream_model", "models", "alias"),
    [
        ("mine", None, ("mine",), None),
        ("mine", "mine", ("mine",), None),
        ("mine", "theirs", ("other", "mine"), "mine"),
        (None, "theirs", ("other", "mine"), "other"),
        (None, "theirs", (), None),
    ],
)
def test_a_client_reads_its_own_model_s_name(
    model: str | None, upstream_model: str | None, models: tuple[str, ...], alias: str | None
) -> None:
    """M3: of a response that was learned before its model was, the route's first."""
    assert Home("main", "a", model, Way(NOBODY, TERMS, WHO, FREE, upstream_model, models)).alias == alias
