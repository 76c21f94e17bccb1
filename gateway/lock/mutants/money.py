"""What a turn costs (B): each cell of B3 another way, each price and figure off, each usage read otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

from gateway.config import Config
from gateway.core import contents, events, ledger, money, whole
from gateway.core.accounts import Account, Book, Reservation, SpendLimit
from gateway.core.attempt import Attempt
from gateway.core.delivery import Delivery
from gateway.core.keys import Key
from gateway.core.messages import AttemptEnded
from gateway.core.money import (
    TOKENS_MAX,
    TOKENS_PER_PRICE,
    UNMETERED_CHARGES,
    Basis,
    Cell,
    ChargePolicy,
    Ended,
    Flag,
    Price,
    Resolution,
    Usage,
    charge_cell,
    read_usage,
    reservation_nanodollars,
    text_tokens,
    usage_was_observed,
)
from gateway.core.request import TurnRequest
from gateway.keys.windows import spend_limits
from gateway.lock.mutants.flips import Flip, Mutant, added, everywhere, swapped, without
from gateway.ports import Model
from gateway.turn import opening

OTHER_FLAG: Final = {None: Flag.UNMETERED, Flag.UNMETERED: None, Flag.ESTIMATED: None}


def mutants() -> Iterator[Mutant]:
    """All of them."""
    yield from _cells()
    yield from _metered_cells()
    yield from _figures()
    yield from _parts()
    yield from _balances()
    yield from _windows()
    yield from _usages()


def _cells() -> Iterator[Mutant]:
    for key, cell in UNMETERED_CHARGES.items():
        where = f"{key[0].value}, {'output' if key[1] else 'no output'}"
        other = Basis.VOID if cell.basis is Basis.ESTIMATE else Basis.ESTIMATE
        for what, changed in (
            (f"{other.value} for {cell.basis.value}", Cell(other, cell.flag)),
            ("another flag", Cell(cell.basis, OTHER_FLAG[cell.flag])),
        ):
            table = {**UNMETERED_CHARGES, key: changed}
            yield Mutant(f"B3: {where}: {what}", ("B3",), swapped(money, "UNMETERED_CHARGES", table))


def _metered_cells() -> Iterator[Mutant]:
    def cells(changed: Callable[[Ended, Cell], Cell]) -> Flip:
        def cell(ended: Ended, policy: ChargePolicy) -> Cell:
            return changed(ended, charge_cell(ended, policy))

        return everywhere(charge_cell, cell)

    def no_flag(_ended: Ended, cell: Cell) -> Cell:
        return Cell(cell.basis, None if cell.flag is Flag.FAILED_METERED else cell.flag)

    def a_failure_is_void(ended: Ended, cell: Cell) -> Cell:
        return Cell(Basis.VOID, cell.flag) if ended.usage is not None and ended.failed else cell

    def flagged_with_output(ended: Ended, cell: Cell) -> Cell:
        return Cell(cell.basis, Flag.FAILED_METERED) if ended.usage is not None and ended.failed else cell

    def usage_is_void(ended: Ended, cell: Cell) -> Cell:
        return Cell(Basis.VOID) if ended.usage is not None else cell

    yield Mutant("B3: a metered failure without its flag", ("B3", "R4"), cells(no_flag))
    yield Mutant("B3: a metered failure is void", ("B3", "R4"), cells(a_failure_is_void))
    yield Mutant("B3: a metered failure behind output is flagged", ("B3", "R2"), cells(flagged_with_output))
    yield Mutant("B3: usage is void", ("B2", "B3"), cells(usage_is_void))
    for field in ("failed_metered", "delivered_unmetered"):
        flip = everywhere(charge_cell, _deaf_to(field))
        yield Mutant(f"B3: {field} is not asked", ("B3",), flip, words=(field,))
    yield Mutant("B3: output that waits was delivered", ("B3", "T6"), swapped(Delivery, "issue", _handed_as_issued))


def _deaf_to(field: str) -> Callable[[Ended, ChargePolicy], Cell]:
    standard = getattr(ChargePolicy(), field)
    return lambda ended, policy: charge_cell(ended, replace(policy, **{field: standard}))


def _figures() -> Iterator[Mutant]:
    yield from _prices()
    yield Mutant("B4: four bytes are a token", ("B4",), swapped(money, "TEXT_BYTES_PER_TOKEN", 4))
    yield Mutant("B4: tokens are rounded down", ("B4",), everywhere(text_tokens, lambda size: size // 3))
    yield Mutant(
        "B4: an estimate may be above the reservation", ("B4",), added(money, "min", lambda _first, cost: cost)
    )
    yield Mutant("B4: escapes are counted as they stand", ("B4",), swapped(events, "_unescaped_bytes", len))
    yield Mutant(
        "B6: the reservation is at the cheapest route", ("B6", "M2"), everywhere(reservation_nanodollars, _cheapest)
    )
    yield Mutant("B6: the model's limit is reserved", ("B6",), change=_limit_of_the_model)
    yield Mutant(
        "B6: cached input is never the dearest", ("B6", "B2"), swapped(money, "_ceiling_nanodollars", _uncached_ceiling)
    )
    yield Mutant("B6: a reservation is rounded down", ("B1", "B6"), swapped(money, "_ceiling_nanodollars", _floor))
    for name, limit in OUTPUT_LIMITS.items():
        flip = swapped(TurnRequest, "max_output_tokens", property(limit))
        yield Mutant(f"B6: {name}", ("B6",), flip, words=("max_output_tokens",))
    yield Mutant(
        "B2: nothing is known of what was discarded",
        ("R4", "L1"),
        swapped(Attempt, "report", _unmetered_report),
        words=('"0/0"',),
    )
    for table in ("READ_AND_BOUND", "READ_ONLY"):
        for name in getattr(contents, table):
            flip = swapped(contents, table, without(getattr(contents, table), name))
            yield Mutant(f"B4: {name} is not counted", ("B4", "B6"), flip, words=(f'"{name}"', f"{name} ="))


def _parts() -> Iterator[Mutant]:
    """B4: what is text, and what counts flat."""
    yield Mutant("B4: audio is text", ("B4",), swapped(events, "BASE64_TYPES", frozenset()))
    yield Mutant("B4: base64 of the request is text", ("B4",), swapped(contents, "ENCODED_KEYS", frozenset()))
    yield Mutant("B4: a file counts for nothing", ("B4",), swapped(contents, "_FLAT_TYPES", contents.IMAGE_TYPES))
    yield Mutant("B4: an image counts for nothing", ("B4",), swapped(contents, "_FLAT_TYPES", contents.FILE_TYPES))
    for module, table, what in (
        (contents, "_FLAT_TYPES", "counts for nothing"),
        (contents, "ENCODED_KEYS", "is text"),
        (events, "BASE64_TYPES", "is text"),
        (whole, "TEXT_KEYS", "is no text"),
    ):
        entries = getattr(module, table)
        for name in sorted(entries):
            yield Mutant(f"B4: {name} {what}", ("B4",), swapped(module, table, without(entries, name)), words=(name,))


def _balances() -> Iterator[Mutant]:
    """B6, B8: what becomes of an account."""
    for name, overdraft in OVERDRAFTS.items():
        yield Mutant(f"B6: {name}", ("B6",), swapped(ledger, "_flag_overdraft", overdraft))
    yield Mutant("B8: what is charged stays", ("B8", "B6"), swapped(ledger, "_move", _moved("balance")))
    yield Mutant("B8: what was set aside stays so", ("B8", "B6"), swapped(ledger, "_move", _moved("open")))


def _windows() -> Iterator[Mutant]:
    """B6: what a key may spend."""
    yield Mutant("B6: what a key may spend is not asked", ("B6", "X2"), everywhere(spend_limits, lambda _key, _now: ()))
    for by in (1, -1):
        word = "more" if by > 0 else "less"
        flip = everywhere(spend_limits, partial(_spend_limits, by))
        yield Mutant(f"B6: a key may spend a nano-dollar {word}", ("B6", "X2"), flip, words=("spend_per_",))
    for length in ("day", "month"):
        flip = everywhere(spend_limits, partial(_other_windows, f":{length}:"))
        yield Mutant(f"B6: no key has a limit per {length}", ("B6", "X2"), flip, words=(f"spend_per_{length}",))
    yield Mutant("B6: what is refunded counts as spent", ("B6", "X2"), swapped(Book, "spend", _never_given_back))
    for name, limits in OTHER_WINDOWS.items():
        yield Mutant(f"B6: {name}", ("B6", "X2"), everywhere(spend_limits, limits), words=("time_zone",))


def _prices() -> Iterator[Mutant]:
    def price(changed: Callable[[Price], Price]) -> Flip:
        return swapped(Price, "cost_nanodollars", lambda held, usage: _true_cost(changed(held), usage))

    yield Mutant(
        "B2: cached tokens cost as much as others", ("B2",), price(lambda held: replace(held, cached_input=held.input))
    )
    yield Mutant(
        "B2: reasoning tokens cost as much as others", ("B2",), price(lambda held: replace(held, reasoning=held.output))
    )
    yield Mutant("B2: input is free", ("B2", "B1"), price(lambda held: replace(held, input=0)))
    yield Mutant("B2: output is free", ("B2", "B1"), price(lambda held: replace(held, output=0)))
    yield Mutant("B1: a cost is rounded down", ("B1", "B2"), swapped(Price, "cost_nanodollars", _rounded_down))


_true_cost: Final = Price.cost_nanodollars
_true_report: Final = Attempt.report
_true_overdraft: Final = ledger._flag_overdraft
_true_spend: Final = Book.spend
_true_ceiling: Final = money._ceiling_nanodollars
_true_move: Final = ledger._move
_true_issue: Final = Delivery.issue


def _cheapest(input_tokens: int, output_tokens: int, prices: tuple[Price, ...]) -> int:
    return min(reservation_nanodollars(input_tokens, output_tokens, (price,)) for price in prices)


def _rounded_down(held: Price, usage: Usage) -> int:
    return -_true_cost(Price(-held.input, -held.cached_input, -held.output, -held.reasoning), usage)


def _floor(price: Price, input_tokens: int, output_tokens: int) -> int:
    dearest = input_tokens * max(price.input, price.cached_input) + output_tokens * max(price.output, price.reasoning)
    return dearest // TOKENS_PER_PRICE


def _uncached_ceiling(price: Price, input_tokens: int, output_tokens: int) -> int:
    return _true_ceiling(replace(price, cached_input=0), input_tokens, output_tokens)


def _whole_limit(request: TurnRequest) -> int | None:
    value = request.body.get("max_output_tokens")
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _any_limit(request: TurnRequest) -> int | None:
    value = request.body.get("max_output_tokens")
    return math.ceil(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _true_is_one(request: TurnRequest) -> int | None:
    value = request.body.get("max_output_tokens")
    return math.ceil(value) if isinstance(value, int | float) and value >= 0 else None


OUTPUT_LIMITS: Final[dict[str, Callable[[TurnRequest], int | None]]] = {
    "a fraction is no limit of the output": _whole_limit,
    "less than nothing is a limit of the output": _any_limit,
    "a truth is a limit of the output": _true_is_one,
}


def _handed_as_issued(delivery: Delivery, issued: Any, at: float) -> None:
    _true_issue(delivery, issued, at)
    delivery.output_was_handed = delivery.output_was_issued


def _moved(kept: str) -> Callable[[Book, Account, Reservation, Any], None]:
    """The account keeps that figure, whatever becomes of a reservation."""

    def move(book: Book, account: Account, after: Reservation, flags: Any) -> None:
        _true_move(book, account, after, flags)
        book.put_account(replace(book.accounts[account.name], **{kept: getattr(account, kept)}))

    return move


def _limit_of_the_model(config: Config) -> Config:
    models = {
        name: replace(model, max_output_tokens=model.max_output_tokens + 1) for name, model in config.models.items()
    }
    return replace(config, models=models)


def _flagged_at_zero(account: Account, reserved: int, end: Resolution) -> Resolution:
    return _true_overdraft(replace(account, balance=account.balance - 1), reserved, end)


def _flagged_without_limit(account: Account, reserved: int, end: Resolution) -> Resolution:
    return _true_overdraft(replace(account, is_unlimited=False), reserved, end)


OVERDRAFTS: Final[dict[str, Callable[[Account, int, Resolution], Resolution]]] = {
    "a balance of zero is overdrawn": _flagged_at_zero,
    "an unlimited account is overdrawn": _flagged_without_limit,
    "nothing is overdrawn": lambda _account, _reserved, end: end,
}


def _spend_limits(by: int, key: Key, now: float) -> tuple[SpendLimit, ...]:
    return tuple(replace(held, nanodollars_max=held.nanodollars_max + by) for held in spend_limits(key, now))


def _other_windows(word: str, key: Key, now: float) -> tuple[SpendLimit, ...]:
    return tuple(held for held in spend_limits(key, now) if word not in held.window)


def _by_the_day(key: Key, now: float) -> tuple[SpendLimit, ...]:
    day = datetime.fromtimestamp(now, ZoneInfo(key.limits.time_zone)).date()
    return tuple(replace(held, window=f"{held.window}/{day}") for held in spend_limits(key, now))


def _by_utc(key: Key, now: float) -> tuple[SpendLimit, ...]:
    return spend_limits(replace(key, limits=replace(key.limits, time_zone="UTC")), now)


OTHER_WINDOWS: Final[dict[str, Callable[[Key, float], tuple[SpendLimit, ...]]]] = {
    "a month is a day": _by_the_day,
    "every key's time zone is UTC": _by_utc,
}


def _never_given_back(book: Book, windows: Any, nanodollars: int) -> None:
    _true_spend(book, windows, max(0, nanodollars))


def _unmetered_report(attempt: Attempt, end: Any) -> Any:
    report = _true_report(attempt, end)
    is_discarded = end.verdict is not None and end.verdict.replay
    return replace(report, usage=None) if is_discarded else report


def _begun_alone(attempt: Attempt, ended: AttemptEnded) -> None:
    attempt.result_was_observed |= ended.result_was_begun


def _of_all(model: Model, _request: object) -> tuple[Price, ...]:
    return tuple(route.price for route in model.routes)


def _usages() -> Iterator[Mutant]:
    def half_is_whole(value: object) -> Usage | None:
        return read_usage({"output_tokens": 0, **value}) if isinstance(value, dict) else None

    def words_are_numbers(value: object) -> Usage | None:
        if not isinstance(value, dict):
            return None
        return read_usage({name: int(held) if isinstance(held, str | bool) else held for name, held in value.items()})

    def less_than_nothing(value: object) -> Usage | None:
        if not isinstance(value, dict):
            return None
        return read_usage({name: max(0, held) if isinstance(held, int) else held for name, held in value.items()})

    def zeros_are_none(value: object) -> Usage | None:
        return read_usage(value) if usage_was_observed(value) else None

    yield Mutant("B5: half a usage is one", ("B5", "R4"), everywhere(read_usage, half_is_whole))
    yield Mutant("B5: words and truths are numbers", ("B5",), everywhere(read_usage, words_are_numbers))
    yield Mutant("B5: less than nothing is nothing", ("B5",), everywhere(read_usage, less_than_nothing))
    yield Mutant("B5: a part may be above its whole", ("B5", "B2"), swapped(money, "_part", _any_part))
    yield Mutant("B5: the last usage decides, whatever it is", ("B5", "B3"), swapped(Attempt, "_read_usage", _the_last))
    yield Mutant("B3: the first usage decides", ("B3", "B5"), swapped(Attempt, "_read_usage", _the_first))
    yield Mutant(
        "B5: a part that is null is none", ("B5", "E8"), swapped(money, "_part", _no_null), words=('_tokens":null',)
    )
    yield Mutant("B5: any zeros are a usage", ("B5", "R4"), swapped(Attempt, "_read_usage", _zeros_too))
    yield Mutant("B5: zeros are no usage", ("B5",), everywhere(read_usage, zeros_are_none))
    yield Mutant("R4: a status' body is not read", ("R4", "B3"), swapped(Attempt, "read_end", _begun_alone))
    yield Mutant("B6: a route that drains is a candidate", ("B6",), swapped(opening, "_candidate_prices", _of_all))
    yield Mutant("R4: zeros are observed", ("R4",), everywhere(usage_was_observed, lambda _value: True))
    yield Mutant("R4: half a usage is not observed", ("R4", "B5"), everywhere(usage_was_observed, _only_whole))


_true_part: Final = money._part


def _any_part(details: object, name: str, *, of: int | None) -> int | None:
    return _true_part(details, name, of=None if of is None else TOKENS_MAX)


def _no_null(details: object, name: str, *, of: int | None) -> int | None:
    is_null = isinstance(details, dict) and name in details and details[name] is None
    return None if is_null else _true_part(details, name, of=of)


_true_read: Final = Attempt._read_usage


def _the_first(attempt: Attempt, found: object, is_final: bool) -> None:
    before = attempt.usage
    _true_read(attempt, found, is_final)
    attempt.usage = before or attempt.usage


def _the_last(attempt: Attempt, found: object, _is_final: bool) -> None:
    attempt.usage_was_observed |= usage_was_observed(found)
    attempt.usage = read_usage(found)


def _zeros_too(attempt: Attempt, found: object, _is_final: bool) -> None:
    attempt.usage_was_observed |= usage_was_observed(found)
    attempt.usage = read_usage(found) or attempt.usage


def _only_whole(value: object) -> bool:
    usage = read_usage(value)
    return usage is not None and usage_was_observed(value)
