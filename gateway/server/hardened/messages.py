"""One WebSocket message as it comes, in frames and parts of frames, bounded in bytes.

Hypercorn counts a text's characters, and keeps them at up to four bytes each. It closes on a message that is too large;
here the app gets as much as was kept, sees that it is too large and can say so (W1), and the rest is dropped.
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
        self._dropped_bytes = 0
        self._is_text = False
        self._is_dropping = False
        """The app has this message's beginning; the rest is too large."""
        self._has_news = False
        self.is_open = False
        """Whether a message has begun and not ended."""

    def extend(self, event: Message[Any]) -> int:
        """A part of the message; how many bytes are kept of it. Raises FrameTooLargeError for a message that does not
        end within twice the bound."""
        self._is_text = isinstance(event.data, str)
        data = event.data.encode() if isinstance(event.data, str) else event.data
        self.is_open = not event.message_finished
        self._has_news = not self._is_dropping
        if self._is_dropping:
            self._dropped_bytes += len(data)
            self._is_dropping = self.is_open
            if self._dropped_bytes > self._bytes_max:
                raise FrameTooLargeError
            return 0
        self._data += data
        return len(data)

    def clear(self) -> None:
        """Nothing more will come."""
        self._data = bytearray()

    def next_message(self) -> dict[str, Any] | None:
        """What the app is to have now: a whole message, or the beginning of one that is too large."""
        is_too_large = len(self._data) > self._bytes_max
        if not self._has_news or (self.is_open and not is_too_large):
            return None
        self._is_dropping, self._dropped_bytes = self.is_open, 0
        data, self._data = self._data, bytearray()
        if self._is_text:
            return {"type": "websocket.receive", "bytes": None, "text": data.decode()}
        return {"type": "websocket.receive", "bytes": bytes(data), "text": None}
