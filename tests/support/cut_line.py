"""A line to PostgreSQL that can be cut at a word: what a network does to a transaction, at the instant of choice."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from enum import Enum
from types import TracebackType

from psycopg.conninfo import conninfo_to_dict, make_conninfo

CHUNK_BYTES = 65_536


class Cut(Enum):
    """What is lost when the word passes."""

    BEFORE = "before"
    """the word itself: the server never hears it"""
    AFTER = "after"
    """the answer to it: the server has done as it was told"""


class CutLine:
    """Between a client and the server at `dsn`, on the loopback: `.dsn` is the client's. `cut_at` arms it, once."""

    def __init__(self, dsn: str) -> None:
        self._server = conninfo_to_dict(dsn)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = str(self._listener.getsockname()[1])
        self.dsn = make_conninfo(dsn, host="127.0.0.1", port=port, gssencmode="disable", sslmode="disable")
        self._armed: tuple[bytes, Cut] | None = None
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self.cuts = 0

    def __enter__(self) -> CutLine:
        self._accepting.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()

    def cut_at(self, word: bytes, cut: Cut) -> None:
        """The next time that the client says this word."""
        self._armed = word, cut

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the end
                return
            server = self._connect()
            for call in (self._carry_words, self._carry_answers):
                threading.Thread(target=call, args=(client, server), daemon=True).start()

    def _connect(self) -> socket.socket:
        host, port = self._server["host"], self._server.get("port") or 5432
        if not str(host).startswith("/"):
            return socket.create_connection((str(host), int(port)))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server

    def _carry_words(self, client: socket.socket, server: socket.socket) -> None:
        def carry() -> None:
            while data := client.recv(CHUNK_BYTES):
                if self._armed is None or self._armed[0] not in data:
                    server.sendall(data)
                    continue
                (_, cut), self._armed = self._armed, None
                self.cuts += 1
                client.shutdown(socket.SHUT_RDWR)  # nothing that the server says from here on arrives
                if cut is Cut.AFTER:
                    server.sendall(data)
                return

        _until_it_ends(carry)
        _until_it_ends(lambda: server.shutdown(socket.SHUT_WR))

    def _carry_answers(self, client: socket.socket, server: socket.socket) -> None:
        def carry() -> None:
            while data := server.recv(CHUNK_BYTES):
                client.sendall(data)

        _until_it_ends(carry)
        while _until_it_ends(lambda: server.recv(CHUNK_BYTES)):
            pass  # the server must not hang on an answer that nobody takes
        client.close()
        server.close()


def _until_it_ends(call: Callable[[], object]) -> object:
    """What the call returns; nothing if a side of the line is gone."""
    try:
        return call()
    except OSError:
        return None
