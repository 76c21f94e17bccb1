"""The matrix: what each client shows in each situation. Tests are made from it, and the README's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from clients.conversation import Client, Seen
from clients.situations import ARGUMENTS, CHAIN_TURNS, FOUND, SITUATIONS, TOOL, situation_of
from e2e.scenarios import PARTIAL_TEXT, TEXT


@dataclass(frozen=True, slots=True)
class Row:
    """A client: its name for readers, and the function that plays it, loaded when it is wanted."""

    title: str
    module: str
    function: str
    is_npm: bool = False

    def load(self) -> Client:
        """Ready to be asked."""
        client: Client = getattr(import_module(f"clients.{self.module}"), self.function)
        return client


@dataclass(frozen=True, slots=True)
class Cannot:
    """A cell that has no play."""

    why: str


Expected = Seen | Cannot

CLIENTS: Mapping[str, Row] = {
    "openai-sync": Row("openai-python, sync", "python_clients", "openai_sync"),
    "openai-async": Row("openai-python, async", "python_clients", "openai_async"),
    "openai-stream": Row("openai-python, `.stream()`", "python_clients", "openai_stream"),
    "openai-websocket": Row("openai-python, `responses.connect()`", "python_clients", "openai_websocket"),
    "agents-http": Row("openai-agents, HTTP", "agents_clients", "agents_http"),
    "agents-websocket": Row("openai-agents, WebSocket", "agents_clients", "agents_websocket"),
    "websockets": Row("`websockets`", "plain_clients", "websockets_library"),
    "httpx": Row("`httpx`", "plain_clients", "httpx_library"),
    "curl": Row("`curl`", "plain_clients", "curl"),
    "node-loop": Row("openai-node, stream", "node_clients", "node_loop", is_npm=True),
    "node-stream": Row("openai-node, `.stream()`", "node_clients", "node_stream", is_npm=True),
    "node-websocket": Row("openai-node, `ResponsesWS`", "node_clients", "node_websocket", is_npm=True),
    "codex-sse": Row("Codex, SSE", "codex_client", "codex_sse", is_npm=True),
    "codex-websocket": Row("Codex, WebSocket", "codex_client", "codex_websocket", is_npm=True),
}

OVER_WEBSOCKET = ("openai-websocket", "agents-websocket", "websockets", "node-websocket", "codex-websocket")
CODEX = ("codex-sse", "codex-websocket")

CALLED = f"{TOOL}({ARGUMENTS})"
RAN = f"exec_command: {FOUND}"
NO_CONNECTION = Cannot("no socket")

PYTHON = ("openai-sync", "openai-async", "openai-stream", "agents-http")
NODE = ("node-loop", "node-stream")
PLAIN = ("httpx", "curl")
ON_A_SOCKET: Mapping[str, tuple[str, ...]] = {
    "[error {}]": ("openai-websocket", "websockets", "node-websocket"),
    "[ResponsesWebSocketError {}]": ("agents-websocket",),
}

PUT: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    # how the clients put a situation's failure
    "unknown": {"[BadRequestError {}]": (*PYTHON, *NODE), **ON_A_SOCKET, "[400 {}]": PLAIN},
    "balance": {"[APIStatusError {}]": PYTHON, "[APIError {}]": NODE, **ON_A_SOCKET, "[402 {}]": PLAIN},
    "rate": {"[RateLimitError {}]": (*PYTHON, *NODE), **ON_A_SOCKET, "[429 {}]": PLAIN},
    "broken": {"[APIError {}]": (*PYTHON, *NODE), **ON_A_SOCKET, "[response.failed {}]": PLAIN},
    "hour": ON_A_SOCKET,
}


def put(situation: str) -> dict[str, str]:
    """A failure's line, by client."""
    code = SITUATIONS[situation].code
    return {client: form.format(code) for form, clients in PUT[situation].items() for client in clients}


def all_show(*lines: str) -> dict[str, Expected]:
    """The same for every client."""
    return dict.fromkeys(CLIENTS, lines)


def sessions_show(commands: int) -> dict[str, Expected]:
    """Of Codex: so many commands, then the answer."""
    return dict.fromkeys(CODEX, (*[RAN] * commands, TEXT))


BALANCE = "the account's balance does not cover the turn"
RATE = "exceeded retry limit, last status: 429 Too Many Requests"
READ_ERROR = "stream disconnected before completion: the upstream connection failed (ReadError)"

EXPECTED: Mapping[str, Mapping[str, Expected]] = {
    "plain": all_show(TEXT),
    "tools": all_show(CALLED, TEXT) | sessions_show(1),
    "chain": all_show(*[TEXT] * CHAIN_TURNS) | sessions_show(CHAIN_TURNS - 1),
    "replayed": all_show(TEXT),
    "broken": {
        **{client: (f"{PARTIAL_TEXT}{line}",) for client, line in put("broken").items()},
        "codex-sse": (f"[Reconnecting... 1/2 ({READ_ERROR})]", TEXT),
        "codex-websocket": (TEXT,),
    },
    "unknown": {
        **{client: (line,) for client, line in put("unknown").items()},
        "codex-sse": Cannot("sends no such id"),
        "codex-websocket": (RAN, TEXT),
    },
    "balance": {
        **{client: (line,) for client, line in put("balance").items()},
        "codex-sse": (
            f"[Reconnecting... 1/2 (unexpected status 402 Payment Required: {BALANCE})]",
            f"[Reconnecting... 2/2 (unexpected status 402 Payment Required: {BALANCE})]",
            f"[turn.failed unexpected status 402 Payment Required: {BALANCE}]",
        ),
        "codex-websocket": (
            f"[Reconnecting... 2/2 (unexpected status 402 Payment Required: {BALANCE})]",
            f"[Falling back from WebSockets to HTTPS transport. unexpected status 402 Payment Required: {BALANCE}]",
            f"[Reconnecting... 1/2 (unexpected status 402 Payment Required: {BALANCE})]",
            f"[Reconnecting... 2/2 (unexpected status 402 Payment Required: {BALANCE})]",
            f"[turn.failed unexpected status 402 Payment Required: {BALANCE}]",
        ),
    },
    "rate": {
        **{client: (TEXT, line) for client, line in put("rate").items()},
        "codex-sse": (RAN, f"[Reconnecting... 1/2 ({RATE})]", TEXT),
        "codex-websocket": (RAN, f"[turn.failed {RATE}]"),
    },
    "hour": {
        **dict.fromkeys(CLIENTS, NO_CONNECTION),
        **{client: (line, TEXT) for client, line in put("hour").items()},
        "codex-websocket": (TEXT,),
    },
    "restart": all_show(TEXT, TEXT, TEXT) | sessions_show(2),
}
"""Situation, client: the result's lines."""

CALLS: Mapping[tuple[str, str], tuple[int, int]] = {("rate", "codex-sse"): (2, 0)}
"""Where a client asks its upstreams more often than the situation has it: here it waited, and asked again."""


def cells(stage: str, *, is_npm: bool) -> list[tuple[str, str]]:
    """Situation and client of every cell that is played on this stage, in the table's order."""
    return [
        (situation, client)
        for situation, row in EXPECTED.items()
        for client, expected in row.items()
        if not isinstance(expected, Cannot)
        and CLIENTS[client].is_npm is is_npm
        and situation_of(situation, client).stage == stage
    ]
