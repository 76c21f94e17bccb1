"""Codex over WebSocket in front of upstreams that speak HTTP only and remember nothing (W9, W10).

Codex warms its socket up, and sends from then on what is new, with the id of what it goes on from. The upstreams here
refuse every such id: what they answer they were asked in full.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.codex_client import codex_websocket
from clients.conversation import Asked, Seen
from clients.node_clients import NPM
from clients.situations import SITUATIONS, answer, commands
from clients.stage import SWITCH, Set, serving
from clients.table import RAN
from e2e.scenarios import TEXT
from gateway.upstream.scripted import Reply, Script
from gateway.upstream.scripts import event, http_failure, two_step_failure
from support.processes import PATIENCE_SECONDS, Process

pytestmark = NPM

TURNS = 6
FAILING_TURN = 3
"""Counted from 1: in the middle of the session."""
REFUSED = http_failure(400, "previous_response_not_found", "Previous response not found.", "invalid_request_error")


class Forgetful(Script):
    """An upstream that stores nothing."""

    def next_reply(self) -> Reply:
        """Refuse what goes on from something."""
        return REFUSED if self.calls[-1].fields.get("previous_response_id") else super().next_reply()


@dataclass(frozen=True, slots=True)
class Session:
    """What was seen of one: by its user, by each upstream, by the gateway's log."""

    shown: Seen
    asked: tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]
    turns: Sequence[Mapping[str, Any]]

    @property
    def calls(self) -> tuple[int, int]:
        """How many each upstream got."""
        return len(self.asked[0]), len(self.asked[1])

    @property
    def reasons(self) -> list[str]:
        """Why failed attempts were replayed or not."""
        return [attempt["reason"] for turn in self.turns for attempt in turn["attempts"] if attempt["reason"]]


def failing(cell: str, replies: Sequence[Reply], code: str = "server_error") -> list[Reply]:
    """A failure before output in the middle, which comes and goes."""
    failure = two_step_failure(code, "The server had an error.", response_id=f"resp_{cell}_failed")
    return [*replies[: FAILING_TURN - 1], failure, *replies[FAILING_TURN - 1 :]]


def reasoned(reply: Reply) -> Reply:
    """The reply with encrypted reasoning in front of its output."""
    item = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAAA-sealed"}
    done = event("response.output_item.done", sequence_number=3, output_index=0, item=item)
    added = event("response.output_item.added", sequence_number=2, output_index=0, item=item)
    return Reply((*reply.steps[:2], added, done, *reply.steps[2:]))


Replies = Callable[[str], tuple[Sequence[Reply], Sequence[Reply]]]


def session(tmp_path: Path, server: str, replies: Replies, turns: int = TURNS) -> Session:
    """Play it."""
    cell = "session"
    scripts = {f"{cell}-{n}": Forgetful(f"{cell}-{n}", found) for n, found in enumerate(replies(cell), start=1)}
    with serving(Set(server), (), scripts, tmp_path) as (process, url):
        shown = codex_websocket(Asked(f"{url}/v1", "key-main", cell, SITUATIONS["chain"]))
        bodies = [[call.fields for call in script.calls] for script in scripts.values()]
        return Session(shown, (bodies[0], bodies[1]), turns_of(process, turns))


def turns_of(process: Process, at_least: int) -> list[dict[str, Any]]:
    """The log's lines of turns, once all are there."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        lines = [json.loads(line) for line in process.output.splitlines() if '"event": "turn"' in line]
        if len([line for line in lines if line["attempts"]]) >= at_least:
            return lines
        time.sleep(0.02)
    raise AssertionError(process.output)


WHOLE = (*[RAN] * (TURNS - 1), TEXT)


def test_a_session_goes_on_turn_after_turn(tmp_path: Path) -> None:
    """W9, W10: one socket, no turn twice, and every request is the whole conversation."""
    seen = session(tmp_path, "", lambda cell: ([*commands(cell, TURNS - 1), answer(cell)], [answer(cell)]))
    assert (seen.shown, seen.calls) == (WHOLE, (TURNS, 0))
    assert {turn["door"] for turn in seen.turns} == {"websocket"}
    outputs = [[item["type"] for item in body["input"]].count("function_call_output") for body in seen.asked[0]]
    assert outputs == list(range(TURNS))
    assert all(body["tools"] for body in seen.asked[0])


def test_a_failure_in_the_middle_is_invisible_with_the_switch(tmp_path: Path) -> None:
    """W10: the expanded request is stateless, so it is replayed, and Codex sends nothing again."""
    seen = session(
        tmp_path,
        f"{SWITCH} = true",
        lambda cell: (failing(cell, [*commands(cell, TURNS - 2), answer(cell)]), commands(f"{cell}_second", 1)),
    )
    assert (seen.shown, seen.calls, seen.reasons) == (WHOLE, (TURNS, 1), ["replay"])


def test_without_the_switch_the_turn_fails_and_codex_sends_it_all_again(tmp_path: Path) -> None:
    """R10, W10: no replay; the failure is passing to Codex, and its user sees nothing of it."""
    seen = session(
        tmp_path,
        "",
        lambda cell: (failing(cell, [*commands(cell, TURNS - 1), answer(cell)]), [answer(cell)]),
    )
    assert (seen.shown, seen.calls, seen.reasons) == (WHOLE, (TURNS + 1, 0), ["continuation"])


def test_with_encrypted_reasoning_the_turn_fails_and_codex_sends_it_all_again(tmp_path: Path) -> None:
    """S5, R10: whatever the switch says, only the origin can read what it has encrypted."""

    def replies(cell: str) -> tuple[Sequence[Reply], Sequence[Reply]]:
        asked = [*map(reasoned, commands(cell, TURNS - 1)), answer(cell)]
        return failing(cell, asked), [answer(cell)]

    seen = session(tmp_path, f"{SWITCH} = true", replies)
    assert (seen.shown, seen.calls, seen.reasons) == (WHOLE, (TURNS + 1, 0), ["origin_bound"])


def test_a_code_of_the_upstreams_that_codex_takes_for_its_end_is_its_end_where_nothing_is_replayed(
    tmp_path: Path,
) -> None:
    """X1: delivered unchanged, and `server_is_overloaded` is fatal to Codex. The switch is for this."""
    seen = session(
        tmp_path,
        "",
        lambda cell: (failing(cell, commands(cell, TURNS - 1), "server_is_overloaded"), [answer(cell)]),
        turns=FAILING_TURN,
    )
    at_capacity = "[turn.failed Selected model is at capacity. Please try a different model.]"
    assert (seen.shown, seen.calls) == ((*[RAN] * (FAILING_TURN - 1), at_capacity), (FAILING_TURN, 0))
