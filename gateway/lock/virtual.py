"""Virtual time: a run on a clock that starts at 0 and jumps; a deadlock is an error at t = 1e6, not a hang.

`order` seeds the order of tasks: at each step of the scheduler all tasks that can run are shuffled by it, so what must
not depend on the order is seen not to.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, TypeVar

import trio
import trio._core._run as trio_run
from trio.testing import MockClock

T = TypeVar("T")
DEADLOCK_SECONDS: Final = 1e6
CPU_SECONDS_MAX: Final = 20.0
"""For one scenario through one door, which takes less than a tenth of a second: what takes this long has no end."""
CPU_SECONDS_AGAIN: Final = 1.0
"""After which it is told once more, if something held on to the first telling."""
TELLINGS_MAX: Final = 5


class Endless(BaseException):
    """A run that uses the processor and does not end: a livelock. No `except Exception` keeps it."""


def virtual_run(
    function: Callable[..., Awaitable[T]],
    *arguments: Any,
    order: int = 0,
    cpu_seconds: float = math.inf,
    **options: Any,
) -> T:
    """`trio.run` on an autojump clock, under the task order that `order` seeds. Raises Endless if it has used the
    processor for `cpu_seconds`."""
    options.pop("clock", None)
    watch = _Watch()

    async def guarded() -> T:
        watch.token = trio.lowlevel.current_trio_token()
        with watch.scope, trio.fail_after(DEADLOCK_SECONDS):
            return await function(*arguments)
        raise Endless

    with _tasks_in_order(order), watch.started(cpu_seconds):
        return trio.run(guarded, clock=MockClock(autojump_threshold=0), **options)


@contextmanager
def _tasks_in_order(order: int) -> Iterator[None]:
    """The one place where trio draws the order of tasks from; without the switch it only turns each batch round or not.
    Both names are trio's own: a release without them is told of at once (AttributeError)."""
    was_allowed = trio_run._ALLOW_DETERMINISTIC_SCHEDULING
    trio_run._r.seed(order)
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]  # final but for plugins that test
    try:
        yield
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = was_allowed  # type: ignore[misc]  # as above


# --- no livelock is waited for ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Watch:
    """Ends a run that uses the processor for too long. Virtual time cannot tell: it stands still in a livelock."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    token: trio.lowlevel.TrioToken | None = None
    tellings: int = 0

    @contextmanager
    def started(self, seconds: float) -> Iterator[None]:
        """Watch the block. Nothing is watched beside the main thread, or where there is no such timer."""
        is_main = threading.current_thread() is threading.main_thread()
        if math.isinf(seconds) or not is_main or not hasattr(signal, "setitimer"):
            yield
            return
        before = signal.signal(signal.SIGPROF, self._tell)
        signal.setitimer(signal.ITIMER_PROF, seconds, CPU_SECONDS_AGAIN)
        try:
            yield
        except (Endless, BaseExceptionGroup, trio.TrioInternalError) as error:  # trio wraps it, or dies of it
            if _holds_endless(error):
                raise Endless from None
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, signal.SIG_DFL if before is None else before)

    def _tell(self, _signal: int, frame: FrameType | None) -> None:
        """A task that spins is thrown at. Trio's own code is asked, for an exception would break it; not for ever."""
        self.tellings += 1
        if self.token is None or self.tellings >= TELLINGS_MAX or _is_a_tasks(frame):
            raise Endless
        self.token.run_sync_soon(self.scope.cancel)


def _is_a_tasks(frame: FrameType | None) -> bool:
    try:
        trio.lowlevel.current_task()
    except RuntimeError:  # it is the scheduler's
        return False
    return frame is not None and not str(frame.f_globals.get("__name__")).startswith("trio.")


def _holds_endless(error: BaseException) -> bool:
    """Whether it is that, or holds it, or came of it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Endless):
            return True
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            waiting += [one.__cause__, one.__context__]
            waiting += one.exceptions if isinstance(one, BaseExceptionGroup) else []
    return False
