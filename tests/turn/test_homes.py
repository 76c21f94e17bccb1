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
from gateway.turn.homes import ByID, GoingOn, Home, KnownHomes, Way
from gateway.turn.house import StandingHouse
from gateway.turn.origins import Origins
from support.virtual import in_orders

TERMS = AttemptStarted(first_event_seconds=25.0, idle_seconds=300.0)
NOBODY = cast(ByID, None)
WHO, FREE = Fingerprint("place", "access"), Price(0, 0, 0, 0)
WAY = Way(NOBODY, TERMS, WHO, FREE)
ANOTHER_WAY = Way(NOBODY, TERMS, Fingerprint("another", "access"), FREE)
LONGEST = "r" * ID_CHARACTERS_MAX


class NothingGoesOn:
    """No background turns."""

    async def way_to(self, account: str, response_id: str) -> Way | None:
        """Nowhere."""
        await trio.lowlevel.checkpoint()
        return None


class GoesOn:
    """One response goes on, at an upstream of its own."""

    async def way_to(self, account: str, response_id: str) -> Way | None:
        """To that one."""
        await trio.lowlevel.checkpoint()
        return ANOTHER_WAY if (account, response_id) == ("main", "resp_1") else None


def known_homes(
    house: StandingHouse, *named: str, route: str = "a", is_stored: bool = True, going_on: GoingOn | None = None
) -> KnownHomes:
    records = MemoryRecords()
    made = {name: Origin("main", name, route, "gpt-test", is_stored=is_stored) for name in named}
    records.origins.update({("main", name): origin for name, origin in made.items()})
    return KnownHomes(Origins(records), house, {"a": WAY, "b": WAY}, going_on or NothingGoesOn())


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


@in_orders(1)
async def test_what_goes_on_at_an_upstream_that_no_route_has_is_at_home_there() -> None:
    """B9, C2, O2: under its route's name still, and for its own account's turn only."""
    homes = known_homes(StandingHouse(), "resp_1", "resp_2", route="c", going_on=GoesOn())
    assert await homes.home_of("main", "resp_1") == Home("main", "c", "gpt-test", ANOTHER_WAY)
    assert (await refusal(homes, "resp_2")).startswith("no_route_available: ")


@in_orders(1)
async def test_what_only_a_socket_held_is_not_known_once_its_route_is_gone() -> None:
    """W10, O2: its client learns which."""
    homes = known_homes(StandingHouse(), "resp_1", route="c", is_stored=False, going_on=GoesOn())
    assert await refusal(homes, "resp_1") == "response_not_found: the response 'resp_1' is not known here"


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
