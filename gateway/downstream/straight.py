"""The app: Quart, whose own ceremony is spared the one request that is a turn.

Quart opens an app's context and a session for each request, matches its path against every rule, and sends signals
before and after it: 400 function calls that a short turn would notice, and no door looks at. So a request for a turn
goes straight to its view, which sees the same `request`. Whatever goes wrong in it goes the ordinary way again, as do
all other requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from quart import Response
from quart.globals import _cv_request
from quart.typing import ResponseTypes
from quart.wrappers import Request
from quart_trio import QuartTrio

Endpoints = Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class Seen:
    """What stands behind Quart's `request`."""

    request: Request


class StraightApp(QuartTrio):
    """`straight` names the endpoints, by method and path, whose requests are spared the ceremony. Their views are
    coroutines that return a response; hooks and signals know nothing of them."""

    def __init__(self, name: str, straight: Endpoints) -> None:
        super().__init__(name)
        self.url_map.merge_slashes = False  # it would redirect, in HTML; here an empty part of a path is none
        self._straight = straight

    async def handle_request(self, request: Request) -> ResponseTypes:
        """Its response, whatever becomes of it."""
        scope = cast("dict[str, Any]", request.scope)
        endpoint = self._straight.get((scope["method"], scope["path"]))
        if endpoint is None or scope.get("root_path"):
            return await super().handle_request(request)
        view = cast(Callable[[], Awaitable[Response]], self.view_functions[endpoint])
        token = _cv_request.set(Seen(request))  # type: ignore[arg-type]  # all that a view asks of a context
        try:
            return await view()
        except Exception as error:
            failure = error
        finally:
            _cv_request.reset(token)
        return await self._answer(failure, request)

    async def _answer(self, failure: Exception, request: Request) -> ResponseTypes:
        """A failed view's response, as Quart-Trio finds it."""
        async with self.request_context(request) as context:
            try:
                result = await self.handle_user_exception(failure)
                return await self.finalize_request(result, context)
            except Exception as error:
                return await self.handle_exception(error)
