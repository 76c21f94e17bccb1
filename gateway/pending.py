"""What a store was asked, and has begun: a plain call begins it, and whoever wants to know what came of it waits.

It goes on by itself. Giving up the wait withdraws nothing, and where it `is_done` nobody needs to wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Pending(Awaitable[T_co], Protocol[T_co]):
    """Something that has begun. Awaited, it is what came of it, or raises what it failed with."""

    @property
    def is_done(self) -> bool:
        """Whether it is known what came of it."""
        ...

    def result(self) -> T_co:
        """The same as awaiting it, once it `is_done`."""
        ...


class Done(Generic[T]):
    """What was done at once (Pending)."""

    __slots__ = ("_result",)
    is_done = True

    def __init__(self, result: T) -> None:
        self._result = result

    def __repr__(self) -> str:
        return f"<Done: {self._result!r}>"

    def result(self) -> T:
        """What came of it."""
        return self._result

    def __await__(self) -> Generator[Any, Any, T]:
        yield from ()
        return self._result


class Underway(Generic[T]):
    """What is seen to its end by whoever waits for it (Pending): `rest` is what is left to do of it."""

    __slots__ = ("_rest",)
    is_done = False

    def __init__(self, rest: Callable[[], Awaitable[T]]) -> None:
        self._rest = rest

    def __repr__(self) -> str:
        return f"<Underway: {self._rest!r}>"

    def result(self) -> T:
        """Is not known before it was waited for."""
        raise RuntimeError(f"{self!r} is not done")

    def __await__(self) -> Generator[Any, Any, T]:
        return self._rest().__await__()
