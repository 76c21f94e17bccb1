"""Money: a reservation that is settled or voided exactly once, and the table of what a turn costs (B).

All amounts are integer nano-dollars (B1). Prices are nano-dollars per million tokens; a cost is rounded up to the next
nano-dollar once, at the end, never per token.

                       settle(amount)
        Reserved  --------------------->  Settled(amount, flags)
            |
            +---- void() -------------->  Voided(flags)
            |
            +---- the lease ends ------>  Expired                  all final: a second resolution is refused by name
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

TOKENS_PER_PRICE: Final = 1_000_000
TEXT_BYTES_PER_TOKEN: Final = 3
"""B4: a low estimate of bytes per token, so that an estimate errs upward for the reservation."""
TOKENS_MAX: Final = 1_000_000_000
"""No response has a billion tokens: a count beyond is no count, and every amount fits a store's 64-bit integers."""


@dataclass(frozen=True, slots=True)
class Price:
    """Nano-dollars per million tokens of each kind (B2: cached and reasoning tokens have prices of their own)."""

    input: int
    cached_input: int
    output: int
    reasoning: int

    def cost_nanodollars(self, usage: Usage) -> int:
        """What `usage` costs, rounded up to a whole nano-dollar. Cached tokens are a part of the input, reasoning
        tokens a part of the output, as the Responses API counts them."""
        total = (
            (usage.input_tokens - usage.cached_tokens) * self.input
            + usage.cached_tokens * self.cached_input
            + (usage.output_tokens - usage.reasoning_tokens) * self.output
            + usage.reasoning_tokens * self.reasoning
        )
        return -(-total // TOKENS_PER_PRICE)


FREE: Final = Price(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens an upstream metered for one attempt."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


def read_usage(value: object) -> Usage | None:
    """The usage object of an event as money reads it, or None: B5 wants complete non-negative integers."""
    if type(value) is not dict:
        return None
    input_tokens, output_tokens = _count(value.get("input_tokens")), _count(value.get("output_tokens"))
    cached_tokens = _part(value.get("input_tokens_details"), "cached_tokens", of=input_tokens)
    reasoning_tokens = _part(value.get("output_tokens_details"), "reasoning_tokens", of=output_tokens)
    if input_tokens is None or output_tokens is None or cached_tokens is None or reasoning_tokens is None:
        return None
    return Usage(input_tokens, output_tokens, cached_tokens, reasoning_tokens)


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else None


def _part(details: object, name: str, *, of: int | None) -> int | None:
    """A part of a count, never more than the whole. Absent or null details are none of it, anything else must count."""
    if details is None:
        return 0
    if type(details) is not dict:
        return None
    part = 0 if details.get(name) is None else _count(details[name])
    return part if part is not None and of is not None and part <= of else None


def usage_was_observed(value: object) -> bool:
    """R4: a usage that is neither null nor all zeros counts as metered, however malformed it is."""
    pending = [value]
    while pending:
        current = pending.pop()
        if type(current) is dict:
            pending += current.values()
        elif type(current) is list:
            pending += current
        elif current is not None and current != 0:
            return True
    return False


# --- estimates (B4, B6) -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InputMeasure:
    """What a request holds, as the estimate counts it: text in UTF-8 bytes, images and files in number."""

    text_bytes: int
    images: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True)
class PartTokens:
    """Configured flat figures per part (B4); base64 is never counted as text."""

    image: int
    file: int


def text_tokens(text_bytes: int) -> int:
    """UTF-8 bytes of text, as estimated tokens, rounded up."""
    return -(-text_bytes // TEXT_BYTES_PER_TOKEN)


def estimate_input_tokens(measure: InputMeasure, parts: PartTokens) -> int:
    """B4 for a request."""
    return text_tokens(measure.text_bytes) + measure.images * parts.image + measure.files * parts.file


def reservation_nanodollars(input_tokens: int, max_output_tokens: int, prices: tuple[Price, ...]) -> int:
    """B6: input estimate and the output limit at the dearest candidate route's price."""
    return max([_ceiling_nanodollars(price, input_tokens, max_output_tokens) for price in prices])


def _ceiling_nanodollars(price: Price, input_tokens: int, output_tokens: int) -> int:
    dearest_input = max(price.input, price.cached_input)
    dearest_output = max(price.output, price.reasoning)
    return -(-(input_tokens * dearest_input + output_tokens * dearest_output) // TOKENS_PER_PRICE)


# --- what a turn costs (B3) -------------------------------------------------------------------------------------


class EndedBy(Enum):
    """What ended a turn's last attempt, as money sees it: the rows of B3."""

    __hash__ = object.__hash__  # by identity, in C: each turn's charge is looked up by it

    TERMINAL = "terminal"
    """completed, incomplete or cancelled"""
    UPSTREAM_OR_CLIENT = "upstream_or_client"
    """an upstream failure, a break, a timeout, the 60 minutes, a client that left"""
    GATEWAY = "gateway"
    """the gateway's own fault: drain, a bug"""


class Flag(Enum):
    """Remarks on a resolution, kept with its entry."""

    FAILED_METERED = "failed_metered"
    UNMETERED = "unmetered"
    ESTIMATED = "estimated"
    OVERDRAWN = "overdrawn"


class Basis(Enum):
    """How a cell of B3 charges."""

    USAGE = "usage"
    ESTIMATE = "estimate"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of B3: the basis of the charge and the remark it leaves."""

    basis: Basis
    flag: Flag | None = None


@dataclass(frozen=True, slots=True)
class ChargePolicy:
    """The cells of B3 that may be configured; the defaults are the table's own."""

    failed_metered: Basis = Basis.USAGE
    delivered_unmetered: Basis = Basis.ESTIMATE


UNMETERED_CHARGES: Final[dict[tuple[EndedBy, bool], Cell]] = {
    # (ended by, output was delivered) without usage; with usage, the usage decides, whatever ended the turn
    (EndedBy.TERMINAL, False): Cell(Basis.VOID, Flag.UNMETERED),
    (EndedBy.TERMINAL, True): Cell(Basis.ESTIMATE, Flag.ESTIMATED),
    (EndedBy.UPSTREAM_OR_CLIENT, False): Cell(Basis.VOID),
    (EndedBy.UPSTREAM_OR_CLIENT, True): Cell(Basis.ESTIMATE, Flag.ESTIMATED),
    (EndedBy.GATEWAY, False): Cell(Basis.VOID),
    (EndedBy.GATEWAY, True): Cell(Basis.VOID, Flag.UNMETERED),
}


@dataclass(frozen=True, slots=True)
class Ended:
    """The facts by which a turn's last attempt is charged."""

    by: EndedBy
    output_delivered: bool
    usage: Usage | None
    failed: bool
    delivered_text_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a reservation ends: settled for an amount, or voided (`nanodollars` is None)."""

    nanodollars: int | None
    flags: tuple[Flag, ...] = ()


def resolve(ended: Ended, price: Price, reserved: int, input_tokens: int, policy: ChargePolicy) -> Resolution:
    """B3: what the turn's last attempt costs the client. An estimate never exceeds the reservation (B4); a usage may,
    and the ledger then flags the excess `overdrawn` (B6)."""
    cell = charge_cell(ended, policy)
    flags = () if cell.flag is None else (cell.flag,)
    if cell.basis is Basis.USAGE and ended.usage is not None:
        return Resolution(price.cost_nanodollars(ended.usage), flags)
    if cell.basis is Basis.ESTIMATE:
        guess = Usage(input_tokens, text_tokens(ended.delivered_text_bytes))
        return Resolution(min(reserved, price.cost_nanodollars(guess)), flags)
    return Resolution(None, flags)


def charge_cell(ended: Ended, policy: ChargePolicy) -> Cell:
    """The cell of B3 that applies."""
    if ended.usage is not None:
        if ended.failed and not ended.output_delivered:
            return Cell(policy.failed_metered, Flag.FAILED_METERED)
        return Cell(Basis.USAGE)
    cell = UNMETERED_CHARGES[ended.by, ended.output_delivered]
    if cell.basis is Basis.ESTIMATE and policy.delivered_unmetered is Basis.VOID:
        return Cell(Basis.VOID, Flag.UNMETERED)
    return cell


# --- the reservation machine (B1) -------------------------------------------------------------------------------


class Result(Enum):
    """Answers of a ledger, as named words: asking twice is not an error, disagreeing is."""

    __hash__ = object.__hash__  # by identity, in C: each turn's answer is looked up

    CREATED = "created"
    EXISTS = "exists"
    EXISTS_WITH_DIFFERENT_AMOUNT = "exists_with_different_amount"
    INSUFFICIENT_BALANCE = "insufficient_balance"
    SETTLED = "settled"
    SETTLED_OVERDRAWN = "settled_overdrawn"
    """settled beyond its reservation and the balance (B6)"""
    VOIDED = "voided"
    ALREADY_SETTLED = "already_settled"
    ALREADY_VOIDED = "already_voided"
    NOT_FOUND = "not_found"
    EXPIRED = "expired"
    ALREADY_EXPIRED = "already_expired"
    BORNE_BY_HOUSE = "borne_by_house"
    """a settlement that came after its lease had ended: the client keeps its refund (B7)"""
    LEASE_RUNS = "lease_runs"
    RENEWED = "renewed"
    SPEND_LIMIT_REACHED = "spend_limit_reached"
    ACCOUNT_NOT_FOUND = "account_not_found"
    ACCOUNT_CLOSED = "account_closed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Reserved:
    """Money set aside for a turn."""

    nanodollars: int


@dataclass(frozen=True, slots=True)
class Settled:
    """Charged; final."""

    nanodollars: int
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, slots=True)
class Voided:
    """Refunded in full; final."""

    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, slots=True)
class Expired:
    """Refunded by the sweeper, as its process was gone (B7). A settlement that comes all the same is the house's."""

    late_nanodollars: int | None = None


ReservationState = Reserved | Settled | Voided | Expired


def apply_resolution(state: ReservationState, resolution: Resolution) -> tuple[ReservationState, Result]:
    """The next state and the word for it. A final state never changes for the client: the same resolution again is
    recognised by its word, a different one is refused by it."""
    if not isinstance(state, Reserved):
        is_late = isinstance(state, Expired) and state.late_nanodollars is None and resolution.nanodollars is not None
        return (Expired(resolution.nanodollars), Result.BORNE_BY_HOUSE) if is_late else (state, _was(state))
    if resolution.nanodollars is None:
        return Voided(resolution.flags), Result.VOIDED
    word = Result.SETTLED_OVERDRAWN if Flag.OVERDRAWN in resolution.flags else Result.SETTLED
    return Settled(resolution.nanodollars, resolution.flags), word


def apply_expiry(state: ReservationState) -> tuple[ReservationState, Result]:
    """What the end of its lease does to a reservation (B7)."""
    return (Expired(), Result.EXPIRED) if isinstance(state, Reserved) else (state, _was(state))


def _was(state: Settled | Voided | Expired) -> Result:
    if isinstance(state, Settled):
        return Result.ALREADY_SETTLED
    return Result.ALREADY_VOIDED if isinstance(state, Voided) else Result.ALREADY_EXPIRED
