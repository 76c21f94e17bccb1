"""A turn as lines to read: what happened when, attempt by attempt, and where its money went. Pure.

Times are seconds since the turn began; within an attempt they are counted by the gateway's monotonic clock, and an
attempt's own beginning by the store's, which on another host may differ by a little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.cli.books import told_moment
from gateway.config.amounts import dollars, dollars_in_column
from gateway.store.reports import RUNNING, AttemptRow, EntryRow, ReservationRow, TurnReport, TurnRow


def report_lines(report: TurnReport) -> list[str]:
    """All that is known of a turn."""
    began = _began(report)
    lines = [f"turn {report.turn_id}"]
    lines += [] if report.turn is None else _turn_lines(report.turn, len(report.attempts))
    if report.turn is None:
        lines.append("  its record has had its time; the entries stay")
    for attempt in report.attempts:
        lines += ["", *_attempt_lines(attempt, began)]
    return [*lines, "", *_money_lines(report.reservation, report.entries, began)]


def _began(report: TurnReport) -> float:
    return report.entries[0].at if report.turn is None else report.turn.opened_at


def _turn_lines(turn: TurnRow, attempts: int) -> Iterator[str]:
    counted = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    lasted = "" if turn.seconds is None else f", {turn.seconds:.3f} s"
    yield f"  {turn.outcome or RUNNING}, {counted}{lasted}"
    if turn.failure_code is not None:
        yield f"  failure   {turn.failure_code} ({turn.failure_kind})"
    yield f"  began     {told_moment(turn.opened_at)} UTC, door {turn.door}"
    yield f"  account   {turn.account}" + (f", key {turn.key}" if turn.key else "")
    yield f"  model     {turn.model}"
    client = [f"at {turn.client_address}" if turn.client_address else ""]
    client.append(f"its retry {turn.client_retry_count}" if turn.client_retry_count else "")
    if any(client):
        yield f"  client    {', '.join(filter(None, client))}"
    if turn.response_id is not None:
        yield f"  response  {turn.response_id}"


def _attempt_lines(attempt: AttemptRow, began: float) -> Iterator[str]:
    start = max(0.0, attempt.opened_at - began)
    yield f"{_at(start)}  attempt {attempt.number} on route {attempt.route}"
    for offset, what in ((attempt.first_event_seconds, "first event"), (attempt.first_output_seconds, "first output")):
        if offset is not None:
            yield f"{_at(start + offset)}    {what}"
    if attempt.outcome is None:
        yield f"{'':11}    {RUNNING}"
        return
    yield f"{_at(None if attempt.seconds is None else start + attempt.seconds)}    {_ended(attempt)}"
    yield from (f"{'':11}    {line}" for line in _facts(attempt))


def _ended(attempt: AttemptRow) -> str:
    if attempt.is_replayed:
        return f"{attempt.outcome}: replayed"
    return f"{attempt.outcome}" + (f": not replayed ({attempt.reason})" if attempt.reason else "")


def _facts(attempt: AttemptRow) -> Iterator[str]:
    if attempt.input_tokens is not None:
        yield (
            f"usage: {attempt.input_tokens} input ({attempt.cached_tokens} cached),"
            f" {attempt.output_tokens} output ({attempt.reasoning_tokens} reasoning)"
        )
    if attempt.house_nanodollars:
        yield f"the house bears {dollars(attempt.house_nanodollars)} for it"
    if attempt.dropped_events:
        yield f"{attempt.dropped_events} events dropped"
    for name, value in (("response", attempt.response_id), ("upstream request", attempt.upstream_request_id)):
        if value is not None:
            yield f"{name} {value}"


def _money_lines(reservation: ReservationRow | None, entries: Sequence[EntryRow], began: float) -> Iterator[str]:
    yield "money, in dollars" + ("" if reservation is None else f": {_stands(reservation)}")
    for entry in entries:
        attempt = "" if entry.attempt is None else f" for attempt {entry.attempt}"
        yield (
            f"{_at(max(0.0, entry.at - began))}  {entry.kind:<9}{dollars_in_column(entry.nanodollars)}  {entry.account}"
            f"{attempt}{' ' if entry.flags else ''}{entry.flags}"
        )


def _stands(reservation: ReservationRow) -> str:
    reserved, amount = dollars(reservation.nanodollars), reservation.resolved_nanodollars
    match reservation.state:
        case "reserved":
            return f"{reserved} set aside, its lease ends {told_moment(reservation.lease_ends_at)} UTC"
        case "settled" if amount is not None:
            flags = f" ({', '.join(reservation.flags.split())})" if reservation.flags else ""
            return f"{dollars(amount)} charged of {reserved} set aside{flags}"
        case "expired" if amount is not None:
            return f"{reserved} given back when the lease ended; the house bears {dollars(amount)}, which came late"
        case "expired":
            return f"{reserved} given back when the lease ended"
        case _:
            return f"{reserved} given back"


def _at(seconds: float | None) -> str:
    return f"{'':11}" if seconds is None else f"{seconds:>9.3f} s"
