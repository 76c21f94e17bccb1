"""The clients of a soak: each asks for one turn after the other and does with it what people do, and says what it saw.

read      to its end, over SSE or WebSocket        leave    in the middle of it
whole     one body, without a stream               stall    stop reading for a while, then go on
nonsense  a request that is refused
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from websockets.sync.client import ClientConnection, connect

from e2e.scenarios import KEY
from support.processes import PATIENCE_SECONDS

HEADERS: Final = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
TERMINAL: Final = {"response.completed": "completed", "response.failed": "failed", "error": "failed"}
STALL_SECONDS: Final = 0.5
SMALL_BUFFER: Final = 65_536
TURNS_ON_A_CONNECTION_MAX: Final = 200
SHORT: Final = ("any", "framed")
LONG: Final = ("long", "framed-long")
"""Models, by their upstreams' transport: SSE, WebSocket."""
SHARES: Final = {"read": 70, "whole": 10, "leave": 8, "stall": 1, "nonsense": 5}


@dataclass(slots=True)
class Seen:
    """What clients saw. `completed`: the turn's id and its text's length in words."""

    completed: dict[str, int] = field(default_factory=dict)
    endings: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """What must not be: a text that is told twice or of another turn, two ends, none."""

    def turns(self) -> int:
        """How many there were."""
        return sum(self.endings.values())


class Turn:
    """One turn as it is heard, event by event."""

    def __init__(self, turn_id: str, texts: Iterable[str]) -> None:
        self.turn_id = turn_id
        self._texts = [*texts]
        self.text = ""
        self.words = 0
        self.endings: list[str] = []
        self.codes: list[str] = []

    def hear(self, event: Mapping[str, Any]) -> None:
        """An event of the stream."""
        kind = event["type"]
        if kind == "response.output_text.delta":
            self.text += event["delta"]
            self.words += 1
        elif kind in TERMINAL:
            self.endings.append(TERMINAL[kind])
            self.codes.append(str(event.get("code")))

    def report(self, seen: Seen) -> None:
        """It is over. `error` and `response.failed` are one failure, as upstreams tell it (E6)."""
        ending = self.endings[-1] if self.endings else "nothing"
        is_told_once = len(self.endings) == 1 or self.endings == ["failed", "failed"]
        is_whole = self.text in self._texts if ending == "completed" else self._is_a_beginning()
        if not (is_told_once and is_whole):
            seen.wrong.append(f"{self.turn_id}: {self.endings} {self.codes} behind {self.text[:80]!r}")
        if ending == "completed":
            seen.completed[self.turn_id] = self.words
        seen.endings[ending] += 1

    def _is_a_beginning(self) -> bool:
        return any(text.startswith(self.text) for text in self._texts)


class OverHTTP:
    """A client with one connection that is kept as long as it can be."""

    def __init__(self, url: str, texts: Iterable[str], seen: Seen, seed: int) -> None:
        self._address = urlsplit(url)
        self._texts = [*texts]
        self._seen = seen
        self._random = random.Random(seed)
        self._connection: http.client.HTTPConnection | None = None

    def turn(self) -> None:
        """One of the shapes."""
        shape = self._random.choices([*SHARES], [*SHARES.values()])[0]
        doing: Mapping[str, Callable[[], None]] = {
            "read": self._read,
            "whole": self._whole,
            "leave": self._leave,
            "stall": self._stall,
            "nonsense": self._nonsense,
        }
        doing[shape]()

    def close(self) -> None:
        """Its connection is gone."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _ask(self, fields: Mapping[str, Any], *, is_small: bool = False) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                self._address.hostname or "", self._address.port, timeout=PATIENCE_SECONDS
            )
            self._connection.connect()
            if is_small:
                self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        model = self._random.choice(SHORT)
        body = {"model": model, "input": "hello", "store": False, "stream": True, **fields}
        self._connection.request("POST", "/v1/responses", json.dumps(body), HEADERS)
        return self._connection.getresponse()

    def _read(self) -> None:
        response = self._ask({})
        turn = Turn(response.headers["x-request-id"], self._texts)
        if response.status == 200:
            for event in events_of(response):
                turn.hear(event)
        else:
            turn.hear({**json.load(response)["error"], "type": "error"})
        self._done(response)
        turn.report(self._seen)

    def _whole(self) -> None:
        response = self._ask({"stream": False})
        turn = Turn(response.headers["x-request-id"], self._texts)
        said = json.load(response)
        if response.status == 200:
            for text in (part["text"] for item in said["output"] for part in item["content"]):
                turn.hear({"type": "response.output_text.delta", "delta": text})
            turn.words = len(turn.text.split())
            turn.hear({"type": f"response.{said['status']}"})
        else:
            turn.hear({**said["error"], "type": "error"})
        self._done(response)
        turn.report(self._seen)

    def _leave(self) -> None:
        response = self._ask({"model": self._random.choice([*SHORT, *LONG])})
        response.read(self._random.choice([1, 400, 2000]))
        self.close()
        self._seen.endings["left"] += 1

    def _stall(self) -> None:
        self.close()
        response = self._ask({"model": self._random.choice(LONG)}, is_small=True)
        turn = Turn(response.headers["x-request-id"], self._texts)
        for number, event in enumerate(events_of(response)):
            if number == 10:
                time.sleep(STALL_SECONDS)
            turn.hear(event)
        self.close()
        turn.report(self._seen)

    def _nonsense(self) -> None:
        response = self._ask({"model": self._random.choice([17, "nobody-serves-it"])})
        response.read()
        self._done(response)
        self._seen.endings["refused" if response.status in (400, 404) else f"nonsense {response.status}"] += 1

    def _done(self, response: http.client.HTTPResponse) -> None:
        response.read()
        if response.will_close or self._random.randrange(TURNS_ON_A_CONNECTION_MAX) == 0:
            self.close()


def events_of(response: http.client.HTTPResponse) -> Iterator[Mapping[str, Any]]:
    """The data of an event stream, up to its end."""
    for line in response:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


class OverWebSocket:
    """A client with one socket that it sometimes leaves in the middle of a turn."""

    def __init__(self, url: str, texts: Iterable[str], seen: Seen, seed: int) -> None:
        self._url = f"{url.replace('http', 'ws', 1)}/v1/responses"
        self._texts = [*texts]
        self._seen = seen
        self._random = random.Random(seed)
        self._socket: ClientConnection | None = None
        self._turns = 0

    def turn(self) -> None:
        """One to its end, or a part of one."""
        if self._socket is None:
            self._socket = connect(self._url, additional_headers=HEADERS, max_size=None, compression=None)
            self._turns = 0
        assert self._socket.response is not None
        self._turns += 1
        leaves = self._random.randrange(100) < SHARES["leave"]
        model = self._random.choice(LONG if leaves else SHORT)
        turn = Turn(f"{self._socket.response.headers['x-request-id']}.{self._turns}", self._texts)
        self._socket.send(json.dumps({"type": "response.create", "model": model, "input": "hello", "store": False}))
        while not turn.endings:
            turn.hear(json.loads(self._socket.recv(PATIENCE_SECONDS)))
            if leaves and turn.words == 3:
                self.close()
                self._seen.endings["left"] += 1
                return
        turn.report(self._seen)
        if self._random.randrange(TURNS_ON_A_CONNECTION_MAX) == 0:
            self.close()

    def close(self) -> None:
        """Its socket is gone."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
