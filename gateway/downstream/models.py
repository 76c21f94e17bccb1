"""Which models a key may use: `GET /v1/models` and `/v1/models/{id}`, in the API's own shape (M1).

Upstreams' names, routes and prices stay inside: a client knows a model by the name it asks for. When it was made is not
known, and said to be 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from quart import Response, request
from quart_trio import QuartTrio

from gateway.core.failures import Refusal
from gateway.core.messages import Door
from gateway.downstream.auth import Keys
from gateway.downstream.connections import held_by
from gateway.downstream.errors import to_json
from gateway.downstream.http import refuse
from gateway.measures import Meter
from gateway.ports import Places

OWNER: Final = "gateway"


class ModelsDoor:
    """The models there are. `names` tells them, in their order."""

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        keys: Keys,
        new_request_id: Callable[[], str],
        places: Places,
        meter: Meter,
    ) -> None:
        self._names = names
        self._keys = keys
        self._new_request_id = new_request_id
        self._places = places
        self._meter = meter

    def open(self, app: QuartTrio) -> None:
        """Put the door into the app."""
        app.add_url_rule("/v1/models", "models", self.models, methods=["GET"])
        app.add_url_rule("/v1/models/<path:name>", "model", self.model, methods=["GET"])

    async def models(self) -> Response:
        """All of the key's."""
        return await self._answer(lambda usable: {"object": "list", "data": [_model(name) for name in usable]})

    async def model(self, name: str) -> Response:
        """One of them."""

        def one(usable: list[str]) -> dict[str, Any]:
            if name not in usable:
                raise Refusal("model_not_found", f"the model {name[:64]!r} is not served here", param="model")
            return _model(name)

        return await self._answer(one)

    async def _answer(self, told: Callable[[list[str]], dict[str, Any]]) -> Response:
        request_id = self._new_request_id()
        try:
            key = await self._keys.admit(request.headers.get("authorization"))
            held_by(request).enter_context(self._places.connection(key.label, lasts=False))
            allowed = key.limits.models
            body = to_json(told([name for name in self._names() if allowed is None or name in allowed]))
        except Refusal as refusal:
            self._meter.refused(Door.HTTP, refusal.code)
            return refuse(refusal, request_id)
        response = Response(body, 200, content_type="application/json")
        response.headers["x-request-id"] = request_id
        return response


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": OWNER}
