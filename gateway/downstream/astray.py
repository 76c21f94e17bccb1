"""Whatever goes wrong outside a door is answered as JSON too (X2): unknown paths, other methods, large bodies, bugs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from quart import Response, has_request_context, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, RequestEntityTooLarge

from gateway.core.failures import Refusal
from gateway.core.messages import Door
from gateway.downstream.http import refuse
from gateway.measures import Meter

RESPONSE: Final = re.compile("/v1/responses/+[^/]")
PATH_CHARACTERS: Final = 128
"""Of a path that leads nowhere: what is told of it."""


def open_error_pages(app: QuartTrio, new_request_id: Callable[[], str], meter: Meter) -> None:
    """Put the answers into the app."""

    def refused(refusal: Refusal) -> Response:
        meter.refused(Door.HTTP, refusal.code)
        return refuse(refusal, new_request_id())

    async def http_error(error: HTTPException) -> Response:  # noqa: ASYNC124 - a plain one would run in a thread
        if isinstance(error, RequestEntityTooLarge):
            return refused(Refusal("payload_too_large", "the body is larger than is accepted here"))
        path = request.path if has_request_context() else ""  # it may be a WebSocket's
        if isinstance(error, NotFound) and RESPONSE.match(path):
            return refused(Refusal("response_not_found", f"there is no response at {path[:PATH_CHARACTERS]!r}"))
        response = refused(Refusal("invalid_request", error.name))
        response.status_code = error.code or 500
        if isinstance(error, MethodNotAllowed) and error.valid_methods:
            response.headers["allow"] = ", ".join(sorted(error.valid_methods))
        return response

    async def bug(_error: Exception) -> Response:  # noqa: ASYNC124 - as above
        return refused(Refusal("internal_error", "the gateway failed; the failure is logged"))

    app.register_error_handler(HTTPException, http_error)
    app.register_error_handler(Exception, bug)
