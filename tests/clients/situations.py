"""What happens to a client: the situations of the matrix, as data.

A situation is a short conversation that every client holds (`turns`, chained or not, with a tool or not) and what the
two upstreams of its model do meanwhile. Each client has a model of its own for each situation, so that no cell of the
matrix sees the calls of another.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from e2e.scenarios import CODE, MESSAGE, WORDS
from gateway.upstream.scripted import Reply, Silence, Step
from gateway.upstream.scripts import (
    broken,
    event,
    http_failure,
    prelude,
    response_object,
    text_answer,
    two_step_failure,
    usage_object,
)

CHAIN_TURNS = 20
TOOL = "lookup"
ARGUMENTS = '{"city":"Paris"}'
FOUND = "sunny"
"""What the tool says, and every client hands back."""
UNKNOWN_RESPONSE = "resp_that_nobody_made"
BEGINNING_STEPS = 7
"""created, in_progress, no pause, item added, part added, two words."""
GATED_STEPS = 4
"""As far as a reply comes before its gate: behind its first output, whatever it is."""

Scripts = tuple[Sequence[Reply], Sequence[Reply]]
"""What the first route's upstream answers, one reply after the other, and the second's."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A column of the matrix. `calls` is what the upstreams get to see of a client that does as it is told."""

    title: str
    scripts: Callable[[str], Scripts]
    calls: tuple[int, int]
    code: str = ""
    """Of the failure that a client meets."""
    turns: int = 1
    is_chained: bool = False
    has_tool: bool = False
    previous: str | None = None
    store: bool | None = False
    key: str = "main"
    pause_seconds: float = 0.0
    """What a client does between its turns: thinks, or runs a tool."""
    stage: str = "usual"


class Gate:
    """Closed until somebody opens it."""

    def __init__(self) -> None:
        self._opened = threading.Event()

    def open(self) -> None:
        """Let go on what waits."""
        self._opened.set()

    @property
    def is_open(self) -> bool:
        """Whether it was opened."""
        return self._opened.is_set()


class Gated(Sequence[Step]):
    """Steps with a gate behind the first `before` of them."""

    PAUSE_SECONDS = 0.02

    def __init__(self, steps: Sequence[Step], before: int, gate: Gate) -> None:
        self._steps = steps
        self._before = before
        self._gate = gate

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | Sequence[Step]:
        return self._steps[index]

    def __iter__(self) -> Iterator[Step]:
        yield from self._steps[: self._before]
        while not self._gate.is_open:
            yield self.PAUSE_SECONDS
        yield from self._steps[self._before :]


def answer(cell: str, number: int = 1) -> Reply:
    """The answer that a cell's upstream gives in its turn of that number."""
    return text_answer(WORDS, response_id=f"resp_{cell}_{number}")


def tool_call(cell: str, name: str = TOOL, arguments: str = ARGUMENTS, number: int = 1) -> Reply:
    """A response that asks for a tool."""
    response_id = f"resp_{cell}_call_{number}"
    item_id = response_id.replace("resp_", "fc_")
    item = {
        "id": item_id,
        "type": "function_call",
        "status": "completed",
        "call_id": f"call_{cell}_{number}",
        "name": name,
        "arguments": arguments,
    }
    opened = {**item, "status": "in_progress", "arguments": ""}
    place = {"item_id": item_id, "output_index": 0}
    events: list[tuple[str, Mapping[str, Any]]] = [
        ("response.output_item.added", {"output_index": 0, "item": opened}),
        ("response.function_call_arguments.delta", {**place, "delta": arguments}),
        ("response.function_call_arguments.done", {**place, "name": name, "arguments": arguments}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": _completed(response_id, [item])}),
    ]
    numbered = [event(kind, sequence_number=at, **fields) for at, (kind, fields) in enumerate(events, start=2)]
    return Reply((*prelude(response_id), *numbered))


def _completed(response_id: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return response_object(response_id, "completed", output=output, usage=usage_object(12, 6))


# --- what the upstreams do --------------------------------------------------------------------------------------------


def answers(turns: int) -> Callable[[str], Scripts]:
    """The first route answers every turn."""

    def scripts(cell: str) -> Scripts:
        return [answer(cell, number) for number in range(1, turns + 1)], [answer(f"{cell}_second")]

    return scripts


def overloaded_first(cell: str) -> Scripts:
    """It fails before output, with a failure of two events; the second route answers."""
    return [two_step_failure(CODE, MESSAGE, response_id=f"resp_{cell}_overloaded")], [answer(cell)]


def broken_after_output(cell: str) -> Scripts:
    """The first route's stream is reset behind two words. Whoever asks again by himself gets an answer."""
    return [broken(*answer(f"{cell}_broken").steps[:BEGINNING_STEPS]), answer(cell)], [answer(f"{cell}_second")]


def asks_for_a_tool(cell: str) -> Scripts:
    """A tool is called, then the answer comes."""
    return [tool_call(cell), answer(cell)], [answer(f"{cell}_second")]


def silent_first(cell: str) -> Scripts:
    """A turn that is still without output when its connection's time is over."""
    return [Reply((*prelude(f"resp_{cell}_slow"), Silence())), answer(cell)], [answer(f"{cell}_second")]


def gated(gates: Sequence[Gate], replies: Sequence[Reply]) -> list[Reply]:
    """One reply for each gate, in the middle of its output until the gate opens, and the others as they are."""
    held = [
        replace(reply, steps=Gated(reply.steps, GATED_STEPS, gate)) for reply, gate in zip(replies, gates, strict=False)
    ]
    return [*held, *replies[len(held) :]]


# --- a session of Codex: it plays the tools that it is asked for, and the turns behind them --------------------------

COMMAND = f"echo {FOUND}"


def session(turns: int) -> Callable[[str], Scripts]:
    """A command for each turn but the last, which is the answer."""

    def scripts(cell: str) -> Scripts:
        return [*commands(cell, turns - 1), answer(cell)], [answer(f"{cell}_second")]

    return scripts


def commands(cell: str, count: int) -> list[Reply]:
    """So many turns that ask for a command."""
    arguments = json.dumps({"cmd": COMMAND})
    return [tool_call(cell, "exec_command", arguments, number) for number in range(1, count + 1)]


def forgotten_session(cell: str) -> Scripts:
    """The upstream has forgotten what the second turn goes on from, and has it all again in the third."""
    message = "Previous response not found."
    refused = http_failure(400, "previous_response_not_found", message, "invalid_request_error")
    return [*commands(cell, 1), refused, answer(cell)], [answer(f"{cell}_second")]


SITUATIONS: Mapping[str, Situation] = {
    "plain": Situation("plain turns", answers(1), (1, 0)),
    "tools": Situation("tool calls", asks_for_a_tool, (2, 0), turns=2, has_tool=True),
    "chain": Situation(
        f"a chain of {CHAIN_TURNS} turns",
        answers(CHAIN_TURNS),
        (CHAIN_TURNS, 0),
        turns=CHAIN_TURNS,
        is_chained=True,
        store=None,
    ),
    "replayed": Situation("failures before output that are replayed", overloaded_first, (1, 1)),
    "broken": Situation("a stream that breaks after output", broken_after_output, (1, 0), "stream_read_error"),
    "unknown": Situation(
        "an unknown `previous_response_id`",
        answers(1),
        (0, 0),
        "previous_response_not_found",
        previous=UNKNOWN_RESPONSE,
        store=None,
    ),
    "balance": Situation("no balance left", answers(1), (0, 0), "insufficient_balance", key="poor"),
    "rate": Situation(
        "the key's rate limit, second turn", answers(2), (1, 0), "rate_limit_exceeded", turns=2, key="rate"
    ),
    "hour": Situation(
        "the socket's 60 minutes, during a turn",
        silent_first,
        (2, 0),
        "websocket_connection_limit_reached",
        stage="hour",
    ),
    "restart": Situation(
        "a rolling restart during their turns", answers(3), (3, 0), turns=3, pause_seconds=1.0, stage="restart"
    ),
}

SESSIONS: Mapping[str, Situation] = {
    **SITUATIONS,
    "tools": replace(SITUATIONS["tools"], scripts=session(2)),
    "chain": replace(SITUATIONS["chain"], scripts=session(CHAIN_TURNS)),
    "replayed": replace(SITUATIONS["replayed"], stage="expanding"),
    "broken": replace(SITUATIONS["broken"], calls=(2, 0)),
    "unknown": replace(SITUATIONS["unknown"], scripts=forgotten_session, calls=(3, 0)),
    "rate": replace(SITUATIONS["rate"], scripts=session(2), stage="minute"),
    "restart": replace(SITUATIONS["restart"], scripts=session(3)),
}
"""The same for clients that hold the whole conversation by themselves."""


def situation_of(name: str, client: str) -> Situation:
    """As this client is put into it."""
    return (SESSIONS if client.startswith("codex") else SITUATIONS)[name]


def first_request(situation: Situation, model: str) -> dict[str, Any]:
    """What a client that has the API at hand sends first."""
    fields: dict[str, Any] = {"model": model, "input": [{"role": "user", "content": "hello"}]}
    if situation.store is not None:
        fields["store"] = situation.store
    if situation.previous is not None:
        fields["previous_response_id"] = situation.previous
    if situation.has_tool:
        fields["tools"] = [TOOL_SCHEMA]
    return fields


TOOL_SCHEMA: Mapping[str, Any] = {
    "type": "function",
    "name": TOOL,
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
