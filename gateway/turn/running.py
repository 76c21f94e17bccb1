"""One turn while it runs: three tasks in one nursery, which carry out what the turn machine commands.

                 one nursery per turn                                        books: ledger, records
      read_upstream --inputs--> hold_buffer (steps core.turn) --frames--> write_client (writing.py)
        |                                  |   waits end at the machine's deadline
        |     the client leaves --mail-----+
        +--output behind output, while nothing is queued and the client takes it at once--> (passing.py)

- `read_upstream` runs a route's attempt; every input carries the time at which it was seen.
- `hold_buffer` alone steps the machine. It never writes to the client: a write that is stuck must delay neither the
  money nor the upstream's close.
- `write_client` alone writes to the client, from the first frames on. Where these are the last ones, too, whoever
  decided the turn goes on to write. That the client leaves is told by its door, at that instant.
- Nothing is queued between them: a client that reads slowly slows the upstream's socket down.
- Deadlines surround waits for inputs only, for these are atomic: nothing is lost by a wait that is cancelled.
- Whatever ends the turn, its books are closed once, shielded and bounded, beside the last frames (T10). Its place on a
  route is given back at that instant, and the route judged by the failure that the machine decided on (C3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

import structlog
import trio

from gateway import limits
from gateway.aside import Aside
from gateway.core.eligibility import reasons_on
from gateway.core.events import ITEM_DONE
from gateway.core.failures import Failure, UpstreamAnswer
from gateway.core.messages import (
    AttemptEnded,
    Batch,
    ClientLeft,
    Command,
    Deliver,
    DeliverFailure,
    DrainStarted,
    Finish,
    GatewayFailed,
    Handed,
    Head,
    Input,
    Opened,
    Replay,
    Tick,
)
from gateway.core.money import EndedBy
from gateway.core.rules import EXPIRED, Clock, Phase, TurnRules
from gateway.core.turn import Turn
from gateway.ports import Downstream, LedgerUnavailable, Model, Order, Route, Stamped
from gateway.turn.books import OPEN_BOOKS_SECONDS_MAX, Books
from gateway.turn.inputs import Reading, let_the_instant_pass, passes_on, request_id_of
from gateway.turn.mishaps import INTERNAL_FAILURE, STORE_AWAY, is_bug, selection_failure
from gateway.turn.passing import Inlet
from gateway.turn.selection import Chosen, Selection
from gateway.turn.splicing import call_of, named
from gateway.turn.writing import Frames, Writing

logger = structlog.get_logger("gateway.turn")


class RunningTurn:
    """One turn, from its first attempt to its last frame."""

    __slots__ = (
        *("_aside", "_books", "_client", "_finish", "_first", "_has_writer", "_house_drains", "_is_aliased", "_mail"),
        *("_model", "_nursery", "_order", "_place", "_reading", "_selection", "_tried", "_turn"),
        *("_upstream_request_id", "_waiting", "_write_seconds", "_writing"),
    )

    def __init__(
        self,
        order: Order,
        client: Downstream,
        model: Model,
        first: Chosen,
        books: Books,
        selection: Selection,
        rules: TurnRules,
        write_seconds: float,
        aside: Aside,
    ) -> None:
        self._order = order
        self._aside = aside
        self._client = client
        self._model = model
        self._first = first.route
        self._place = first.place
        self._books = books
        self._selection = selection
        self._write_seconds = write_seconds
        self._turn = Turn(
            client.door,
            rules,
            stateful_reasons=reasons_on(order.request, stores_by_default=first.route.stores_by_default),
            replay_is_disabled=order.replay_is_disabled or order.request.client_refused_replay,
        )
        self._tried: list[str] = []
        self._is_aliased = False
        self._mail: list[Stamped] = []
        self._finish: Finish | None = None
        self._upstream_request_id: str | None = None
        self._house_drains = False
        self._writing = Writing(client, write_seconds, self._must_wake_by, self.signal)
        self._has_writer = False
        self._waiting: trio.CancelScope | None = None
        self._reading: Reading | None = None

    def __repr__(self) -> str:
        return f"<RunningTurn {self._order.turn_id}, {self._turn}>"

    def signal(self, arrived: Input) -> None:
        """Tell the turn what happens beside its inputs; it looks up from whatever it waits for. Once it is decided, all
        that matters is that nobody is there to be written to."""
        self._house_drains = self._house_drains or isinstance(arrived, DrainStarted)
        if self._turn.phase is not Phase.DONE:
            self._mail.append((arrived, trio.current_time()))
            if self._waiting is not None:
                self._waiting.cancel()
        elif isinstance(arrived, ClientLeft):
            self._writing.cancel()

    async def run(self) -> None:
        """The turn's life. However it ends, its books are closed and its place on a route is free when this returns."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._client.watch(self._client_left)
                await self._hold_buffer()
                self._writing.end()
                if not self._has_writer:
                    await self._writing.run()
        except BaseException as error:  # noqa: ASYNC103 - what is not a bug is raised again
            await self._end_abruptly(error)  # noqa: ASYNC102 - the books shield themselves, the client may be cut
            if not is_bug(error):
                raise
        finally:
            self._client.unwatch(self._client_left)
            self._writing.turn_has_ended()
            self._place.leave()

    # --- the three tasks ----------------------------------------------------------------------------------------

    async def _hold_buffer(self) -> None:
        try:
            await self._start_attempt(self._first)
        except LedgerUnavailable:
            self._mail.append((GatewayFailed(STORE_AWAY), trio.current_time()))
        while self._mail or self._turn.phase is not Phase.DONE:
            inlet = None if self._mail else await self._wait()
            self._look_after_client(trio.current_time())
            if not self._is_passing_on:
                await let_the_instant_pass(self._client.departure_passes)
            await self._step_all()
            if inlet is not None:
                inlet.was_looked_at()

    async def _read_upstream(self, route: Route, reading: Reading) -> None:
        with reading.scope:
            try:
                await route.upstream.attempt(await call_of(self._order, route, self._aside), reading.inlet)
            except Exception:
                logger.exception("internal_error", turn_id=self._order.turn_id)
                await self._tell_bug(reading.inlet)
            finally:
                reading.inlet.close()

    async def _tell_bug(self, inputs: Inlet) -> None:
        """An adapter's bug ends the turn behind the events that came before it, unless it has ended already."""
        with suppress(trio.BrokenResourceError):
            await inputs.send((GatewayFailed(INTERNAL_FAILURE), trio.current_time()))

    def _have_writer(self) -> None:
        """It begins with the first frames."""
        if not self._has_writer:
            self._has_writer = True
            self._nursery.start_soon(self._writing.run)

    def _write_quiet_by(self, at: float) -> None:
        """H6, H9: have the writer there, if its client is to be told by then that the gateway lives."""
        if self._client.quiet_deadline <= at:
            self._have_writer()

    def _client_left(self, how: str) -> None:
        self.signal(ClientLeft(how))

    # --- waiting ------------------------------------------------------------------------------------------------

    async def _wait(self) -> Inlet | None:
        """For the next input, and whence it came, or for whatever else is due first. While frames wait for the writer
        nobody listens to the upstream."""
        with trio.CancelScope(deadline=self._wait_deadline) as self._waiting:
            try:
                if self._reading is not None and not self._writing.is_behind:
                    self._mail.append(await self._reading.inputs.receive())
                    return self._reading.inlet
            except trio.EndOfChannel:
                pass  # the attempt has said all that it will
            await trio.sleep_forever()
        return None

    @property
    def _wait_deadline(self) -> float:
        quiet_at = math.inf if self._has_writer else self._client.quiet_deadline
        return min(self._turn.deadline, self._writing.stalls_at, quiet_at)

    def _must_wake_by(self, stalls_at: float) -> None:
        """T6: a wait that began before the write must know."""
        if self._waiting is not None:
            self._waiting.deadline = min(self._waiting.deadline, stalls_at)

    def _look_after_client(self, now: float) -> None:
        """T6: judged as a wait ends, so that at its deadline the clock wins."""
        if now >= self._writing.stalls_at:
            self._mail.append((ClientLeft("stalled"), now))
            self._writing.gives_up()
        self._write_quiet_by(now)

    @property
    def _is_passing_on(self) -> bool:
        """Whether nothing that came can end the turn or commit it: output behind output needs no second look."""
        return self._turn.is_committed and bool(self._mail) and all(passes_on(arrived) for arrived, _ in self._mail)

    def _take_mail(self) -> Sequence[Stamped]:
        """All that is there, oldest first, a client that left first of all at its instant; a Tick where nothing is that
        may decide something."""
        mail, self._mail = self._mail, []
        if not mail or isinstance(mail[-1][0], Opened):
            mail.append((Tick(), trio.current_time()))
        if len(mail) > 1:
            mail.sort(key=lambda stamped: (stamped[1], not isinstance(stamped[0], ClientLeft)))
        return mail

    def _keeps(self, head: Opened, at: float) -> bool:
        """A head decides nothing: it is looked at with what comes behind it."""
        if self._turn.phase is Phase.DONE:
            return False
        self._mail.append((head, at))
        return True

    def _passes(self, batch: Batch, at: float, now: float) -> bool:
        """Hand a batch straight to the client, if nothing is queued before it, and nothing left to decide about it."""
        if self._mail or not self._turn.lets_pass(batch.events, at):
            return False
        for event in batch.events:
            if event.type == ITEM_DONE:  # O3: its origin is to be learned
                return False
        if not self._writing.pass_on(batch.events, now):
            return False
        self._turn.passed(batch.events, at)
        return True

    # --- carrying out -------------------------------------------------------------------------------------------

    async def _step_all(self) -> None:
        """In a frame of its own: nothing of it is kept while more is waited for."""
        for arrived, at in self._take_mail():
            await self._step(arrived, at)

    async def _step(self, arrived: Input, at: float) -> None:
        if isinstance(arrived, ClientLeft):
            self._writing.cancel()
        self._note_request_id(arrived)
        if self._is_aliased and isinstance(arrived, Batch):  # M3: a route's own name of the model is not theirs
            arrived = await named(arrived, self._order.request.model, self._aside)
        commands = self._commands(arrived, at)
        if commands and isinstance(commands[-1], Finish):  # T10: known, whatever goes wrong on the way to it
            self._finish = commands[-1]
        for command in commands:
            match command:
                case Deliver() | DeliverFailure():
                    self._hand_over(command)
                case Finish():
                    self._end(command)
                case Replay():
                    await self._replay(command)
        if commands and self._turn.is_committed:
            self._place.delivered()

    def _hand_over(self, frames: Frames) -> None:
        """To the writer: the turn goes on once it has taken them up."""
        was_taken = self._writing.give(frames)
        if self._turn.phase is not Phase.DONE:
            self._have_writer()
            if was_taken:
                self._mail.append((Handed(), trio.current_time()))
        self._learn_origin(frames)

    def _learn_origin(self, frames: Frames) -> None:
        """O1, O3: beside the client's bytes, as all books."""
        if isinstance(frames, Deliver):
            self._books.learn(frames, self._nursery)

    def _commands(self, arrived: Input, at: float) -> Sequence[Command]:
        """The machine's commands, its question about the house answered in between."""
        commands = self._turn.step(arrived, at)
        if self._turn.phase is Phase.JUDGING:
            house = self._selection.circumstances(self._model, self._tried, self._order.request)
            commands += self._turn.step(house, at)
        return commands

    async def _replay(self, replay: Replay) -> None:
        """Discard the attempt, record it beside what goes on, and start another on another route (R15)."""
        self._place.ended(replay.failure)
        self._stop_reading()
        number = self._books.take_attempt()
        self._books.close_discarded(number, replay.report, self._upstream_request_id, self._nursery)
        self._upstream_request_id = None
        try:
            chosen = self._selection.replacement(self._model, self._tried, self._order.request)
            self._place = chosen.place
            await self._start_attempt(chosen.route)
        except Exception:
            logger.exception("route_selection_failed", turn_id=self._order.turn_id)
            self._mail.append((GatewayFailed(selection_failure(self._client.door)), trio.current_time()))

    async def _start_attempt(self, route: Route) -> None:
        """Record the attempt, then call its upstream, unless meanwhile the client has left or the turn was cut."""
        self._write_quiet_by(trio.current_time() + OPEN_BOOKS_SECONDS_MAX)
        await self._books.open_attempt(route)
        self._tried.append(route.name)
        self._is_aliased = route.upstream_model not in (None, self._order.request.model)
        await let_the_instant_pass(self._client.departure_passes)
        departures = [at for arrived, at in self._mail if isinstance(arrived, ClientLeft)]
        for arrived, at in self._mail:
            if isinstance(arrived, DrainStarted):
                await self._step(arrived, at)
        await self._step(route.terms, min([trio.current_time(), *departures]))
        if not departures and self._turn.phase is not Phase.DONE:
            self._reading = Reading.of(self._passes, self._keeps)
            self._nursery.start_soon(self._read_upstream, route, self._reading, name="read_upstream")

    def _end(self, finish: Finish) -> None:
        """The turn is decided: stop reading, close the books beside the last frames."""
        self._place.ended(finish.failure)
        self._stop_reading(drains=finish.ended.by is EndedBy.TERMINAL)
        self._books.close(finish, self._upstream_request_id, self._nursery)

    def _stop_reading(self, *, drains: bool = False) -> None:
        """Nobody listens to the attempt any more; one that has told its end may be read to it (E9)."""
        if self._reading is not None:
            self._reading.inputs.close()
            if not drains:
                self._reading.scope.cancel()
            elif not self._reading.inlet.is_closed:
                self._reading.scope.deadline = trio.current_time() + limits.UPSTREAM_DRAIN_SECONDS_MAX

    def _note_request_id(self, arrived: Input) -> None:
        match arrived:
            case Opened(Head(headers)) | AttemptEnded(Failure(answer=UpstreamAnswer(headers=headers))):
                self._upstream_request_id = request_id_of(headers)

    async def _end_abruptly(self, error: BaseException) -> None:
        """A bug, or a cancellation from outside: close the books all the same, and tell the client what can be told. In
        a drain it is the drain that is cut short."""
        for arrived, _ in self._mail:
            self._note_request_id(arrived)
        was_bug = is_bug(error)
        failure = EXPIRED[Clock.T7] if self._house_drains and not was_bug else INTERNAL_FAILURE
        commands = self._turn.step(GatewayFailed(failure), trio.current_time())
        finish = next((command for command in commands if isinstance(command, Finish)), self._finish)
        async with trio.open_nursery() as nursery:
            if finish is not None:
                self._books.close(finish, self._upstream_request_id, nursery)
            if was_bug:
                logger.error("internal_error", turn_id=self._order.turn_id, exc_info=error)
                await self._tell_the_end([*self._writing.waiting, *commands])

    async def _tell_the_end(self, commands: Sequence[Command]) -> None:
        try:
            with trio.move_on_after(self._write_seconds):
                for command in commands:
                    if isinstance(command, Deliver | DeliverFailure):
                        await self._client.write(command)
                await self._client.end()
        except Exception:
            logger.exception("client_not_told", turn_id=self._order.turn_id)
