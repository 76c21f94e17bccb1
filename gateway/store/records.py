"""The statements of the records (L, O1), by name. Each is idempotent: taken again, it changes nothing.

A turn or an attempt that the sweeper closed, for its process seemed gone, is closed again by a process that was not.
The amount of a turn is what its client has paid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

LEASE_ENDED: Final = "lease_ended"
"""The outcome of a turn or an attempt whose process is gone (B7, L2)."""


REFUNDED: Final = """
exists (select 1 from reservation where reservation.turn_id = :turn_id and reservation.state = 'expired')
"""
"""B7: whose lease had ended has paid nothing, whatever the turn cost: the house has borne it."""


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """One statement of STATEMENTS with its parameters: plain values, so that it can be spooled as it is."""

    name: str
    params: Mapping[str, Any]


ORIGIN_ID_CHARACTERS_MAX: Final = 512
"""More of a response's id is not told apart: an index of PostgreSQL takes 2,704 bytes, and no upstream's is so long."""


def storable(params: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with text as every database takes it: what an upstream or a client named may hold characters that are
    in no text, and must not make the record fail."""
    return {name: _clean(value) if isinstance(value, str) else value for name, value in params.items()}


def _clean(text: str) -> str:
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def origin_key(response_id: str) -> str:
    """A response's id as the table of origins has it."""
    return _clean(response_id)[:ORIGIN_ID_CHARACTERS_MAX]


STATEMENTS: Final[dict[str, str]] = {
    # in the order in which a batch runs them: what opens before what closes
    "open_turn": """
        insert into turn (turn_id, account, key, model, door, reserved_nanodollars, opened_at,
                          client_retry_count, client_address)
        values (:turn_id, :account, :key, :model, :door, :reserved_nanodollars, :opened_at,
                :client_retry_count, :client_address)
        on conflict (turn_id) do nothing""",
    "open_attempt": """
        insert into attempt (turn_id, number, route, opened_at)
        values (:turn_id, :number, :route, :now) on conflict (turn_id, number) do nothing""",
    "close_attempt": f"""
        update attempt set outcome = :outcome, reason = :reason, is_replayed = :is_replayed, seconds = :seconds,
            first_event_seconds = :first_event_seconds, first_output_seconds = :first_output_seconds,
            response_id = :response_id, input_tokens = :input_tokens, cached_tokens = :cached_tokens,
            output_tokens = :output_tokens, reasoning_tokens = :reasoning_tokens, dropped_events = :dropped_events,
            upstream_request_id = :upstream_request_id, house_nanodollars = :house_nanodollars
        where turn_id = :turn_id and number = :number and (outcome is null or outcome = '{LEASE_ENDED}')""",
    "close_turn": f"""
        update turn set outcome = :outcome, ended_at = :now, seconds = :seconds,
            nanodollars = case when {REFUNDED} then null else cast(:nanodollars as bigint) end,
            flags = :flags, routes = :routes, failure_code = :failure_code, failure_kind = :failure_kind,
            response_id = :response_id
        where turn_id = :turn_id and (outcome is null or outcome = '{LEASE_ENDED}')""",
    "abandon_attempts": f"""
        update attempt set outcome = '{LEASE_ENDED}', is_replayed = 0
        where turn_id = :turn_id and outcome is null""",
    "abandon_turn": f"""
        update turn set outcome = '{LEASE_ENDED}', ended_at = :now
        where turn_id = :turn_id and outcome is null""",
    "learn_response_place": """
        insert into origin (account, response_id, route, model, upstream_place, learned_at)
        values (:account, :response_id, :route, :model, :upstream_place, :now)
        on conflict (account, response_id) do nothing""",
    "learn_mark_place": """
        insert into origin_mark (account, mark, route, upstream_place, learned_at)
        values (:account, :mark, :route, :upstream_place, :now) on conflict (account, mark) do nothing""",
    "keep_background_turn": """
        insert into background (turn_id, account, response_id, route, reserved_nanodollars, input_tokens, text_bytes,
                                input_price, cached_input_price, output_price, reasoning_price,
                                upstream_place, upstream_access, began_at, due_at)
        values (:turn_id, :account, :response_id, :route, :reserved_nanodollars, :input_tokens, :text_bytes,
                :input_price, :cached_input_price, :output_price, :reasoning_price,
                :upstream_place, :upstream_access, :now, :now + :pause_seconds)
        on conflict (turn_id) do update set text_bytes = excluded.text_bytes""",
    "postpone_background": "update background set due_at = :now + :pause_seconds where turn_id = :turn_id",
    # as earlier versions of the schema had them: a spool that was left behind may hold them
    "learn_origin": """
        insert into origin (account, response_id, route, learned_at)
        values (:account, :response_id, :route, :now) on conflict (account, response_id) do nothing""",
    "learn_response": """
        insert into origin (account, response_id, route, model, learned_at)
        values (:account, :response_id, :route, :model, :now) on conflict (account, response_id) do nothing""",
    "learn_mark": """
        insert into origin_mark (account, mark, route, learned_at)
        values (:account, :mark, :route, :now) on conflict (account, mark) do nothing""",
    "keep_background": """
        insert into background (turn_id, account, response_id, route, reserved_nanodollars, input_tokens, text_bytes,
                                began_at, due_at)
        values (:turn_id, :account, :response_id, :route, :reserved_nanodollars, :input_tokens, :text_bytes,
                :now, :now + :pause_seconds)
        on conflict (turn_id) do update set text_bytes = excluded.text_bytes""",
}

ORIGIN: Final = """
select route, model, upstream_place from origin
where account = :account and response_id = :response_id and learned_at > :since
"""
MARK: Final = """
select route, upstream_place from origin_mark
where account = :account and mark = :mark and learned_at > :since
"""
BACKGROUND: Final = """
select background.turn_id, background.account, background.response_id, background.route,
    background.reserved_nanodollars, background.input_tokens, background.text_bytes,
    background.input_price, background.cached_input_price, background.output_price, background.reasoning_price,
    background.upstream_place, background.upstream_access,
    background.began_at, background.due_at
from turn cross join background
where turn.outcome is null and background.turn_id = turn.turn_id order by background.began_at limit :limit
"""
"""B9: those that have not ended. SQLite joins in this order: turns that are open are few, and have an index."""
ABANDONED: Final = """
select reservation.turn_id from reservation
where reservation.lease_ends_at <= :now and reservation.turn_id in
    (select turn_id from turn where outcome is null union select turn_id from attempt where outcome is null)
order by reservation.lease_ends_at limit :limit
"""
