"""Whether the process lives (`/healthz`) and takes turns (`/readyz`)."""

from __future__ import annotations

from quart import Response
from quart_trio import QuartTrio

from gateway.downstream.errors import to_json
from gateway.ports import Draining


class HealthDoor:
    """`GET /healthz` and `GET /readyz`."""

    def __init__(self, draining: Draining) -> None:
        self._draining = draining

    def open(self, app: QuartTrio) -> None:
        """Put the door into the app."""
        app.add_url_rule("/healthz", "healthz", self.healthz, methods=["GET"])
        app.add_url_rule("/readyz", "readyz", self.readyz, methods=["GET"])

    async def healthz(self) -> Response:
        """The process answers."""
        return _status(200, "ok")

    async def readyz(self) -> Response:
        """New turns are taken: false while draining."""
        return _status(503, "draining") if self._draining.is_draining() else _status(200, "ready")


def _status(status: int, word: str) -> Response:
    return Response(to_json({"status": word}), status, content_type="application/json")
