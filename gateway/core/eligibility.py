"""Which requests are stateless, and why the others are not (S). What a body holds is told by its contents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from gateway.core.request import RequestBody, TurnRequest, is_background


@dataclass(frozen=True, slots=True)
class StatePolicy:
    """What the operator decided about state."""

    absent_store_is_false: bool = False
    replay_side_effect_tools: bool = False
    replay_expanded_continuations: bool = False


STORED: Final = "stored"
CONTINUATION: Final = "continuation"
ORIGIN_BOUND: Final = "origin_bound"
BACKGROUND: Final = "background"
SIDE_EFFECT_TOOL: Final = "side_effect_tool"

TURN_STATE_HEADER: Final = "x-codex-turn-state"


def eligibility(body: RequestBody, header_names: Iterable[str], policy: StatePolicy) -> tuple[str, ...]:
    """S7: every reason why the request is stateful, in the order of R10; empty for a stateless one."""
    checks = (
        (STORED, effective_store(body, policy) is not False),
        (CONTINUATION, bool(body.get("previous_response_id")) or body.get("conversation") is not None),
        (ORIGIN_BOUND, body.contents.is_origin_bound or _has_turn_state(header_names)),
        (BACKGROUND, is_background(body)),
        (SIDE_EFFECT_TOOL, not policy.replay_side_effect_tools and body.contents.has_side_effect_tool),
    )
    return tuple([reason for reason, applies in checks if applies])


def reasons_on(request: TurnRequest, *, stores_by_default: bool) -> tuple[str, ...]:
    """S1: the reasons that stand on a route. What an upstream stores by default is its own affair; where that is
    nothing, a request that does not say `store` is not stored. An expanded continuation was one (W10)."""
    standing = request.stateful_reasons
    if not (stores_by_default or request.body.get("store") is not None):
        standing = tuple(reason for reason in standing if reason != STORED)
    if not request.counts_as_continuation:
        return standing
    stored = tuple(reason for reason in standing if reason == STORED)
    return (*stored, CONTINUATION, *(reason for reason in standing if reason not in (STORED, CONTINUATION)))


def effective_store(body: RequestBody, policy: StatePolicy) -> Any:
    """S1: the value the upstream will act on; None is its default, which is to store."""
    return False if makes_store_explicit(body, policy) else body.get("store")


def makes_store_explicit(body: RequestBody, policy: StatePolicy) -> bool:
    """S1: whether `"store": false` is spliced in. Never beside `background`, which needs a stored response."""
    return policy.absent_store_is_false and body.get("store") is None and not is_background(body)


def _has_turn_state(header_names: Iterable[str]) -> bool:
    """S5: the origin's own state, in a header."""
    return TURN_STATE_HEADER in map(str.lower, header_names)
