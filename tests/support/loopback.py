"""Scripted upstreams on real loopback sockets, beside the test in a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType

import trio

from gateway.upstream.scripted import Script, serve_scripted
from gateway.upstream.scripted_websocket import serve_scripted_websocket

PATIENCE_SECONDS = 60.0


class LoopbackUpstreams:
    """Each script at a free port of 127.0.0.1, as long as the block lasts; those `framed` over WebSocket."""

    def __init__(self, scripts: Sequence[Script], framed: Sequence[Script] = ()) -> None:
        self._served = [(serve_scripted, one) for one in scripts] + [(serve_scripted_websocket, one) for one in framed]
        self._ports: dict[str, int] = {}
        self._listening = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()
        self._thread = threading.Thread(target=trio.run, args=(self._serve,), daemon=True)

    def __enter__(self) -> LoopbackUpstreams:
        self._thread.start()
        assert self._listening.wait(PATIENCE_SECONDS), "the scripted upstreams do not listen"
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        assert self._token is not None
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join(PATIENCE_SECONDS)

    def base_url(self, name: str) -> str:
        """Where the script of that name is played."""
        return f"http://127.0.0.1:{self._ports[name]}/v1"

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            async with trio.open_nursery() as nursery:
                for serve, script in self._served:
                    self._ports[script.name] = await nursery.start(serve, script, "127.0.0.1", 0)
                self._listening.set()
