"""Where the responses that clients ask for by id were made (H2, O2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gateway.core.background import BackgroundTurn, Fingerprint
from gateway.core.events import ID_CHARACTERS_MAX
from gateway.core.failures import Failure, Refusal, UpstreamAnswer
from gateway.core.messages import AttemptStarted
from gateway.core.money import Price
from gateway.ports import Inputs, UpstreamCall
from gateway.turn.origins import Origins
from gateway.turn.selection import House


class ByID(Protocol):
    """One route's way to the responses it has made (H2): over HTTP, whatever its turns go over."""

    async def fetch(self, call: UpstreamCall) -> UpstreamAnswer | Failure:
        """The whole of a successful answer; else what an attempt would have made of it."""
        ...

    async def attempt(self, call: UpstreamCall, inputs: Inputs) -> None:
        """A response's events, streamed once more; as an attempt (Upstream)."""
        ...


@dataclass(frozen=True, slots=True)
class Way:
    """A route, for by-id calls: which upstream it is (B9), and under which names clients know the model that it calls
    by one of its own (M3)."""

    by_id: ByID
    terms: AttemptStarted
    fingerprint: Fingerprint
    price: Price
    upstream_model: str | None = None
    models: tuple[str, ...] = ()


class WaysBack(Protocol):
    """How the responses of background turns are reached."""

    def way_back(self, turn: BackgroundTurn) -> Way | None:
        """The way to the upstream that has the turn's response: of the route of its name, if that is the same upstream
        still, else of one that stood under the name while this process ran (C2); None for nobody that may be asked."""
        ...


class GoingOn(Protocol):
    """The background turns that have not ended."""

    async def way_to(self, account: str, response_id: str) -> Way | None:
        """The way back to the upstream of the turn whose response this is, if there is such a turn, and a way."""
        ...


@dataclass(frozen=True, slots=True)
class Home:
    """Where a response was made: by which route, of which of the client's models, if that is known, the way there, and
    the name under which the client reads its model, if that is not the upstream's own (M3)."""

    account: str
    route: str
    model: str | None
    way: Way

    @property
    def alias(self) -> str | None:
        """M3; of a response that was learned before its model was, by the first model of the route."""
        name = self.model or next(iter(self.way.models), None)
        return None if self.way.upstream_model in (None, name) else name


class KnownHomes:
    """The routes there are, and the origins that are known."""

    def __init__(self, origins: Origins, house: House, ways: Mapping[str, Way], going_on: GoingOn) -> None:
        self._origins = origins
        self._house = house
        self._ways = ways
        self._going_on = going_on

    def __repr__(self) -> str:
        return f"<KnownHomes on {', '.join(self._ways)}>"

    async def home_of(self, account: str, response_id: str) -> Home:
        """Where the account's response was made. Raises Refusal `response_not_found`, `no_route_available`,
        `server_draining` or `ledger_unavailable`."""
        if self._house.is_draining():
            raise Refusal("server_draining", "the gateway is shutting down")
        is_name = 0 < len(response_id) <= ID_CHARACTERS_MAX and response_id.strip(".") != ""
        origin = await self._origins.of_response(account, response_id) if is_name else None
        if origin is None:
            raise _not_known(response_id)
        way = self._ways.get(origin.route)
        if way is None or not origin.maker.is_still(origin.route, way.fingerprint):
            if not origin.is_stored:
                raise _not_known(response_id)
            return Home(account, origin.route, origin.model, await self._way_back(account, response_id))
        if self._house.is_cooling(origin.route):
            raise Refusal("no_route_available", "the route that made the response is cooling down")
        return Home(account, origin.route, origin.model, way)

    async def _way_back(self, account: str, response_id: str) -> Way:
        """B9, C2: whoever pays for a response that goes on may end it where it does."""
        way = await self._going_on.way_to(account, response_id)
        if way is None:
            raise Refusal("no_route_available", "the route that made the response is not there any more")
        return way


def _not_known(response_id: str) -> Refusal:
    return Refusal("response_not_found", f"the response {response_id[:64]!r} is not known here")
