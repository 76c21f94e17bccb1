"""One WebSocket message as it comes, in frames and parts of frames, bounded in bytes.

Hypercorn counts a text's characters, and keeps them at up to four bytes each.
"""

from __future__ import annotations

from typing import Any

from hypercorn.protocol.ws_stream import FrameTooLargeError
from wsproto.events import Message


class MessageBuffer:
    """In the place of Hypercorn's WebsocketBuffer."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._data = bytearray()
        self._is_text = False

    def extend(self, event: Message[Any]) -> None:
        """A part of the message. Raises FrameTooLargeError, and keeps nothing, beyond the bound."""
        self._is_text = isinstance(event.data, str)
        self._data += event.data.encode() if isinstance(event.data, str) else event.data
        if len(self._data) > self._bytes_max:
            self.clear()
            raise FrameTooLargeError

    def clear(self) -> None:
        """Ready for the next message."""
        self._data = bytearray()

    def to_message(self) -> dict[str, Any]:
        """The whole message, for the app."""
        data, text = (None, self._data.decode()) if self._is_text else (bytes(self._data), None)
        return {"type": "websocket.receive", "bytes": data, "text": text}
