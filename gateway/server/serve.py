"""Serving: Hypercorn on Trio, from the open port to the last turn (T7).

    SIGTERM, SIGINT --> on_drain()         /readyz turns false, no turn starts, idle WebSockets close
                    --> listeners close    new connections are refused, idle ones closed
                    --> running turns have `drain_seconds` to end; what lasts a margin longer is cut
    a second signal --> on_cut_short()     the drain's end is now; what lasts a moment longer is cut
    a third one     --> whatever it does to a process that handles no signals
    SIGHUP          --> on_reload()        models and routes are read anew (C2)
    SIGUSR2         --> a log line: what it asks for is the supervisor's to do

The process's main function calls `listen` (listening.py), then `serve`. Hypercorn's own command line is for trying
things out: it knows nothing of a drain, and its workers cut each other's streams.
"""

from __future__ import annotations

import logging
import signal
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
import trio

from gateway import limits
from gateway.server import hardened
from gateway.server.accepting import WayDown, accept_connections
from gateway.server.hardened.inbound import InboundBytes
from gateway.server.hardened.patience import Pace
from gateway.server.hardened.settings import HardenedConfig
from gateway.server.listening import url_of
from gateway.server.place import DRAIN_MARGIN_SECONDS
from gateway.server.sockets import Sockets

logger = structlog.get_logger("gateway.server")

KEEP_ALIVE_SECONDS: Final = 75.0
"""An idle connection is kept longer than clients (5 s) and proxies (60 s) keep it: they close it, so that no request
meets a closing socket."""
HEADER_BYTES_MAX: Final = 65_536
"""Agents send some KiB of headers, proxies add some."""
CUT_SHORT_SECONDS_MAX: Final = 1.0
"""After a second signal turns still hand over what they hold and say why they end; a client that reads nothing does not
hold that up, and neither does anything that is no turn."""
WRITE_MARGIN_SECONDS: Final = 1.0
"""The turn's own write limit (T6) is to be the first to see a client that reads nothing."""
AT_ITS_PACE: Final = Pace()
PROBES_MAX: Final = 3
"""Unanswered keep-alive probes after which the kernel gives a silent peer up."""


async def serve(
    app: Any,
    listeners: Sequence[trio.SocketListener],
    *,
    on_drain: Callable[[], None],
    on_cut_short: Callable[[], None] = lambda: None,
    on_reload: Callable[[], None] | None = None,
    drain_seconds: float,
    websocket_message_bytes_max: int,
    write_seconds: float = limits.WRITE_SECONDS_MAX,
    ping_seconds: float = limits.PING_SECONDS,
    pace: Pace = AT_ITS_PACE,
    sockets: Sockets | None = None,
    on_cut: Callable[[str], None] = lambda why: None,
    on_refused: Callable[[str], None] = lambda code: None,
    inbound: InboundBytes | None = None,
    is_fast: bool = False,
    tls: ssl.SSLContext | None = None,
    way_down: WayDown | None = None,
    on_listening: Callable[[], None] = lambda: None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> bool:
    """Serve `app` until a signal; reports the URL it is served at. Whether what ran could end by itself. With a
    `way_down` of its own, the caller may close the listeners before the signal comes. Raises UnmeasuredVersion if the
    hardening does not fit what is installed."""
    url = url_of(listeners[0], "http" if tls is None else "https")
    way_down = way_down or WayDown()
    for listener in listeners:
        give_up_dead_peers(listener.socket, write_seconds + WRITE_MARGIN_SECONDS, ping_seconds)
    hardened.install()
    config = _hypercorn_config(drain_seconds, websocket_message_bytes_max, write_seconds, ping_seconds)
    config.pace, config.on_cut, config.on_refused = pace, on_cut, on_refused
    config.inbound, config.is_fast = inbound or InboundBytes(), is_fast
    everything = trio.CancelScope()

    def opened() -> None:
        logger.info("listening", url=url)
        task_status.started(url)
        on_listening()

    async with trio.open_nursery() as watching:
        heard = Heard(on_drain, on_cut_short, on_reload)
        watching.start_soon(_watch_signals, heard, way_down, everything)
        with everything:
            await accept_connections(app, config, listeners, tls, way_down, opened, sockets)
        watching.cancel_scope.cancel()
    logger.info("stopped")
    return not (way_down.is_cut_short or everything.cancelled_caught)


NOT_DONE_HERE: Final = {signal.SIGHUP: "reload_not_supported", signal.SIGUSR2: "restart_not_supported"}
"""Signals whose usual effect would end the process, and what is logged of them."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What is done when a signal comes: the first, a second one, SIGHUP."""

    on_drain: Callable[[], None]
    on_cut_short: Callable[[], None]
    on_reload: Callable[[], None] | None


async def _watch_signals(heard: Heard, way_down: WayDown, everything: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, *NOT_DONE_HERE) as signals:
        async for number in signals:
            name = signal.Signals(number).name
            if number == signal.SIGHUP and heard.on_reload is not None:
                heard.on_reload()
            elif number in NOT_DONE_HERE:
                logger.warning(NOT_DONE_HERE[signal.Signals(number)], signal=name)
            elif way_down.ending.is_set():
                logger.warning("cut_short", signal=name)
                way_down.is_cut_short = True
                heard.on_cut_short()
                everything.deadline = trio.current_time() + CUT_SHORT_SECONDS_MAX
                return
            else:
                logger.info("draining", signal=name)
                heard.on_drain()
                way_down.end()


def _hypercorn_config(
    drain_seconds: float, websocket_message_bytes_max: int, write_seconds: float, ping_seconds: float
) -> HardenedConfig:
    """What Hypercorn's connections are told; the listeners are not theirs."""
    config = HardenedConfig()
    # The turn's own write limit is to be the first to see a client that reads nothing (T6).
    config.write_seconds = write_seconds + WRITE_MARGIN_SECONDS
    config.graceful_timeout = drain_seconds + DRAIN_MARGIN_SECONDS
    config.keep_alive_timeout = KEEP_ALIVE_SECONDS
    config.h11_max_incomplete_size = HEADER_BYTES_MAX
    config.websocket_ping_interval = ping_seconds
    # A frame that is too large for the door still reaches it, so that it can say so (W1).
    config.websocket_max_message_size = 2 * websocket_message_bytes_max
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    return config


def give_up_dead_peers(sock: trio.socket.SocketType, silent_seconds: float, ping_seconds: float) -> None:
    """W7: have the kernel close connections whose peer acknowledges nothing, and those whose peer takes nothing;
    accepted sockets inherit it. The server's own pings and write deadlines find the rest."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silent_seconds * 1000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(ping_seconds)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(ping_seconds)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES_MAX)
