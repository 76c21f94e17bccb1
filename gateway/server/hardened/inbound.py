"""The bytes of clients' requests that a process holds at once: of bodies and messages, whole or not, waited for or run.

    a connection --take--> its Share --+-- given back with the request's end (HTTP)
                                       +-- or when the app is done with a message (WebSocket, ports.Inbound)
                                       +-- or with the connection's end

Each has a bound of its own; thousands of them at their bounds would still be more than any machine has.
"""

from __future__ import annotations

from gateway import limits


class InboundBytes:
    """One process's."""

    def __init__(self, bytes_max: int = limits.INBOUND_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.taken = 0

    def __repr__(self) -> str:
        return f"<InboundBytes, {self.taken} of {self._bytes_max}>"

    def share(self) -> Share:
        """For one connection."""
        return Share(self)

    def take(self, size_bytes: int) -> bool:
        """Whether there is room, which is then taken."""
        has_room = self.taken + size_bytes <= self._bytes_max
        self.taken += size_bytes if has_room else 0
        return has_room


class Share:
    """One connection's bytes. What is given back twice is given back once: its end gives back all, and what is taken
    behind that is nobody's to give back, so it is not counted."""

    __slots__ = ("_has_ended", "_whole", "taken")

    def __init__(self, whole: InboundBytes) -> None:
        self._whole = whole
        self._has_ended = False
        self.taken = 0

    def __repr__(self) -> str:
        return f"<Share, {self.taken} of {self._whole}>"

    def take(self, size_bytes: int) -> bool:
        """Whether there is room for bytes that have come."""
        if self._has_ended:
            return True
        has_room = self._whole.take(size_bytes)
        self.taken += size_bytes if has_room else 0
        return has_room

    def give_back(self, size_bytes: int) -> None:
        """Nobody holds so many of them any more (ports.Inbound)."""
        given = min(size_bytes, self.taken)
        self.taken -= given
        self._whole.taken -= given

    def give_all_back(self) -> None:
        """Nobody holds any."""
        self.give_back(self.taken)

    def end(self) -> None:
        """The connection is over. What it brought is let go by whoever still works on it, when that is done."""
        self.give_all_back()
        self._has_ended = True
