"""From a body or frame to a turn's request: read strictly, refused by name before anything is reserved (H3, S1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway import limits
from gateway.core.eligibility import STORED, StatePolicy, eligibility, makes_store_explicit
from gateway.core.failures import Refusal
from gateway.core.request import (
    CUT_FOR_SSE,
    CUT_FOR_WEBSOCKET,
    KEPT_CHARACTERS_MAX,
    RESPONSES,
    MalformedBody,
    RequestBody,
    TurnRequest,
)
from gateway.core.values import holds_more_values
from gateway.downstream.headers import REPLAY_HEADER, RETRY_COUNT_HEADER, headers_up

SHORT_MEMBERS: Final = frozenset(
    {
        *CUT_FOR_SSE,
        *CUT_FOR_WEBSOCKET,
        "background",
        "conversation",
        "max_output_tokens",
        "model",
        "previous_response_id",
        "prompt_cache_key",
        "store",
    }
)
"""Names, numbers and switches, which are asked for again and again while a turn runs. The value of a long text is not
kept (core.request): with 30 MB in such a place each question would read them anew, on the event loop."""


def read_body(raw: bytes) -> RequestBody:
    """A JSON object, looked through. Raises Refusal `invalid_json`, or `invalid_request` for too many values or too
    long a name."""
    if holds_more_values(raw, limits.BODY_VALUES_MAX):
        raise Refusal("invalid_request", f"the body holds more than {limits.BODY_VALUES_MAX:,} JSON values")
    try:
        body = RequestBody(raw)
    except MalformedBody as error:
        raise Refusal("invalid_json", str(error)) from None
    members = body.members
    for name in SHORT_MEMBERS & members.keys():
        found = members[name]
        if found.value_end - found.value_start > KEPT_CHARACTERS_MAX:
            text = f"{name!r} has more than {KEPT_CHARACTERS_MAX:,} characters"
            raise Refusal("invalid_request", text, param=name)
    _ = body.contents  # walked here, which may be a thread, and not when it is first asked for
    body.let_go(SHORT_MEMBERS)
    return body


def turn_request(
    body: RequestBody,
    headers: Mapping[str, str],
    policy: StatePolicy,
    *,
    streams: bool = True,
    path: str = RESPONSES,
) -> TurnRequest:
    """What the engine is asked; `headers` are those that say anything (headers_read). Only a response is stored: a
    compaction and a count know no `store`. Raises Refusal `invalid_request` or `unsupported_parameter`."""
    can_be_stored = path == RESPONSES
    reasons = eligibility(body, headers, policy)
    return TurnRequest(
        body=body,
        model=_model(body),
        stateful_reasons=reasons if can_be_stored else tuple([reason for reason in reasons if reason != STORED]),
        splices_store=can_be_stored and makes_store_explicit(body, policy),
        headers=headers_up(headers.items()),
        client_refused_replay=headers.get(REPLAY_HEADER, "").strip().lower() == "never",
        client_retry_count=headers.get(RETRY_COUNT_HEADER),
        streams=streams,
        path=path,
    )


def _model(body: RequestBody) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise Refusal("invalid_request", "'model' must name a model", param="model")
    return model


def asks_for_stream(body: RequestBody) -> bool:
    """H1: absent is false, as the API has it. Raises Refusal `invalid_request`."""
    stream: Any = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise Refusal("invalid_request", "'stream' must be true or false", param="stream")
    return stream is True


def refuse_warm_up(body: RequestBody) -> None:
    """What a warm-up prepares is remembered for its connection (W9), and HTTP has none: raises Refusal
    `unsupported_parameter`."""
    if body.get("generate") is False:
        text = "'generate': false is for a WebSocket, whose connection remembers what it prepared"
        raise Refusal("unsupported_parameter", text, param="generate")


def require_plain_background(body: RequestBody) -> None:
    """B9: whether the response goes on must not be guessed: raises Refusal `invalid_request`."""
    background: object = body.get("background")
    if background is not None and not isinstance(background, bool):
        raise Refusal("invalid_request", "'background' must be true or false", param="background")


def refuse_background(body: RequestBody) -> None:
    """W2: a WebSocket has no way back to a response that goes on: raises Refusal `unsupported_parameter`."""
    if body.get("background") not in (None, False):
        raise Refusal("unsupported_parameter", "'background' is not supported here", param="background")
