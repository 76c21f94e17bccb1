"""Calls through httpx2 (calls.Caller): the plain way, which everything else is compared with.

One client for each route, no resends by the transport, no redirects, no cookies (they would carry one account's state
to another), no deadline around a read. What the library raises becomes one of two words:

    ConnectError, ConnectTimeout, PoolTimeout     NeverSent
    any other TransportError                      Broken
"""

from __future__ import annotations

from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx2
import trio

from gateway import limits
from gateway.upstream.answers import WireHeaders, why
from gateway.upstream.calls import Broken, NeverSent, Take
from gateway.upstream.trust import trusted


class HTTPXCaller:
    """Calls to the endpoints below one base URL. `transport` replaces the network."""

    def __init__(
        self, base_url: str, connect_seconds: float, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._connect_seconds = connect_seconds
        self._transport = transport
        self._client = self._new_client(keepalive_max=None)

    def __repr__(self) -> str:
        return f"<HTTPXCaller {self._base_url}>"

    async def call(self, method: str, path: str, headers: WireHeaders, body: bytes) -> HTTPXAnswer:
        """Send the request (calls.Caller); once closed, over a connection for it alone."""
        if self._client.is_closed:
            self._client = self._new_client(keepalive_max=0)
        request = self._client.build_request(method, self._base_url + path, content=body, headers=headers)
        try:
            return HTTPXAnswer(await self._client.send(request, stream=True))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise NeverSent(why(error)) from None
        except httpx2.TransportError as error:
            raise Broken(why(error)) from None

    async def aclose(self) -> None:
        """Close the pooled connections."""
        await self._client.aclose()

    def _new_client(self, *, keepalive_max: int | None) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=self._transport,
            verify=trusted(),
            cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
            timeout=httpx2.Timeout(None, connect=self._connect_seconds),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=keepalive_max),
            follow_redirects=False,
            trust_env=False,
        )


class HTTPXAnswer:
    """An answer (calls.Answer)."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._chunks = response.aiter_raw()
        self.status = response.status_code
        self.headers = response.headers.raw

    def __repr__(self) -> str:
        return f"<HTTPXAnswer {self.status}>"

    def forget_headers(self) -> None:
        """They were read (calls.Answer); httpx keeps its own."""
        self.headers = []

    async def read(self) -> bytes:
        """What has come of the body (calls.Answer)."""
        try:
            async for chunk in self._chunks:
                if chunk:
                    return chunk
        except httpx2.TransportError as error:
            raise Broken(why(error)) from None
        return b""

    async def pass_on(self, take: Take) -> None:
        """Hand over what comes of the body (calls.Answer), each piece by a read of its own."""
        while take(await self.read(), trio.current_time()):
            pass

    async def aclose(self) -> None:
        """Done with it. httpx2 reads through nested generators, and one that is left in the middle drops those within;
        so what is left is ended by a cancelled read, which unwinds them from the inside."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + limits.UPSTREAM_CLOSE_SECONDS_MAX):
            with trio.move_on_after(0, shield=True):
                await self._unwind()
            await self._response.aclose()

    async def _unwind(self) -> None:
        try:
            async for _ in self._chunks:
                pass
        except (httpx2.TransportError, httpx2.StreamError):
            return
