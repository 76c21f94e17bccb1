"""The supervisor: N workers, each a process of its own that serves alone; it starts, replaces and ends them.

                          +- line, listening sockets -> worker 0
    signals, control --> supervisor
                          +- line, listening sockets -> worker 1

    SIGTERM, SIGINT      all drain; a second one: all are cut; a third: all are killed
    SIGUSR2, `restart`   they are replaced, one by one
    SIGHUP               told to every worker

- A worker that dies is started again: at once first, then ever later, until it has served for a while.
- If none has ever become ready and each has failed to for `FAILED_STARTS_MAX` times in a row, something is wrong that
  trying again does not mend: it gives up.
- One that died is replaced also while the files cannot be used: by one that serves the last good ones (last_good.py).
- A replacement takes its place when it is ready; only then does its predecessor stop accepting, and drain. One that
  does not become ready changes nothing, as one that cannot use the files.
- No worker is ever touched for the sake of another. The listening sockets are the supervisor's: they outlive workers.
- A supervisor that dies is noticed by its workers, which drain.

It serves nobody itself and runs no app, so that nothing that clients do can reach it.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from typing import Any, Final

import structlog
import trio

from gateway.server import place as words
from gateway.server.last_good import LastGood
from gateway.server.lines import LineReader, LineTooLong
from gateway.server.listening import CannotListen
from gateway.server.place import DRAIN_MARGIN_SECONDS, Place
from gateway.server.posts import BACKOFF_SECONDS_MIN, Launch, Post, State, Worker, open_process
from gateway.server.reuseport import SharedAddress

logger = structlog.get_logger("gateway.supervisor")

BACKOFF_SECONDS_MAX: Final = 5.0
"""A worker that dies at once must neither take the machine's time nor be away for long."""
STEADY_SECONDS: Final = 10.0
"""A worker that has served for so long is no longer one that cannot start."""
FAILED_STARTS_MAX: Final = 5
"""In a row, of each worker, while none has ever been ready: some seconds, in which what was still on its way (a port,
a disk, a name) has come. Whoever started the gateway may start it again."""
START_SECONDS_MAX: Final = 60.0
"""A start takes about a second; on a machine under load perhaps ten."""
LATE_START_SECONDS_MAX: Final = 5.0
"""What a worker that is still starting has to get ready once all end: clients have connected to its sockets meanwhile,
and only a worker that has started can tell them where they stand."""
RETIRE_SECONDS: Final = 0.5
"""Between the last accepted connection and the drain: requests that are on their way still come in, and are served."""
RELOAD_SECONDS_MAX: Final = 10.0
"""What a worker may take to read its files: a second for the largest, more on a machine under load."""
END_MARGIN_SECONDS: Final = 3.0
"""Beyond its own limits a process that does not end is beyond help: it is killed, within 5 s of the drain's end."""

CUT_SHORT: Final = 1
UNUSABLE: Final = 2
CANNOT_START: Final = 3
"""Exit codes, a worker's as well as the supervisor's: turns were cut; the configuration cannot be used. The last is the
supervisor's alone: no worker came up."""


class Supervisor:
    """Keeps `count` workers at one address, numbered from 0. `launch` tells how the process for a place is started."""

    def __init__(
        self,
        launch: Callable[[Place], Launch],
        address: SharedAddress,
        count: int,
        drain_seconds: float,
        last_good: LastGood | None = None,
    ) -> None:
        self._launch = launch
        self._last_good = last_good
        self._address = address
        self._end_seconds = drain_seconds + DRAIN_MARGIN_SECONDS + END_MARGIN_SECONDS
        self._posts = [Post(number) for number in range(count)]
        self._workers: list[Worker] = []
        self._stopping = trio.Event()
        self._signals = 0
        self._is_rolling = False
        self._was_ready = False
        self._on_ready: Callable[[], None] | None = None
        self._exit_code = 0
        self._nursery: trio.Nursery

    def __repr__(self) -> str:
        return f"<Supervisor of {len(self._workers)} workers at {self._address}>"

    def status(self) -> list[dict[str, Any]]:
        """Every worker that lives, also those that drain."""
        return [worker.status() for worker in sorted(self._workers, key=lambda worker: worker.number)]

    async def live(self) -> list[dict[str, Any]]:
        """How every worker's routes stand now (routes_desk.Reloadable); of one that does not say, why."""
        rows = [row for post in self._posts for row in post.live()]

        async def ask(worker: Worker) -> None:
            rows.append(await worker.live())

        async with trio.open_nursery() as nursery:
            for worker in self._workers:
                nursery.start_soon(ask, worker)
        return sorted(rows, key=lambda row: (row["number"], row["pid"] or 0))

    def open(self) -> None:
        """Listen, for workers to come. Raises CannotListen."""
        for post in self._posts:
            post.sockets = self._address.open()

    async def run(self, on_ready: Callable[[], None]) -> int:
        """Start the workers, keep them until a signal, end them. The exit code. `on_ready` is called once, when all
        serve for the first time."""
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2) as signals:
            async with trio.open_nursery() as self._nursery:
                self._on_ready = on_ready
                self._nursery.start_soon(self._obey, signals)
                if self._last_good is not None:
                    self._nursery.start_soon(self._last_good.run)
                for post in self._posts:
                    self._nursery.start_soon(self._fill, post)
                await self._stopping.wait()
                while self._workers:
                    await self._workers[0].ended.wait()
                self._nursery.cancel_scope.cancel()
        logger.info("stopped")
        return self._exit_code

    # --- one worker -------------------------------------------------------------------------------------------------

    async def _start(self, post: Post, last_good: LastGood | None) -> Worker:
        """A new process for the post, with that if it cannot use the files; it does not hold it yet. Raises OSError."""
        with ExitStack() as given, ExitStack() as own:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            own.callback(ours.close)
            given.callback(theirs.close)
            kept = None if last_good is None else last_good.open()
            if kept is not None:
                given.callback(os.close, kept)
            place = Place(post.number, theirs.fileno(), [sock.fileno() for sock in post.sockets], kept)
            process = await open_process(self._launch(place), place)
            own.pop_all()
        worker = Worker(post.number, process, ours, post.restarts)
        self._workers.append(worker)
        logger.info("worker_started", worker=post.number, pid=process.pid)
        self._nursery.start_soon(self._attend, post, worker)
        if self._stopping.is_set():
            self._drain(worker)
        return worker

    async def _attend(self, post: Post, worker: Worker) -> None:
        """See a process through to its end."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, worker)
            nursery.start_soon(_limit_start, worker)
            code = await worker.process.wait()
            nursery.cancel_scope.cancel()
        worker.line.close()
        self._workers.remove(worker)
        worker.note_end()
        self._note_end(post, worker, code)

    async def _listen(self, worker: Worker) -> None:
        """Hear what it says, to its end; one that says nonsense is heard no more, and serves all the same."""
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(worker.line))
        try:
            await self._hear(worker, LineReader(stream, words.ANSWER_BYTES_MAX))
        except LineTooLong as error:
            logger.warning("worker_unheard", worker=worker.number, error=str(error))

    async def reload_to(self, table: str) -> None:
        """Have every worker read its files, and return when each has said which table it serves then (C2)."""
        self.reload()
        with trio.move_on_after(RELOAD_SECONDS_MAX):
            async with trio.open_nursery() as nursery:
                for worker in self._workers:
                    if worker.state is State.READY:
                        nursery.start_soon(worker.wait_for_table, table)

    async def _hear(self, worker: Worker, reader: LineReader) -> None:
        while (said := await reader.next()) is not None:
            if said == words.READY:
                self._note_ready(worker)
            elif said.startswith(words.TABLE):
                worker.note_table(said.split()[-1])
                self._have_files_read()
            elif said.startswith(words.ROUTES):
                worker.note_live(said.removeprefix(words.ROUTES))
            elif said.startswith(words.TURNS) and said.split()[-1].isdecimal():
                worker.turns = int(said.split()[-1])

    def _have_files_read(self) -> None:
        if self._last_good is not None:
            self._last_good.look()

    def _note_ready(self, worker: Worker) -> None:
        worker.ready_at = trio.current_time()
        if worker.state is State.STARTING:
            worker.enter(State.READY)
        logger.info("worker_ready", worker=worker.number, pid=worker.process.pid)
        if worker.owes_reload:
            worker.process.send_signal(signal.SIGHUP)
        worker.settled.set()
        self._was_ready = True
        self._tell_when_all_are()

    def _tell_when_all_are(self) -> None:
        """Once: afterwards workers come and go."""
        all_are = all(post.holder is not None and post.holder.ready_at is not None for post in self._posts)
        if all_are and self._on_ready is not None and not self._stopping.is_set():
            self._on_ready()
            self._on_ready = None

    def _note_end(self, post: Post, worker: Worker, code: int) -> None:
        was_ready = worker.ready_at is not None
        log = logger.info if code == 0 else logger.warning
        log("worker_ended", worker=worker.number, pid=worker.process.pid, code=code)
        if self._stopping.is_set():
            self._exit_code = self._exit_code or (CUT_SHORT if was_ready and code != 0 else 0)
        elif post.holder is worker and code == UNUSABLE and not self._was_ready:
            self._stop(UNUSABLE)
        elif post.holder is worker:
            post.holder = None
            self._try_again(post, worker.ready_at)

    def _try_again(self, post: Post, ready_at: float | None) -> None:
        """Fill the post once more, unless that has proved to be in vain for all."""
        post.failed_starts = post.failed_starts + 1 if ready_at is None else 0
        if not self._was_ready and all(each.failed_starts >= FAILED_STARTS_MAX for each in self._posts):
            logger.error("given_up", failed_starts=FAILED_STARTS_MAX, fix="read what the workers have written above")
            self._stop(CANNOT_START)
        else:
            self._nursery.start_soon(self._fill_again, post, ready_at)

    async def _fill_again(self, post: Post, ready_at: float | None) -> None:
        """Start another process for a post whose holder died, once it is time; it was ready since `ready_at`."""
        if post.is_being_filled:
            return
        post.is_being_filled = True
        if ready_at is not None and trio.current_time() - ready_at >= STEADY_SECONDS:
            post.backoff_seconds = BACKOFF_SECONDS_MIN
        delay, post.backoff_seconds = post.backoff_seconds, min(2 * post.backoff_seconds, BACKOFF_SECONDS_MAX)
        if delay > BACKOFF_SECONDS_MIN:
            post.close()  # what comes now would wait for a worker that may not come: the siblings take it
        await trio.sleep(delay)
        post.is_being_filled = False
        if post.holder is None and not self._stopping.is_set() and self._has_sockets(post):
            post.restarts += 1
            await self._fill(post)

    async def _fill(self, post: Post) -> None:
        try:
            worker = await self._start(post, self._last_good)
        except OSError as error:  # no more processes, no more descriptors: that may pass
            logger.error("worker_not_started", worker=post.number, error=str(error))  # noqa: TRY400 - it says it all
            self._try_again(post, None)
            return
        if post.holder is None:
            post.holder = worker
        else:  # a restart has filled the post meanwhile
            self._nursery.start_soon(self._retire, worker)

    def _has_sockets(self, post: Post) -> bool:
        try:
            post.sockets = post.sockets or self._address.open()
        except CannotListen as error:
            logger.error("worker_not_started", worker=post.number, error=str(error))  # noqa: TRY400 - it says it all
            self._try_again(post, None)
        return bool(post.sockets)

    # --- replacing them ---------------------------------------------------------------------------------------------

    async def roll(self) -> str | None:
        """Replace every worker, one by one. What went wrong: then the rest is as it was."""
        if self._is_rolling:
            return "a restart is under way"
        self._is_rolling = True
        logger.info("restarting")
        try:
            for post in self._posts:
                problem = await self._replace(post)
                if problem is not None:
                    logger.error("restart_given_up", worker=post.number, problem=problem)
                    return f"worker {post.number}: {problem}; it and those after it are as they were"
        finally:
            self._is_rolling = False
        logger.info("restarted")
        return None

    async def _replace(self, post: Post) -> str | None:
        if self._stopping.is_set():
            return "the gateway is stopping"
        if not self._has_sockets(post):
            return "its port cannot be opened"
        try:
            successor = await self._start(post, None)
        except OSError as error:
            return f"its successor cannot be started: {error}"
        await successor.settled.wait()
        if successor.ended.is_set():
            return await self._why_ended(successor.process.returncode)
        predecessor, post.holder = post.holder, successor
        if predecessor is not None:
            await self._retire(predecessor)
        return None

    async def _why_ended(self, code: int | None) -> str:
        """What became of a successor that has ended at once."""
        found = await self._last_good.problems() if code == UNUSABLE and self._last_good is not None else []
        if found:
            return "its successor cannot use the configuration: " + " | ".join(found)
        return f"its successor ended at once, with code {code}"

    async def _retire(self, worker: Worker) -> None:
        worker.enter(State.DRAINING)
        worker.tell(words.RETIRE)
        with trio.move_on_after(RETIRE_SECONDS):
            await worker.ended.wait()
        worker.tell(words.DRAIN)
        await self._await_end(worker)

    async def _await_end(self, worker: Worker) -> None:
        with trio.move_on_after(self._end_seconds):
            await worker.ended.wait()
        if not worker.ended.is_set():
            logger.error("worker_killed", worker=worker.number, pid=worker.process.pid)
            worker.process.kill()

    # --- signals ----------------------------------------------------------------------------------------------------

    async def _obey(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            logger.info("signal", signal=signal.Signals(number).name)
            if number == signal.SIGHUP:
                self.reload()
            elif number == signal.SIGUSR2:
                self._nursery.start_soon(self.roll)
            else:
                self._signals += 1
                self._end(self._signals)

    def reload(self) -> None:
        """Have every worker read its routes anew; one that starts, as soon as it can be told."""
        for worker in self._workers:
            if worker.ready_at is None:
                worker.owes_reload = True
            else:
                worker.process.send_signal(signal.SIGHUP)

    def _end(self, times_asked: int) -> None:
        if times_asked == 1:
            self._stop(0)
        for worker in self._workers:
            if times_asked == 2:
                worker.cut()
            elif times_asked > 2:
                worker.process.kill()

    def _stop(self, code: int) -> None:
        """Accept nothing new, and have every worker drain."""
        if self._stopping.is_set():
            return
        self._exit_code = code
        self._stopping.set()
        for post in self._posts:
            post.close()
        for worker in self._workers:
            self._drain(worker)

    def _drain(self, worker: Worker) -> None:
        if worker.ready_at is None:
            self._nursery.start_soon(_limit_late_start, worker)
        worker.tell(words.DRAIN)
        if worker.state is not State.DRAINING:
            worker.enter(State.DRAINING)
        self._nursery.start_soon(self._await_end, worker)


async def _limit_late_start(worker: Worker) -> None:
    """One that still starts when all end obeys as soon as it serves; one that takes longer is ended (place.py)."""
    if not await worker.settles_within(LATE_START_SECONDS_MAX):
        worker.process.terminate()


async def _limit_start(worker: Worker) -> None:
    if not await worker.settles_within(START_SECONDS_MAX):
        logger.error("worker_not_ready", worker=worker.number, pid=worker.process.pid, seconds=START_SECONDS_MAX)
        worker.process.kill()
